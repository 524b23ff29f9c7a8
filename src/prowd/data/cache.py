"""The per-user store of fetched data sets: one folder of ``.npy`` files each, complete and of known content.

Arrays are mapped, not read, so that worker processes on one machine share a single copy of the pages.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import platformdirs
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from prowd.errors import DataError
from prowd.files import atomic_folder, sha256

__all__ = [
    "Arrays",
    "Check",
    "Contents",
    "Entry",
    "Expected",
    "check",
    "checks",
    "folder",
    "hashed",
    "holds",
    "lock",
    "read",
    "root",
    "scratch",
    "size",
    "store",
]

log = logging.getLogger(__name__)

VARIABLE = "PROWD_DATA"

Arrays = dict[str, NDArray[np.uint8]]


@dataclass(frozen=True)
class Expected:
    """What an array must be: its shape (the dtype is always uint8) and the hash of its bytes."""

    shape: tuple[int, ...]
    sha256: str


Contents = Mapping[str, Expected]
"""What a data set must hold, array by array."""


class Check(NamedTuple):
    """Outcome of hashing one array; ``sha256`` is None where the file is missing or unreadable."""

    array: str
    sha256: str | None
    ok: bool


@dataclass(frozen=True)
class Entry:
    """A data set as this machine knows it; ``size`` is in bytes, ``where`` is its folder, there or not yet."""

    name: str
    description: str
    cached: bool
    where: Path
    size: int


def root() -> Path:
    """Folder of all data sets: $PROWD_DATA, or the platform's per-user cache."""
    override = os.environ.get(VARIABLE)
    return Path(override).expanduser() if override else platformdirs.user_cache_path("prowd")


def folder(name: str) -> Path:
    """Folder of one data set, whether it is there or not."""
    return root() / name


def size(contents: Contents) -> int:
    """Bytes of all arrays, in memory and (but for short headers) on disk."""
    return sum(math.prod(expected.shape) for expected in contents.values())


def holds(name: str) -> bool:
    """Whether a data set has been stored, sound or not."""
    with _explained():
        return folder(name).is_dir()


def check(array: str, values: NDArray[np.uint8], expected: Expected, *, contents: bool = True) -> None:
    """Raise DataError unless an array is what it must be; ``contents=False`` looks at its form only."""
    if values.dtype != np.uint8 or values.shape != expected.shape:
        raise DataError(f"{array} is {values.dtype} {values.shape}; expected uint8 {expected.shape}")
    if contents and (found := sha256(values)) != expected.sha256:
        raise DataError(f"{array} has sha256 {found}; expected {expected.sha256}")


def hashed(array: str, values: NDArray[np.uint8], expected: Expected) -> Check:
    """Hash an array and compare, for those who want to see the hash either way."""
    found = sha256(values)
    return Check(array, found, found == expected.sha256 and values.shape == expected.shape)


def read(name: str, contents: Contents, *, verify: bool = True) -> Arrays | None:
    """Map a stored data set, None if there is none; DataError if it is damaged.

    ``verify=False`` skips the hashes, not the shapes: for worker processes whose parent has just hashed.
    """
    if not holds(name):
        return None
    arrays = {array: _map(name, array) for array in contents}
    try:
        for array, expected in contents.items():
            check(array, arrays[array], expected, contents=verify)
    except DataError as error:
        raise DataError(f"{folder(name)} is damaged: {error}") from None
    return arrays


def checks(name: str, contents: Contents) -> list[Check]:
    """Hash every array of a stored data set, going on after a bad one."""
    found: list[Check] = []
    for array, expected in contents.items():
        try:
            values = _map(name, array)
        except DataError:
            found.append(Check(array, None, ok=False))
        else:
            found.append(hashed(array, values, expected))
    return found


def store(name: str, arrays: Arrays) -> None:
    """Put a data set in place of what was there, all at once; hold the lock."""
    with _explained(), atomic_folder(folder(name)) as temporary:
        for array, values in arrays.items():
            np.save(temporary / f"{array}.npy", values)


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold off every other process that would store the data set ``name``; clear what a killed one left behind."""
    with _explained():
        root().mkdir(parents=True, exist_ok=True)
        guard = FileLock(root() / f"{name}.lock")
        try:
            guard.acquire(timeout=0)
        except Timeout:
            log.warning("waiting for another process that is fetching %s", name)
            guard.acquire()
    try:
        for stale in root().glob(f".{name}[.-]*"):
            shutil.rmtree(stale, ignore_errors=True)
        yield
    finally:
        guard.release()


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """Yield a folder for downloads, on the disk that has room for the data set; it is gone afterwards."""
    with _explained():
        temporary = TemporaryDirectory(dir=root(), prefix=f".{name}-", ignore_cleanup_errors=True)
    with temporary:
        yield Path(temporary.name)


def _map(name: str, array: str) -> NDArray[np.uint8]:
    """Map one file copy-on-write: torch takes writable memory without complaint, and the file stays as it is."""
    path = folder(name) / f"{array}.npy"
    try:
        values: NDArray[np.uint8] = np.lib.format.open_memmap(path, mode="c")
    except Exception as error:  # numpy's reader has no closed list of what a damaged header raises
        raise DataError(f"{path} is damaged: {error}") from error
    return values


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what the file system says into a message that names the folder and the way out."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot use the data folder {root()}: {error}; set {VARIABLE} to a folder you may write to"
        ) from error
