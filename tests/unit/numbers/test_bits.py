"""Bitwidths, ladders and client mixes."""

from __future__ import annotations

import re

import pytest

from prowd.errors import ConfigError
from prowd.numbers.bits import FLOAT32, INT2, Bitwidth, parse_mix

ACCEPTED = "accepted: int2 to int16, or float32"


@pytest.mark.parametrize("bits", range(2, 17))
def test_every_integer_width(bits: int) -> None:
    width = Bitwidth.parse(f"int{bits}")
    assert width == Bitwidth(bits)
    assert str(width) == f"int{bits}"
    assert not width.is_float
    assert (width.steps, width.max_code, width.levels) == (2 ** (bits - 1), 2 ** (bits - 1) - 1, 2**bits - 1)


def test_float32() -> None:
    assert Bitwidth.parse("float32") == FLOAT32 == Bitwidth(32)
    assert str(FLOAT32) == "float32"
    assert FLOAT32.is_float
    with pytest.raises(ValueError, match="float32 has no fixed-point step"):
        _ = FLOAT32.steps


@pytest.mark.parametrize(
    ("text", "width"),
    [(" int8 ", "int8"), ("INT8", "int8"), ("Float32\n", "float32"), ("int08", "int8"), ("int02", "int2")],
)
def test_case_space_and_a_leading_zero_do_not_matter(text: str, width: str) -> None:
    """``int08`` lines up columns of widths and can mean one thing only; it is read as ``int8`` and written so."""
    assert str(Bitwidth.parse(text)) == width


@pytest.mark.parametrize(
    "text",
    ["", "int", "int1", "int17", "int008", "int-8", "int8.0", "int 8", "8", "uint8", "float16", "int８", "int1_0"],
)
def test_errors_name_the_value_and_what_is_accepted(text: str) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(repr(text))}.*{ACCEPTED}"):
        Bitwidth.parse(text)


@pytest.mark.parametrize("bits", [-8, 0, 1, 17, 31, 33, 64])
def test_unsupported_number_of_bits(bits: int) -> None:
    with pytest.raises(ConfigError, match=f"{bits} bits.*{ACCEPTED}"):
        Bitwidth(bits)


def test_widths_sort_by_bits_and_are_hashable() -> None:
    assert sorted([FLOAT32, Bitwidth(8), INT2]) == [INT2, Bitwidth(8), FLOAT32]
    assert len({Bitwidth(8), Bitwidth(8), FLOAT32}) == 2


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("int8:2", [8, 8]),
        ("int8:2, float32:1", [8, 8, 32]),
        ("  int8 : 1 ,\tFLOAT32:2\n", [8, 32, 32]),
        ("float32:1,int6:1", [32, 6]),
        ("int8:1,int6:1,int8:2", [8, 6, 8, 8]),
        ("int8:001", [8]),
    ],
)
def test_mix_keeps_the_order_and_repeated_groups(text: str, bits: list[int]) -> None:
    assert [width.bits for width in parse_mix(text)] == bits


@pytest.mark.parametrize(
    ("text", "named"),
    [
        *((text, text) for text in ("", ",", "int8:1,", "int8", "int8:", ":3", "int8=3", "int8:1;int6:1", "int8:-1")),
        *((text, text) for text in ("int8:1.5", "int8:1:1", "int8:0", "int8:1000001", "int8:999999999")),
        ("int8:3, int6:0", "int6:0"),
        ("int8:1000000, int6:1", "int6:1"),
        ("int17:3", "int17"),
        ("int8:2,float16:1", "float16"),
        ("8:3", "8"),
    ],
)
def test_what_is_wrong_in_a_mix_is_named(text: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_mix(text)
    assert str(caught.value).startswith("clients: ")
    assert repr(named) in str(caught.value)
    assert "accepted: " in str(caught.value)


def test_the_largest_federation() -> None:
    assert len(parse_mix("int8:999999, int6:1")) == 1_000_000
