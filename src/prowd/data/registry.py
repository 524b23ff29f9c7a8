"""Data sets by name: what there is, and one way to load, fetch and check any of it."""

from __future__ import annotations

import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

import numpy as np

from prowd.data import cifar10, digits, watch
from prowd.data.cache import Arrays, Check, Entry
from prowd.data.dataset import ARRAYS, CLIENT, Dataset, from_arrays
from prowd.data.sources import Progress, silent
from prowd.data.watch import Windows
from prowd.errors import ConfigError, DataError, near

__all__ = ["ACCEPTED", "catalogue", "fetch", "lacking", "load", "mapped", "verify"]

TEST = ("x_test", "y_test")
ACCEPTED = f"{', '.join(ARRAYS)}, and {CLIENT} where examples are of people"


class Builtin(Protocol):
    """What the module of a built-in data set offers."""

    def arrays(self, source: str | None, progress: Progress, *, verify: bool) -> Arrays:
        """Its arrays, checked; fetched first where needed."""

    def verify(self) -> list[Check]:
        """Hash what is on this machine."""

    def status(self) -> Entry:
        """Describe it."""


BUILTIN: dict[str, Builtin] = {"digits": digits, "cifar10": cifar10, "watch": watch}


def catalogue() -> list[Entry]:
    """Every built-in data set, and whether it is on this machine."""
    return [builtin.status() for builtin in BUILTIN.values()]


def load(
    name: str,
    windows: Windows | None = None,
    *,
    progress: Progress | None = None,
    verify: bool = True,
    classes: int | None = None,
) -> Dataset:
    """Load a built-in data set or an ``.npz`` file of arrays; ``verify=False`` skips the hashing.

    Recordings are cut into windows. A file of a single device may lack examples of some of the ``classes`` of its run;
    see from_arrays.
    """
    if name.lower().endswith(".npz"):
        return _load_npz(Path(name).expanduser(), classes)
    builtin = _builtin(name, " or the path of an .npz file")
    found = builtin.arrays(None, progress or silent, verify=verify)
    return from_arrays(**(watch.cut(found, windows or Windows()) if builtin is watch else found), name=name)


def mapped(name: str) -> bool:
    """Whether a data set lies in the cache, where every process can map it."""
    return name in (cifar10.NAME, watch.NAME)


def fetch(name: str, source: str | None = None, progress: Progress | None = None) -> Path:
    """Bring a built-in data set onto this machine, checked; returns where it is."""
    builtin = _builtin(name)
    builtin.arrays(source, progress or silent, verify=True)
    return builtin.status().where


def verify(name: str) -> list[Check]:
    """Hash every array of a built-in data set on this machine."""
    return _builtin(name).verify()


def _builtin(name: str, besides: str = "") -> Builtin:
    if name in BUILTIN:
        return BUILTIN[name]
    accepted = f"{', '.join(BUILTIN)}{besides}{near(name.lower(), BUILTIN)}"
    raise ConfigError(f"data: {name!r} is unknown; accepted: {accepted}")


def lacking(held: Collection[str]) -> list[str]:
    """The arrays that some lack; data that says of whom it is may come without a test set."""
    needed = [array for array in ARRAYS if array.endswith("train") or CLIENT not in held or {*held} & {*TEST}]
    return [array for array in needed if array not in held]


def _load_npz(path: Path, classes: int | None) -> Dataset:
    try:
        with path.open("rb") as stream:  # opened here, for numpy leaves a damaged file open
            if not zipfile.is_zipfile(stream):
                raise DataError("it is no zip archive")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as file:
                arrays, held = {array: file[array] for array in (*ARRAYS, CLIENT) if array in file}, list(file)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except Exception as error:  # a damaged file raises whatever zip, zlib or numpy's header reader comes upon
        raise DataError(f"{path} is not an .npz file of plain arrays, or is damaged: {error}") from error
    if missing := lacking(arrays):
        found = f"lacks {', '.join(missing)}; it holds {', '.join(held) or 'nothing'}"
        raise DataError(f"{path} {found}; accepted: {ACCEPTED}")
    try:
        return from_arrays(**arrays, name=path.name, classes=classes)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
