"""The per-user store of fetched data sets: one folder of ``.npy`` files each, complete and of known content.

Arrays are mapped, not read, so that worker processes on one machine share a single copy of the pages.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import platformdirs
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from prowd.errors import DataError
from prowd.files import atomic_folder, sha256

__all__ = ["Arrays", "Check", "Contents", "Entry", "Expected", "Store", "check", "hashes", "root"]

log = logging.getLogger(__name__)

VARIABLE = "PROWD_DATA"

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Expected:
    """What an array must be: its shape, the hash of its bytes and its type."""

    shape: tuple[int, ...]
    sha256: str
    dtype: str = "uint8"

    def fits(self, values: NDArray[Any]) -> bool:
        """Whether an array has the shape and the type."""
        return values.dtype == np.dtype(self.dtype) and values.shape == self.shape


Contents = Mapping[str, Expected]
"""What a data set must hold, array by array."""


class Check(NamedTuple):
    """Outcome of hashing one array; ``sha256`` is None where the file is missing or unreadable."""

    array: str
    sha256: str | None
    ok: bool


@dataclass(frozen=True)
class Entry:
    """A data set as this machine knows it; ``where`` is its folder, there or not yet."""

    name: str
    description: str
    cached: bool
    where: Path
    contents: Contents

    @property
    def size(self) -> int:
        """Bytes of all arrays, in memory and (but for short headers) on disk."""
        return sum(math.prod(one.shape) * np.dtype(one.dtype).itemsize for one in self.contents.values())


def root() -> Path:
    """Folder of all data sets: $PROWD_DATA, or the platform's per-user cache."""
    override = os.environ.get(VARIABLE)
    return Path(override).expanduser() if override else platformdirs.user_cache_path("prowd")


def check(arrays: Arrays, contents: Contents, *, verify: bool = True) -> None:
    """Raise DataError unless the arrays are what they must be; ``verify=False`` looks at their form only."""
    for array, expected in contents.items():
        values = arrays[array]
        if not expected.fits(values):
            raise DataError(f"{array} is {values.dtype} {values.shape}; expected {expected.dtype} {expected.shape}")
        if verify and (found := sha256(values)) != expected.sha256:
            raise DataError(f"{array} has sha256 {found}; expected {expected.sha256}")


def hashes(arrays: Arrays, contents: Contents) -> list[Check]:
    """Hash every array that is there and compare, going on after a bad one."""
    checks: list[Check] = []
    for array, expected in contents.items():
        found = sha256(arrays[array]) if array in arrays else None
        checks.append(Check(array, found, found == expected.sha256 and expected.fits(arrays[array])))
    return checks


@dataclass(frozen=True)
class Store:
    """The place of one data set, whether it is there or not."""

    name: str
    contents: Contents

    @property
    def folder(self) -> Path:
        """Where the arrays are or will be."""
        return root() / self.name

    def holds(self) -> bool:
        """Whether the data set has been stored, sound or not."""
        with _explained():
            return self.folder.is_dir()

    def sound(self, *, verify: bool = True) -> bool:
        """Whether ``read`` would succeed."""
        try:
            return self.read(verify=verify) is not None
        except DataError:
            return False

    def read(self, *, verify: bool = True) -> Arrays | None:
        """Map the data set, None if there is none; DataError if it is damaged.

        ``verify=False`` skips the hashes, not the shapes: for worker processes whose parent has just hashed.
        """
        if not self.holds():
            return None
        try:
            arrays = {array: self._map(array) for array in self.contents}
            check(arrays, self.contents, verify=verify)
        except DataError as error:
            raise DataError(f"{self.folder} is damaged: {error}") from error
        return arrays

    def ensured(self, make: Callable[[], Arrays], doing: str, *, verify: bool) -> Arrays:
        """Map the data set; what is missing or damaged is made first, under the lock, which reading does not need."""
        try:
            found = self.read(verify=verify)
        except DataError as error:
            log.warning("%s; %s it again", error, doing)
            found = None
        if found is not None:
            return found
        with self.lock():
            if not self.sound():  # another process may have stored it while this one waited
                self.write(make())
        stored = self.read(verify=False)
        if stored is None:
            raise DataError(f"{self.folder} was removed while it was being read")
        return stored

    def checks(self) -> list[Check]:
        """Hash every array that can be read."""
        arrays: Arrays = {}
        for array in self.contents:
            with suppress(DataError):  # the check of an array that is not there says so
                arrays[array] = self._map(array)
        return hashes(arrays, self.contents)

    def write(self, arrays: Arrays) -> None:
        """Put arrays in place of what was there, all at once; hold the lock."""
        with _explained(), atomic_folder(self.folder) as temporary:
            for array, values in arrays.items():
                np.save(temporary / f"{array}.npy", values)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold off every other process that would write here; clear what a killed one left behind."""
        with _explained():
            root().mkdir(parents=True, exist_ok=True)
            guard = FileLock(root() / f"{self.name}.lock")
            try:
                guard.acquire(timeout=0)
            except Timeout:
                log.warning("waiting for another process that is fetching %s", self.name)
                guard.acquire()
        try:
            for stale in root().glob(f".{self.name}[.-]*"):
                shutil.rmtree(stale, ignore_errors=True)
            yield
        finally:
            guard.release()

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield a folder for downloads, on the disk that has room for the data set; it is gone afterwards."""
        with _explained():
            temporary = TemporaryDirectory(dir=root(), prefix=f".{self.name}-", ignore_cleanup_errors=True)
        with temporary:
            yield Path(temporary.name)

    def _map(self, array: str) -> NDArray[Any]:
        """Map one file copy-on-write: torch takes writable memory without complaint, and the file stays as it is."""
        try:
            values: NDArray[Any] = np.lib.format.open_memmap(self.folder / f"{array}.npy", mode="c")
        except Exception as error:  # numpy's reader has no closed list of what a damaged header raises
            raise DataError(f"{array}: {error}") from error
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
