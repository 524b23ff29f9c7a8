"""What methods' integer clients send, against the oracle in Python integers."""

from __future__ import annotations

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prowd.methods.movement import best_ternary, largest_scale, movement
from prowd.numbers.bits import INT2, Bitwidth
from prowd.numbers.quantize import QTensor
from prowd.numbers.streams import Stream
from tests.reference import integer_numbers as oracle

WIDTHS = st.sampled_from([Bitwidth(bits) for bits in range(2, 17)])
some = settings(deadline=None, max_examples=150)


@st.composite
def ways(draw: st.DrawFn) -> tuple[Bitwidth, list[int], list[int]]:
    """A width, the codes that a client received and those that it made of them."""
    width = draw(WIDTHS)
    codes = st.integers(-width.max_code, width.max_code)
    near = st.integers(0, 16).flatmap(lambda bits: st.integers(-(2**bits), 2**bits))
    received = draw(st.lists(codes, min_size=1, max_size=20))
    moved = [draw(near) for _ in received]
    trained = [oracle.clip(code + by, width.bits) for code, by in zip(received, moved, strict=True)]
    return width, received, trained


def tensor(codes: list[int], width: Bitwidth) -> QTensor:
    return QTensor(torch.tensor(codes, dtype=torch.int16), width)


@some
@given(ways(), WIDTHS, st.integers(0, 2**64 - 1), st.integers(0, 9))
@example((Bitwidth(16), [-32767, 5], [32767, 5]), INT2, 0, 0)
def test_movements_are_the_oracle_s(
    way: tuple[Bitwidth, list[int], list[int]], target: Bitwidth, seed: int, number: int
) -> None:
    width, received, trained = way
    sent = movement(tensor(trained, width), tensor(received, width), target, Stream.of(seed, "movement"), number)
    key = oracle.stream_key(seed, "movement")
    words = [oracle.word(key, 0, number, index) for index in range(len(received))]
    codes, exponent = oracle.movement(trained, received, target.max_code, words)
    assert sent.codes.dtype == torch.int16
    assert sent.codes.tolist() == codes
    assert sent.width == target
    assert sent.scale == 2.0**exponent * target.steps / width.steps
    assert max(map(abs, codes)) <= target.max_code
    assert target > width or sent.scale <= (largest_scale(target) or 0)  # nobody sends in more bits than it has


@some
@given(ways())
def test_three_levels_are_the_oracle_s(way: tuple[Bitwidth, list[int], list[int]]) -> None:
    width, received, trained = way
    moved = [a - b for a, b in zip(trained, received, strict=True)]
    codes, (mantissa, exponent) = oracle.three_levels(moved, width.bits)
    for dtype in (torch.int64, torch.float64):
        sent = best_ternary(torch.tensor(moved, dtype=dtype), width)
        assert sent.width == INT2
        assert sent.codes.tolist() == codes
        assert not any(moved) or sent.scale == mantissa * 2.0**exponent * INT2.steps / width.steps


@some
@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), WIDTHS)
def test_of_thresholds_as_good_the_smallest_is_taken(sizes: list[int], width: Bitwidth) -> None:
    """Small numbers make many ties."""
    codes, _ = oracle.three_levels(sizes, width.bits)
    assert best_ternary(torch.tensor(sizes), width).codes.tolist() == codes


def test_a_tie_by_hand() -> None:
    """Of 1, 1, 1 and 3 one may keep all, 36/4, or the last, 9/1; of 1, 1 and 3 the last is better than 25/3."""
    assert best_ternary(torch.tensor([1, -1, 1, 3]), Bitwidth(8)).codes.tolist() == [1, -1, 1, 1]
    assert best_ternary(torch.tensor([1, 1, -3]), Bitwidth(8)).codes.tolist() == [0, 0, -1]
