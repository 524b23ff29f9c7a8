"""What a task tells a device to do, in numbers that need no float of it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from prowd.errors import WireError
from prowd.numbers.quantize import Rate
from prowd.wire.fields import Reader, unsigned

__all__ = ["Work", "decode_work", "encode_work"]

LAYOUT = struct.Struct("<IIQhQ")
EXPONENT_BITS = 16
ONE = Rate(1, 0)


@dataclass(frozen=True)
class Work:
    """How a device is to train."""

    steps: int = 0
    batch: int = 0
    rate: Rate = ONE
    """An integer device's η in least-significant steps; a factor of the learning rates of a Float32 device."""
    network: int = 0
    """The first 64 bits of a hash of the architecture."""


def encode_work(work: Work) -> bytes:
    """Work as its fields."""
    steps, batch = unsigned("steps", work.steps, 32), unsigned("batch", work.batch, 32)
    mantissa, exponent = unsigned("mantissa of the rate", work.rate.mantissa, 64), work.rate.exponent
    half = 2 ** (EXPONENT_BITS - 1)
    if mantissa % 2 == 0 or not (isinstance(exponent, int) and -half <= exponent < half):
        raise WireError(f"rate is {work.rate}; accepted: an odd mantissa, an exponent from {-half} to {half - 1}")
    return LAYOUT.pack(steps, batch, mantissa, exponent, unsigned("network", work.network, 64))


def decode_work(head: Reader) -> Work:
    """Take the fields of work."""
    steps, batch, mantissa, exponent, network = head.unpack(LAYOUT)
    if mantissa % 2 == 0:
        raise WireError(f"head before byte {head.at}: mantissa of the rate is {mantissa}; accepted: odd numbers")
    return Work(steps, batch, Rate(mantissa, exponent), network)
