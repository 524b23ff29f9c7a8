"""Damaged messages made right again as a hostile sender would, so that the damage is found inside and not at the door.

Written from the drawing in prowd.wire and without its checks.
"""

from __future__ import annotations

import math
import struct
import zlib
from random import Random

from fuzz.targets import Change
from prowd.errors import ConfigError
from prowd.numbers.bits import Bitwidth
from prowd.wire.packing import packed_size

__all__ = ["fill", "mutate", "seal"]

START, BODY = 24, 6  # bytes of the header with its crc, and of a body before its rows
ROOM = 2**16  # no payload is filled up to more


def seal(kind: int, data: bytes) -> bytes:
    """Make the header and both checksums right; the head stays as long as declared, if there is so much."""
    data = data.ljust(START, b"\0")
    size = min(int.from_bytes(data[8:12], "little"), len(data) - START)
    head, body = data[START : START + size], data[START + size :]
    if len(body) >= 4:
        body = struct.pack("<I", zlib.crc32(body[4:])) + body[4:]
    header = struct.pack("<4sBBHIQ", b"PRWD", 2, kind, 0, len(head), len(body))
    return header + struct.pack("<I", zlib.crc32(header + head)) + head + body


def mutate(kind: int, data: bytes, random: Random, change: Change) -> bytes:
    """Change a message blindly; then mostly seal it, and half the time fill its payloads up first."""
    data, way = change(data), random.randrange(8)
    if way == 0:
        return data
    return seal(kind, fill(data) if way < 5 else data)


def fill(data: bytes) -> bytes:
    """Give every row the payload that its shape needs, cut off or filled up with zeros, as long as that is possible."""
    start = START + int.from_bytes(data[8:12], "little")
    rows, at, needed = bytearray(data), start + BODY, 0
    for _ in range(int.from_bytes(data[start + 4 : at], "little")):
        form = at + 1 + rows[at] if at < len(rows) else len(rows)  # behind the name
        if form + 2 > len(rows):
            break
        end = form + 2 + 4 * rows[form + 1] + 16
        size = implied(bytes(rows[form : end - 16]))
        if end > len(rows) or size is None:
            return data
        rows[end - 8 : end] = size.to_bytes(8, "little")
        at, needed = end, needed + size
    return bytes(rows[:at] + rows[at : at + needed].ljust(min(needed, ROOM), b"\0"))


def implied(form: bytes) -> int | None:
    """Bytes of the payload that a row's width, rank and dimensions ask for; None if there is no such payload."""
    rank = form[1]
    if len(form) != 2 + 4 * rank:
        return None
    try:
        size = packed_size(math.prod(struct.unpack_from(f"<{rank}I", form, 2)), Bitwidth(form[0]))
    except ConfigError:
        return None
    return size if size <= ROOM else None
