"""Frames among bytes of all sorts."""

from __future__ import annotations

import struct
import zlib

from hypothesis import given
from hypothesis import strategies as st

from prowd.link.frames import LONGEST_CHUNK, MARGIN, Frame, Frames, Kind, encode

FRAMES = st.builds(Frame, st.integers(0, 255), st.integers(0, 65535), st.binary(max_size=80))


def test_a_frame_is_as_the_page_says() -> None:
    expected = b"PRWL\x01\x02" + struct.pack("<HI", 7, 3) + b"abc"
    assert encode(Frame(Kind.PUT, 7, b"abc")) == expected + struct.pack("<I", zlib.crc32(expected))


@given(st.lists(FRAMES, max_size=5), st.integers(1, 40))
def test_frames_come_out_however_they_are_cut(sent: list[Frame], size: int) -> None:
    data, reader = b"".join(map(encode, sent)), Frames()
    found = [frame for at in range(0, len(data), size) for frame in reader.feed(data[at : at + size])]
    assert found == sent
    assert reader.skipped == 0


@given(st.lists(st.tuples(st.binary(max_size=30).filter(lambda junk: b"P" not in junk), FRAMES), max_size=5))
def test_what_is_between_frames_is_skipped(parts: list[tuple[bytes, Frame]]) -> None:
    reader = Frames()
    assert reader.feed(b"".join(junk + encode(frame) for junk, frame in parts)) == [frame for _, frame in parts]
    assert reader.skipped == sum(len(junk) for junk, _ in parts)


@given(FRAMES, st.data())
def test_a_damaged_frame_is_none_and_the_next_one_is_found(frame: Frame, data: st.DataObject) -> None:
    sent = bytearray(encode(frame))
    at = data.draw(st.integers(0, len(sent) - 1))
    sent[at] ^= data.draw(st.integers(1, 255))
    good, reader = Frame(Kind.DONE, 3, b"good"), Frames()
    found = reader.feed(bytes(sent) + encode(good))
    for _ in range((LONGEST_CHUNK + MARGIN) // len(encode(good)) + 2):  # a length that grew waits for what is missing
        found += reader.feed(encode(good))
    assert frame not in found or frame == good
    assert found[-1] == good


@given(st.binary(max_size=2000))
def test_rubbish_is_never_kept_beyond_the_longest_frame(junk: bytes) -> None:
    reader = Frames(longest=20)
    assert not reader.feed(junk * 3) or b"PRWL" in junk * 3
    reader.feed(b"\0" * 64)
    assert reader.feed(encode(Frame(Kind.GET, 1, b""))) == [Frame(Kind.GET, 1, b"")]
    assert reader.skipped == 3 * len(junk) + 64 or b"PRWL" in junk * 3


def test_what_claims_to_be_too_long_or_of_another_version_is_no_frame() -> None:
    reader, good = Frames(longest=20), encode(Frame(Kind.GET, 1))
    assert reader.feed(encode(Frame(Kind.GET, 1, bytes(21))) + good) == [Frame(Kind.GET, 1)]
    assert reader.feed(good[:4] + b"\2" + good[5:] + good) == [Frame(Kind.GET, 1)]
    assert reader.skipped == 37 + 16


def test_a_length_that_is_not_true_is_given_up() -> None:
    good, reader = Frame(Kind.GET, 1, b"four"), Frames()
    grown = bytearray(encode(good))
    grown[9] ^= 4
    assert reader.feed(bytes(grown) + encode(good)) == []
    assert reader.give_up() == [good]
    assert (reader.skipped, reader.give_up()) == (len(grown), [])
