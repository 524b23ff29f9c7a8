"""Packing by hand: every expected byte below is worked out from the drawing in wire.packing, not from the code."""

from __future__ import annotations

import numpy as np
import pytest

from prowd.errors import WireError
from prowd.numbers.bits import FLOAT32, INT2, Bitwidth
from prowd.wire.packing import CHUNK, Array, pack, packed_size, unpack

INTEGERS = [Bitwidth(bits) for bits in range(2, 17)]


def int16(*codes: int) -> Array:
    return np.array(codes, np.int16)


@pytest.mark.parametrize(
    ("width", "codes", "packed"),
    [
        (INT2, int16(-1, -1, -1, -1, -1), bytes([0])),
        (INT2, int16(1, 1, 1, 1, 1), bytes([242])),
        (INT2, int16(0, -1, 1), bytes([1 + 0 * 3 + 2 * 9])),
        (INT2, int16(-1, -1, -1, -1, 0, 1), bytes([81, 2])),
        (Bitwidth(3), int16(-3, -2, 3), bytes([0b10_001_000, 0b1])),  # u = 0, 1, 6
        (Bitwidth(4), int16(-7, 7, 0), bytes([0xE0, 0x07])),  # u = 0, 14, 7
        (Bitwidth(6), int16(-31, -30, 31, 0), bytes([0b01_000000, 0b1110_0000, 0b011111_11])),  # u = 0, 1, 62, 31
        (Bitwidth(8), int16(-127, 0, 127), bytes([0, 127, 254])),
        (Bitwidth(12), int16(-2047, 2047), bytes([0x00, 0xE0, 0xFF])),  # u = 0, 0xFFE
        (Bitwidth(16), int16(-32767, 0, 32767), bytes([0, 0, 0xFF, 0x7F, 0xFE, 0xFF])),
        (FLOAT32, np.array([1.0, -2.0], np.float32), bytes.fromhex("0000803f000000c0")),
    ],
)
def test_packed_bytes_follow_the_drawing(width: Bitwidth, codes: Array, packed: bytes) -> None:
    assert pack(codes, width) == packed
    assert unpack(packed, width, codes.size).tolist() == codes.tolist()


@pytest.mark.parametrize("width", [*INTEGERS, FLOAT32], ids=str)
def test_empty(width: Bitwidth) -> None:
    codes = np.empty(0, np.float32 if width.is_float else np.int16)
    assert pack(codes, width) == b""
    assert unpack(b"", width, 0).dtype == codes.dtype


@pytest.mark.parametrize("width", INTEGERS, ids=str)
@pytest.mark.parametrize("count", [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
def test_chunks_join_without_a_seam(width: Bitwidth, count: int) -> None:
    codes = (np.arange(count) % width.levels - width.max_code).astype(np.int16)
    packed = pack(codes, width)
    assert len(packed) == packed_size(count, width)
    assert np.array_equal(unpack(packed, width, count), codes)
    assert packed[: packed_size(40, width)] == pack(codes[:40], width)
    if count > CHUNK:
        assert packed[packed_size(CHUNK, width) :] == pack(codes[CHUNK:], width)


def test_packed_size_is_exact_beyond_64_bits() -> None:
    assert packed_size(2**70, Bitwidth(16)) == 2**71
    assert packed_size(5 * 2**70 + 1, INT2) == 2**70 + 1
    assert packed_size(3, Bitwidth(3)) == 2
    assert packed_size(3, FLOAT32) == 12


@pytest.mark.parametrize("width", INTEGERS, ids=str)
@pytest.mark.parametrize("sign", [-1, 1])
def test_codes_out_of_range_are_not_packed(width: Bitwidth, sign: int) -> None:
    code = sign * width.steps
    if code <= 32767:
        with pytest.raises(WireError, match=f"accepted: ±{width.max_code} for {width}"):
            pack(int16(0, code, 0), width)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_floats_that_are_not_finite_can_be_sent_but_not_received(value: float) -> None:
    packed = pack(np.array([0.0, value], np.float32), FLOAT32)
    with pytest.raises(WireError, match="value 1 is"):
        unpack(packed, FLOAT32, 2)


def test_negative_zero_and_denormals_survive() -> None:
    values = np.array([-0.0, 1e-45, -1e-40, np.finfo(np.float32).max], np.float32)
    assert unpack(pack(values, FLOAT32), FLOAT32, 4).tobytes() == values.tobytes()


@pytest.mark.parametrize("width", INTEGERS[1:], ids=str)
def test_the_spare_pattern_is_refused(width: Bitwidth) -> None:
    packed = (2**width.bits - 1 << width.bits).to_bytes(packed_size(2, width), "little")
    with pytest.raises(WireError, match=f"code 1 is no number of {width}"):
        unpack(packed, width, 2)


@pytest.mark.parametrize("byte", [243, 255])
def test_base_3_ends_at_242(byte: int) -> None:
    with pytest.raises(WireError, match="code 5 is no number of int2"):
        unpack(bytes([242, byte]), INT2, 10)
    with pytest.raises(WireError, match="int2"):
        unpack(bytes([byte]), INT2, 1)


def test_a_bad_code_is_found_in_a_later_chunk() -> None:
    packed = bytearray(packed_size(CHUNK + 10, Bitwidth(8)))
    packed[CHUNK + 7] = 255
    with pytest.raises(WireError, match=f"code {CHUNK + 7} is"):
        unpack(bytes(packed), Bitwidth(8), CHUNK + 10)


@pytest.mark.parametrize("width", INTEGERS, ids=str)
def test_padding_is_zero(width: Bitwidth) -> None:
    for count in range(1, 9):
        packed = bytearray(pack(np.full(count, -width.max_code, np.int16), width))
        padding = (-count % 5) if width == INT2 else -count * width.bits % 8
        packed[-1] += 81 if width == INT2 else 128
        if padding:
            with pytest.raises(WireError, match=f"padding after code {count - 1}, the last"):
                unpack(bytes(packed), width, count)


@pytest.mark.parametrize("width", [INT2, Bitwidth(5), FLOAT32], ids=str)
@pytest.mark.parametrize("change", [-1, 1])
def test_length_is_exact(width: Bitwidth, change: int) -> None:
    with pytest.raises(WireError, match=f"for 7 codes of {width}"):
        unpack(bytes(packed_size(7, width) + change), width, 7)
