"""Fields of a binary message: read with every length checked, written with every value checked."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any

from prowd.errors import WireError

__all__ = ["COUNT", "Reader", "crc32", "encode_count", "encode_name", "finite", "number", "unsigned", "within"]

MAX_NAME = 255
COUNT = struct.Struct("<H")


class Reader:
    """Takes fields off bytes ``at`` to ``stop`` of a message, and none beyond."""

    def __init__(self, message: memoryview, at: int, stop: int) -> None:
        self.message, self.at, self.stop = message, at, stop

    def rest(self) -> memoryview:
        """Everything not yet taken."""
        return self.message[self.at : self.stop]

    def take(self, size: int) -> memoryview:
        """The next ``size`` bytes."""
        if size > self.stop - self.at:
            raise WireError(f"byte {self.at}: {size} more bytes expected, {self.stop - self.at} are left")
        self.at += size
        return self.message[self.at - size : self.at]

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next fields of a fixed layout."""
        return layout.unpack(self.take(layout.size))

    def count(self, most: int) -> int:
        """A number of entries, at most ``most``."""
        (count,) = self.unpack(COUNT)
        if count > most:
            raise WireError(f"byte {self.at - COUNT.size}: {count} entries; accepted: up to {most}")
        return int(count)

    def name(self, taken: Container[str]) -> str:
        """A name that is not taken yet."""
        at, size = self.at, self.take(1)[0]
        try:
            name = str(self.take(size), "utf-8")
        except UnicodeDecodeError as error:
            raise WireError(f"byte {at}: name is not UTF-8: {error.reason}") from None
        if not name or name in taken:
            raise WireError(f"byte {at}: name {name!r}; accepted: not empty, and not twice")
        return name


def encode_name(name: str) -> bytes:
    """A name as its length and UTF-8."""
    try:
        data = name.encode()
    except UnicodeEncodeError as error:
        raise WireError(f"name {name!r} is not Unicode text: {error.reason}") from None
    if not 1 <= len(data) <= MAX_NAME:
        raise WireError(f"name {name!r} takes {len(data)} bytes; accepted: 1 to {MAX_NAME}")
    return bytes([len(data)]) + data


def encode_count(what: str, count: int, most: int) -> bytes:
    """A number of entries, at most ``most``."""
    if count > most:
        raise WireError(f"{count} {what}; accepted: up to {most}")
    return COUNT.pack(count)


def unsigned(what: str, value: int, bits: int) -> int:
    """Return the value if it fits an unsigned field."""
    if not (isinstance(value, int) and 0 <= value < 2**bits):
        raise WireError(f"{what} is {value!r}; accepted: whole numbers from 0 to {2**bits - 1}")
    return value


def number(what: str, value: float) -> float:
    """Return a float that equals the value, which an integer above 2^53 may not have. NaN and infinities pass."""
    if not isinstance(value, int | float) or (isinstance(value, int) and int(_double(value)) != value):
        raise WireError(f"{what} is {value!r}; accepted: numbers that a double holds")
    return float(value)


def finite(what: str, value: float) -> float:
    """Return the value as a float if it is a finite number."""
    if not math.isfinite(number(what, value)):
        raise WireError(f"{what} is {value!r}; accepted: finite numbers")
    return float(value)


def _double(value: int) -> float:
    return float(value) if abs(value) < 2**1023 else 0.0


def crc32(*parts: bytes | memoryview) -> int:
    """CRC-32 of the parts joined."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc


@contextmanager
def within(where: str) -> Iterator[None]:
    """Say where an error is."""
    try:
        yield
    except WireError as error:
        raise WireError(f"{where}: {error}") from None
