"""Frames of a link: how both sides find out where a message begins, and whether all of it has come.

Numbers are little-endian; docs/embedded.md says who sends what, and when::

    frame | magic "PRWL" | version u8 = 1 | kind u8 | number u16 | length u32 | payload | crc u32 |
          0              4                5         6            8            12        12 + length

The crc is CRC-32 of all before it. Whatever is between frames is skipped: the words of a boot loader, what is left of a
frame that was damaged. Memory is bounded by the longest frame that is accepted.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from prowd.wire.fields import crc32

__all__ = ["LONGEST_CHUNK", "MARGIN", "OVERHEAD", "Frame", "Frames", "Kind", "encode"]

MAGIC, VERSION = b"PRWL", 1
LONGEST_CHUNK = 4096  # bytes of a task or an update in one frame
MARGIN = 8  # bytes that a payload may have beside them
HEADER, CRC = struct.Struct("<4sBBHI"), struct.Struct("<I")
OVERHEAD = HEADER.size + CRC.size


class Kind(IntEnum):
    """What a frame is: a request of the gateway, or an answer of the device."""

    HELLO, PUT, RUN, GET = 1, 2, 3, 4
    I_AM, TAKEN, DONE, WORKING, DATA, REFUSED = 0x81, 0x82, 0x83, 0x84, 0x85, 0x8F


class Frame(NamedTuple):
    """One frame; the number of an answer is that of its request."""

    kind: int
    number: int
    payload: bytes = b""


def encode(frame: Frame) -> bytes:
    """A frame as bytes."""
    sent = HEADER.pack(MAGIC, VERSION, frame.kind, frame.number, len(frame.payload)) + frame.payload
    return sent + CRC.pack(crc32(sent))


class Frames:
    """Finds frames among the bytes that come in."""

    def __init__(self, longest: int = LONGEST_CHUNK + MARGIN) -> None:
        self.longest = longest
        """Bytes of a payload; what claims to be longer is no frame."""
        self.skipped = 0
        """Bytes so far that were part of no frame."""
        self._kept = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes in; return the frames that they complete."""
        self._kept += data
        return self._scan(0)

    def give_up(self) -> list[Frame]:
        """Take what has begun and does not end for no frame; return what is whole after its beginning."""
        self.skipped += min(1, len(self._kept))
        return self._scan(min(1, len(self._kept)))

    def _scan(self, at: int) -> list[Frame]:
        found = list[Frame]()
        while True:
            start = self._kept.find(MAGIC, at)
            if start < 0:  # its first letters may have come already
                start = max(at, len(self._kept) - len(MAGIC) + 1)
            self.skipped += start - at
            at = start
            if len(self._kept) - at < OVERHEAD:
                break
            _, version, kind, number, length = HEADER.unpack_from(self._kept, at)
            end = at + OVERHEAD + length
            if version == VERSION and length <= self.longest:
                if len(self._kept) < end:
                    break
                whole = bytes(self._kept[at:end])
                if crc32(whole[: -CRC.size]) == CRC.unpack(whole[-CRC.size :])[0]:
                    found.append(Frame(kind, number, whole[HEADER.size : -CRC.size]))
                    at = end
                    continue
            self.skipped += 1
            at += 1
        del self._kept[:at]
        return found
