"""The process that fuzzes: started by fuzz/__main__.py with a target and libFuzzer's own arguments, and ended by it."""

from __future__ import annotations

import sys
from random import Random

import atheris

with atheris.instrument_imports(include=["prowd"]):  # first of all: what is imported before is not covered
    from fuzz.catalogue import TARGETS
    from fuzz.configurations import quicken


def main() -> None:
    """Fuzz; it does not return."""
    target = TARGETS[sys.argv.pop(1)]

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        found = target.mutate(data, Random(seed), lambda data: bytes(atheris.Mutate(data, most)))
        return found if len(found) <= most else bytes(atheris.Mutate(data, most))

    def check(data: bytes) -> None:
        target.check(data)

    quicken()
    atheris.Setup(sys.argv, check, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
