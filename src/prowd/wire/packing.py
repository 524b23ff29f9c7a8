"""Codes as bits: the payload of one tensor, at its own width and not a bit more.

Integer codes of width s are written in offset binary, u = c + (S−1), in [0, 2S−2]. Eight codes make s whole bytes::

    int6    byte  0        1        2        3        4        5
            bit   01234567 01234567 01234567 01234567 01234567 01234567     least significant bit first
            code  00000011 11112222 22333333 44444455 55556666 66777777     the code a bit belongs to

    int2    five codes a byte in base 3:  u0 + 3·u1 + 9·u2 + 27·u3 + 81·u4  <= 242        (1.6 bits a code)

    float32 the IEEE bits, least significant byte first

There is one encoding of every tensor: pattern 2^s − 1 (a byte above 242 in base 3) stands for nothing, what is left of
the last byte is zero, and floats are finite. All else is refused on receipt; sent may be a float that is not finite,
by a client whose training diverged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from prowd.errors import WireError
from prowd.numbers.bits import INT2, Bitwidth

__all__ = ["pack", "packed_size", "unpack"]

Array = NDArray[Any]
Bytes = NDArray[np.uint8]

GROUP = 8  # codes that fill whole bytes at any width
TRITS = 5  # base-3 digits a byte
CHUNK = GROUP * TRITS * 4096  # codes at a time: temporaries stay small, and in the cache


def packed_size(count: int, width: Bitwidth) -> int:
    """Bytes that ``count`` codes take; exact for any Python integer, so that it can be asked before allocating."""
    if width == INT2:
        return -(-count // TRITS)
    return -(-count * width.bits // 8)


def pack(codes: Array, width: Bitwidth) -> bytes:
    """Pack a flat array: int16 codes of an integer width, or float32 values."""
    if width.is_float:
        return codes.astype("<f4", copy=False).tobytes()
    if codes.size:
        _check_codes(int(codes.min()), int(codes.max()), width)
    encode = _trits if width == INT2 else _bits
    return b"".join(encode(codes[at : at + CHUNK], width).tobytes() for at in range(0, codes.size, CHUNK))


def unpack(payload: bytes | memoryview, width: Bitwidth, count: int) -> Array:
    """Inverse of ``pack`` for ``count`` codes: accepts what ``pack`` writes, and of floats only the finite ones."""
    size = packed_size(count, width)
    if len(payload) != size:
        raise WireError(f"{len(payload)} bytes of codes; accepted: {size} for {count} codes of {width}")
    if width.is_float:
        values = np.frombuffer(payload, "<f4", count).astype(np.float32) if count else np.empty(0, np.float32)
        _check_finite(values)
        return values
    codes = np.empty(count, np.int16)
    decode = _from_trits if width == INT2 else _from_bits
    for at in range(0, count, CHUNK):
        part = codes[at : at + CHUNK]
        packed = np.frombuffer(payload, np.uint8, packed_size(part.size, width), packed_size(at, width))
        offsets = decode(packed, width)
        _check_offsets(offsets, part.size, width, at)
        np.subtract(offsets[: part.size], np.uint16(width.max_code), out=part.view(np.uint16))
    return codes


def _check_finite(values: Array) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        at = int(finite.argmin())
        raise WireError(f"value {at} is {values[at]}; accepted: finite numbers")


def _check_codes(lowest: int, highest: int, width: Bitwidth) -> None:
    if lowest < -width.max_code or highest > width.max_code:
        raise WireError(f"codes {lowest} to {highest}; accepted: ±{width.max_code} for {width}")


def _check_offsets(offsets: Array, count: int, width: Bitwidth, at: int) -> None:
    """Refuse the pattern that stands for no code, and padding that is not zero; ``at`` is the first code's place."""
    worst = int(offsets[:count].argmax())
    if offsets[worst] > 2 * width.max_code:
        raise WireError(f"code {at + worst} is no number of {width}: its bits stand for nothing")
    if offsets[count:].any():
        raise WireError(f"padding after code {at + count - 1}, the last, is not zero")


def _offsets(codes: Array, width: Bitwidth, multiple: int) -> Array:
    """Return u = c + (S−1), with zeros up to a multiple of ``multiple``, one row for each."""
    offsets = np.zeros(-(-codes.size // multiple) * multiple, np.uint16)
    # Unsigned arithmetic modulo 2^16: the sum is right although c alone is not.
    np.add(codes.view(np.uint16), np.uint16(width.max_code), out=offsets[: codes.size])
    return offsets.reshape(-1, multiple)


def _spans(bits: int) -> list[tuple[int, int, int]]:
    """For each code of a group: its first byte, its bit in that byte, and how many bytes (1 to 3) it touches."""
    places = [divmod(lane * bits, 8) for lane in range(GROUP)]
    return [(first, shift, -(-(shift + bits) // 8)) for first, shift in places]


def _bits(codes: Array, width: Bitwidth) -> Bytes:
    lanes = _offsets(codes, width, GROUP)
    rows = np.zeros((len(lanes), width.bits), np.uint8)
    for lane, (first, shift, touched) in enumerate(_spans(width.bits)):
        value = lanes[:, lane].astype(np.uint32) << shift
        for k in range(touched):
            rows[:, first + k] |= (value >> 8 * k).astype(np.uint8)
    return rows.reshape(-1)[: packed_size(codes.size, width)]


def _from_bits(packed: Bytes, width: Bitwidth) -> Array:
    rows = _rows(packed, width.bits)
    lanes = np.empty((len(rows), GROUP), np.uint16)
    for lane, (first, shift, touched) in enumerate(_spans(width.bits)):
        value = rows[:, first].astype(np.uint32)
        for k in range(1, touched):
            value |= rows[:, first + k].astype(np.uint32) << 8 * k
        lanes[:, lane] = value >> shift & 2**width.bits - 1
    return lanes.reshape(-1)


def _rows(packed: Bytes, size: int) -> Bytes:
    """Rows of ``size`` bytes; the last is filled with zeros."""
    missing = -packed.size % size
    return (np.concatenate([packed, np.zeros(missing, np.uint8)]) if missing else packed).reshape(-1, size)


def _trits(codes: Array, width: Bitwidth) -> Bytes:
    digits = _offsets(codes, width, TRITS).astype(np.uint8)
    total = digits[:, TRITS - 1].copy()
    for place in reversed(range(TRITS - 1)):
        total *= 3
        total += digits[:, place]
    return total


_DIGITS = (np.arange(256)[:, None] // 3 ** np.arange(TRITS) % 3).astype(np.uint16)
"""The five digits of every byte, least significant first; 243 and above are no five digits, and get a digit 3."""
_DIGITS[3**TRITS :] = 3


def _from_trits(packed: Bytes, _: Bitwidth) -> Array:
    return _DIGITS[packed].reshape(-1)
