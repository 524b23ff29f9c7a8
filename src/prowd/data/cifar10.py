"""CIFAR-10 (Krizhevsky, 2009): 60,000 colour images in 10 classes, the same bytes whichever source they come from."""

from __future__ import annotations

from pathlib import Path

from prowd.data.archives import read_members
from prowd.data.cache import Arrays, Check, Entry, Expected, Store, check, root
from prowd.data.formats import FILES, decode
from prowd.data.sources import Progress, sources
from prowd.errors import DataError

__all__ = ["arrays", "status", "verify"]

NAME = "cifar10"
DESCRIPTION = "32×32 colour photographs, 10 classes: 50,000 to train, 10,000 to test"
LOCAL = Path("data")
CONTENTS = {
    "x_train": Expected((50000, 3, 32, 32), "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111"),
    "y_train": Expected((50000,), "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253"),
    "x_test": Expected((10000, 3, 32, 32), "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56"),
    "y_test": Expected((10000,), "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5"),
}
STORE = Store(NAME, CONTENTS)


def arrays(source: str | None, progress: Progress, *, verify: bool) -> Arrays:
    """Read the cache, which may be read-only; fetch what is missing or damaged there."""
    return STORE.ensured(lambda: _obtain(source, progress), "fetching", verify=verify)


def verify() -> list[Check]:
    """Hash what the cache holds."""
    if not STORE.holds():
        raise DataError(f"{NAME} is not in {root()}; fetch it with: prowd data fetch {NAME}")
    return STORE.checks()


def status() -> Entry:
    """Tell whether it is in the cache, by its shapes; ``verify`` looks closer."""
    return Entry(NAME, DESCRIPTION, STORE.sound(verify=False), STORE.folder, STORE.contents)


def _obtain(named: str | None, progress: Progress) -> Arrays:
    """Arrays from the first source that gives the right ones; the error names every source's failure."""
    failures: list[str] = []
    for label, obtain in sources(named, (root(), LOCAL)).items():
        try:
            with STORE.scratch() as scratch:
                path = obtain(scratch, progress)
                progress("decoding", 0, None)
                found = decode(read_members(path, FILES), STORE.contents["x_train"].shape[1:])
                progress("checking", 0, None)
                check(found, STORE.contents)
                return found
        except DataError as error:
            failures.append(f"({len(failures) + 1}) {label}: {error}")
    raise DataError(f"{NAME} could not be fetched: {'; '.join(failures)}")
