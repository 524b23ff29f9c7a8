"""What is fuzzed: each target by its name, and what is expected of all of them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

__all__ = ["Change", "Target", "bounded"]

Change = Callable[[bytes], bytes]
"""A blind mutation: libFuzzer's own."""


@dataclass(frozen=True)
class Target:
    """Code that reads bytes from outside."""

    check: Callable[[bytes], bool]
    """Reads an input and returns whether it was accepted; an input that breaks a promise raises something."""
    seeds: Callable[[], Sequence[bytes]]
    """Inputs to begin with, which are all accepted."""
    words: Callable[[], Sequence[str]]
    """What blind mutations should write now and then."""
    mutate: Callable[[bytes, Random, Change], bytes]
    """A mutation that gets past the first checks more often than a blind one."""
    longest: int = 4096
    """Bytes of an input."""


@contextmanager
def bounded(fixed: int, each: int, size: int) -> Iterator[None]:
    """Fail if more memory is held at any time than ``fixed`` bytes and ``each`` for every byte of the input."""
    tracemalloc.start()
    try:
        yield
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        most = fixed + each * size
        assert peak <= most, f"{peak} bytes of memory for an input of {size}; expected: at most {most}"
