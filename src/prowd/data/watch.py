"""Shoulder exercises as a smart watch senses them (Burns et al., 2018, arXiv:1802.01489), from the package seglearn.

Ten people did seven exercises with either arm: 140 recordings of six axes at 50 Hz. The file is a pickle, so its hash
is checked before anything reads it, and then it is read as plain arrays only. What the store keeps are the codes that a
watch would compute without a float: 128 times the signal over a fixed full scale, rounded and clipped to ±127.
"""

from __future__ import annotations

import importlib.util
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prowd.data.cache import Arrays, Check, Entry, Expected, Store, check, root
from prowd.data.pickles import read_pickle
from prowd.data.sources import Progress
from prowd.errors import ConfigError, DataError
from prowd.files import sha256

__all__ = ["EXERCISES", "Windows", "arrays", "cut", "status", "verify"]

NAME = "watch"
DESCRIPTION = "six axes of a smart watch at 50 Hz, 7 shoulder exercises by 10 people; comes with seglearn"
FILE = "data/watch_dataset.npy"
SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
EXTRA = "in a clone of prowd, pip install '.[watch]'"
EXERCISES = (
    "pendulum",
    "abduction",
    "forward elevation",
    "internal rotation",
    "external rotation",
    "trapezius extension",
    "upright row",
)
FULL_SCALE = np.array([2.0, 2.0, 2.0, 5.0, 5.0, 5.0])  # g, and radians a second
CONTENTS = {
    "samples": Expected((244102, 6), "0b3717451a10fc599eb74f940c245d824daedc79bb07b57ba67994506600502c", "int8"),
    "lengths": Expected((140,), "9bd8790dad4fc1295f5478ef965069d93264be7a6d61dc2a5347b55cf8100519", "uint16"),
    "subject": Expected((140,), "ec38ddb11f6aa4721b72a7101a9ec88a0dace7d6f1dc7d26cc3ce281c12c72d2"),
    "side": Expected((140,), "49730dc0bc7935176f49519e04a691418b69e75d861c54fd0a5c01a43463df8d"),
    "exercise": Expected((140,), "b8cc7295afb17bee94b1a930747228ae8bbc2ad852e1a603998b8e78d0e981bb"),
}
STORE = Store(NAME, CONTENTS)


@dataclass(frozen=True)
class Windows:
    """How recordings become examples: so many samples each, beginning every so many samples."""

    length: int = 128
    step: int = 64


def arrays(source: str | None, progress: Progress, *, verify: bool) -> Arrays:
    """Read the store; what is missing or damaged there is converted again from seglearn's file."""
    if source is not None:
        raise ConfigError(f"from: {source!r} is of no use, {NAME} comes with seglearn; accepted: no source")
    return STORE.ensured(lambda: _converted(progress), "converting", verify=verify)


def _converted(progress: Progress) -> Arrays:
    progress("converting", 0, None)
    found = convert(read(_file()))
    check(found, STORE.contents)
    return found


def verify() -> list[Check]:
    """Hash what the store holds."""
    if not STORE.holds():
        raise DataError(f"{NAME} is not in {root()}; convert it with: prowd data fetch {NAME}")
    return STORE.checks()


def status() -> Entry:
    """Tell whether it is in the store, by its shapes; ``verify`` looks closer."""
    return Entry(NAME, DESCRIPTION, STORE.sound(verify=False), STORE.folder, STORE.contents)


def cut(held: Arrays, windows: Windows) -> dict[str, Any]:
    """Windows (N, 6, length, 1) of all recordings, the exercise and the person of each; there is no test set yet."""
    lengths = held["lengths"].astype(np.int64)
    shortest = int(lengths.min())
    if not 1 <= windows.length <= shortest:
        raise ConfigError(f"window: {windows.length} samples of {NAME}; accepted: 1 to {shortest}, the shortest of all")
    counts = (lengths - windows.length) // windows.step + 1
    starts = np.concatenate(
        [
            begin + windows.step * np.arange(count)
            for begin, count in zip(lengths.cumsum() - lengths, counts, strict=True)
        ]
    )
    rows = starts[:, None] + np.arange(windows.length)
    return {
        "x_train": np.ascontiguousarray(held["samples"][rows].transpose(0, 2, 1))[..., None],
        "y_train": held["exercise"].repeat(counts),
        "client": held["subject"].repeat(counts),
        "class_names": EXERCISES,
    }


def read(path: Path) -> dict[str, Any]:
    """What seglearn's file holds, as plain values; nothing of it is interpreted before its hash is known."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}; install seglearn again: {EXTRA}") from error
    if (found := sha256(data)) != SHA256:
        raise DataError(f"{path} has sha256 {found}; expected {SHA256}, as of seglearn 1.2.5")
    try:
        stream = io.BytesIO(data)
        np.lib.format.read_magic(stream)
        np.lib.format.read_array_header_1_0(stream)
        (held,) = read_pickle(stream.read(), ("O8", "f8", "i8")).values
        return dict(held)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def convert(held: dict[str, Any]) -> Arrays:
    """Codes of the recordings end to end, by person, exercise and side; and of each its length and what it is of."""
    facts = {name: held[key].values.astype(np.uint8) for name, key in FACTS.items()}
    order = np.lexsort((facts["side"], facts["exercise"], facts["subject"]))
    recordings = [_codes(held["X"][n].values) for n in order]
    return {
        "samples": np.concatenate(recordings),
        "lengths": np.array([len(one) for one in recordings], np.uint16),
        **{name: values[order] for name, values in facts.items()},
    }


FACTS = {"subject": "subject", "side": "side", "exercise": "y"}


def _codes(signal: NDArray[np.float64]) -> NDArray[np.int8]:
    codes: NDArray[np.int8] = np.clip(np.rint(128 * signal / FULL_SCALE), -127, 127).astype(np.int8)
    return codes


def _file() -> Path:
    """Where seglearn keeps it, found without importing the package."""
    spec = importlib.util.find_spec("seglearn")
    if spec is None or spec.origin is None:
        raise DataError(f"{NAME} comes with the package seglearn, which is not installed; install it: {EXTRA}")
    return Path(spec.origin).parent / FILE
