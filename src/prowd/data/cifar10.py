"""CIFAR-10 (Krizhevsky, 2009): 60,000 colour images in 10 classes, the same bytes whichever source they come from."""

from __future__ import annotations

import logging
from pathlib import Path

from prowd.data import cache
from prowd.data.archives import read_members
from prowd.data.cache import Arrays, Check, Entry, Expected
from prowd.data.dataset import Dataset, from_arrays
from prowd.data.formats import FILES, decode
from prowd.data.sources import Progress, silent, sources
from prowd.errors import DataError

__all__ = ["fetch", "load", "status", "verify"]

log = logging.getLogger(__name__)

NAME = "cifar10"
DESCRIPTION = "32×32 colour photographs, 10 classes: 50,000 to train, 10,000 to test"
LOCAL = Path("data")
CONTENTS = {
    "x_train": Expected((50000, 3, 32, 32), "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111"),
    "y_train": Expected((50000,), "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253"),
    "x_test": Expected((10000, 3, 32, 32), "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56"),
    "y_test": Expected((10000,), "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5"),
}


def load(*, progress: Progress | None = None, verify: bool = True) -> Dataset:
    """Load from the cache, fetching first what is missing or damaged."""
    arrays = _ensure(None, progress or silent, verify=verify)
    return from_arrays(**arrays, name=NAME)


def fetch(source: str | None = None, progress: Progress | None = None) -> Path:
    """Make sure that the data set is in the cache, sound, and say where; nothing is fetched twice."""
    _ensure(source, progress or silent, verify=True)
    return cache.folder(NAME)


def verify() -> list[Check]:
    """Hash what the cache holds."""
    if not cache.holds(NAME):
        raise DataError(f"{NAME} is not in {cache.root()}; fetch it with: prowd data fetch {NAME}")
    return cache.checks(NAME, CONTENTS)


def status() -> Entry:
    """Tell whether the data set is in the cache, by its shapes; ``verify`` looks closer."""
    try:
        cached = cache.read(NAME, CONTENTS, verify=False) is not None
    except DataError:
        cached = False
    return Entry(NAME, DESCRIPTION, cached, cache.folder(NAME), cache.size(CONTENTS))


def _ensure(source: str | None, progress: Progress, *, verify: bool) -> Arrays:
    """Read the cache, without its lock (it may be read-only) unless something must be stored."""
    try:
        arrays = cache.read(NAME, CONTENTS, verify=verify)
    except DataError as error:
        log.warning("%s; fetching it again", error)
        arrays = None
    if arrays is not None:
        return arrays
    with cache.lock(NAME):
        if not _sound():  # another process may have stored it while this one waited
            cache.store(NAME, _obtain(source, progress))
    stored = cache.read(NAME, CONTENTS, verify=False)
    if stored is None:
        raise DataError(f"{cache.folder(NAME)} was removed while it was being read")
    return stored


def _sound() -> bool:
    try:
        return cache.read(NAME, CONTENTS) is not None
    except DataError:
        return False


def _obtain(named: str | None, progress: Progress) -> Arrays:
    """Arrays from the first source that gives the right ones; every source's failure is told."""
    failures: list[str] = []
    for source in sources(named, (cache.root(), LOCAL)):
        try:
            with cache.scratch(NAME) as scratch:
                return _checked(source.obtain(scratch, progress), progress)
        except DataError as error:
            failures.append(f"({len(failures) + 1}) {source.label}: {error}")
    raise DataError(f"{NAME} could not be fetched: {'; '.join(failures)}")


def _checked(path: Path, progress: Progress) -> Arrays:
    progress("decoding", 0, None)
    arrays = decode(read_members(path, FILES), CONTENTS["x_train"].shape[1:])
    progress("checking", 0, None)
    for array, expected in CONTENTS.items():
        cache.check(array, arrays[array], expected)
    return arrays
