"""The handwritten digits that come with scikit-learn: small enough to try everything on, no download."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch

from prowd.data.cache import Arrays, Check, Entry, Expected, check, hashes
from prowd.data.sources import Progress
from prowd.errors import ConfigError, DataError
from prowd.numbers.seeds import generator

__all__ = ["arrays", "status", "verify"]

NAME = "digits"
DESCRIPTION = "8×8 grey handwritten digits, 10 classes: 1,438 to train, 359 to test; comes with scikit-learn"
TEST_FRACTION = 0.2
SPLIT_SEED = 0
CONTENTS = {
    "x_train": Expected((1438, 1, 8, 8), "9422a8e37b102150b3a178e41bdfbcd33dd2c9424ab26f42a3b59f15484842fb"),
    "y_train": Expected((1438,), "3f1f4115a629a210c92ca085b342bcca935c3c66b8bee5b0c963f3c32cf8309a"),
    "x_test": Expected((359, 1, 8, 8), "3d0663a5d0a520c1a06cb31ea05664a6f1937390ce61ce51da854a3fd3dadb04"),
    "y_test": Expected((359,), "bcd4d4cd2d88cff19ee9b467ce302b9dd832203899c9d7c792229dfe4ccd2bec"),
}


def arrays(source: str | None, progress: Progress, *, verify: bool) -> Arrays:
    """Split the digits into the same training and test images in every run, whatever its seed."""
    if source is not None:
        raise ConfigError(f"from: {source!r} is of no use, {NAME} comes with scikit-learn; accepted: no source")
    found = _split()
    check(found, CONTENTS, verify=verify)
    return found


def verify() -> list[Check]:
    """Hash the digits as they are used."""
    return hashes(_split(), CONTENTS)


def status() -> Entry:
    """Tell where scikit-learn is, without the second that importing it takes."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise DataError(f"{NAME} comes with scikit-learn, which is not installed")
    return Entry(NAME, DESCRIPTION, cached=True, where=Path(spec.origin).parent, contents=CONTENTS)


def _split() -> Arrays:
    """Grey levels 0..16 to 0..255, and the split, class by class."""
    import sklearn.datasets

    raw = sklearn.datasets.load_digits()
    images = np.round(raw.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = raw.target.astype(np.uint8)
    is_test = np.zeros(len(labels), np.bool_)
    for label in range(10):
        members = np.flatnonzero(labels == label)
        random = generator(SPLIT_SEED, NAME, "split", label)
        order = torch.randperm(len(members), generator=random).numpy()
        is_test[members[order[: round(TEST_FRACTION * len(members))]]] = True
    parts = {"train": ~is_test, "test": is_test}
    return {f"{name}_{part}": of[rows] for part, rows in parts.items() for name, of in (("x", images), ("y", labels))}
