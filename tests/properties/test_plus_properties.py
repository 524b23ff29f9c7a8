"""What holds of three-level movements, against a slow obvious way."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prowd.methods.movement import best_ternary, largest_scale
from prowd.numbers.bits import INT2, Bitwidth

WIDTHS = st.sampled_from([Bitwidth(bits) for bits in (3, 4, 6, 8, 12, 16)])
INT8 = Bitwidth(8)
some = settings(deadline=None, max_examples=60)


def squares(moved: Tensor, codes: Tensor) -> float:
    """The least squared error with these signs, whatever their level."""
    level = float((moved * codes).sum() / codes.abs().sum()) if codes.any() else 0.0
    return float((moved - level * codes).square().sum())


def best(moved: Tensor) -> float:
    """The same over all signs, one after the other."""
    every = product((-1.0, 0.0, 1.0), repeat=len(moved))
    return min(squares(moved, torch.tensor(codes, dtype=torch.float64)) for codes in every)


@some
@given(st.lists(st.integers(-300, 300), min_size=1, max_size=6), WIDTHS)
def test_no_signs_say_more(steps: list[int], width: Bitwidth) -> None:
    moved = torch.tensor(steps, dtype=torch.float64)
    sent = best_ternary(moved, width)
    assert sent.width == INT2
    assert squares(moved, sent.codes.double()) <= best(moved) * (1 + 1e-12) + 1e-9
    said = sent.codes != 0
    assert bool((sent.codes[said] == moved.sign()[said]).all())
    assert bool(said.any()) == bool(moved.any())


@some
@given(st.lists(st.integers(-254, 254), min_size=1, max_size=40).filter(any))
def test_a_message_goes_as_far_as_the_movement(steps: list[int]) -> None:
    moved = torch.tensor(steps, dtype=torch.float64)
    far = best_ternary(moved, INT8)
    level = float(far.value().abs().max()) * INT8.steps
    along = float((far.codes * moved).sum()) * level / float(moved.square().sum())
    assert along == pytest.approx(1.0, rel=1 / 256) or (level == 254 and along < 1)
    assert far.scale <= (largest_scale(INT2) or 0)
