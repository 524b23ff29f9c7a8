"""What holds of the mask for any two updates."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prowd.methods.prowd.mask import select

TAUS = st.sampled_from([1.0, 0.75, 0.5, 0.2])
NUMBERS = st.one_of(
    st.floats(-100, 100, width=32),
    st.floats(-(2.0**60), 2.0**60, width=32),
    st.integers(-3, 3).map(float),
    st.sampled_from([0.0, 0.5, -0.5]),
)
some = settings(deadline=None, max_examples=50)


@st.composite
def updates(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    size = draw(st.integers(1, 24))
    numbers = st.lists(NUMBERS, min_size=size, max_size=size)
    return torch.tensor(draw(numbers)), torch.tensor(draw(numbers))


@st.composite
def distinct_updates(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Entries that are not alike: no two masks are equally good, and none nearly."""
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    size = draw(st.integers(1, 100))
    return torch.randn(size, generator=random), torch.randn(size, generator=random)


def cosine(kept: Tensor, low: Tensor, high: Tensor) -> float:
    """The definition, in Python's arithmetic."""
    low_values = [float(value) if keep else 0.0 for value, keep in zip(low, kept, strict=True)]
    dot = math.fsum(a * b for a, b in zip(low_values, high.tolist(), strict=True))
    norms = math.hypot(*low_values) * math.hypot(*high.tolist())
    return dot / norms if norms else 0.0


@some
@given(updates(), TAUS)
def test_cosines_are_those_of_the_definition(pair: tuple[Tensor, Tensor], tau: float) -> None:
    low, high = pair
    mask = select(low, high, tau)
    assert mask.cosine_before == pytest.approx(cosine(torch.ones_like(mask.kept), low, high), rel=1e-12, abs=1e-15)
    assert mask.cosine_after == pytest.approx(cosine(mask.kept, low, high), rel=1e-12)
    assert mask.kept.sum() <= math.floor(tau * low.numel())
    assert mask.kept_fraction == mask.kept.double().mean()
    squares = [value * value for value in low.tolist()]
    kept = math.fsum(square for square, keep in zip(squares, mask.kept, strict=True) if keep)
    assert mask.kept_movement == (pytest.approx(kept / math.fsum(squares), rel=1e-12) if any(squares) else 0.0)


@some
@given(updates(), TAUS, st.integers(0, 2**32))
def test_no_random_mask_is_better(pair: tuple[Tensor, Tensor], tau: float, seed: int) -> None:
    low, high = pair
    mask = select(low, high, tau)
    if tau == 1.0:
        assert mask.cosine_after >= mask.cosine_before
    random = torch.Generator().manual_seed(seed)
    for share in (0.1, 0.5, 0.9):
        kept = torch.rand(low.numel(), generator=random) < share
        kept[torch.randperm(low.numel(), generator=random)[math.floor(tau * low.numel()) :]] = False
        assert mask.cosine_after >= cosine(kept, low, high) - 1e-12
        agreeing = kept & (low * high.sign() > 0)
        assert mask.cosine_after >= cosine(agreeing, low, high) - 1e-12


@some
@given(updates(), TAUS)
def test_no_single_change_is_better(pair: tuple[Tensor, Tensor], tau: float) -> None:
    low, high = pair
    mask = select(low, high, tau)
    limit = math.floor(tau * low.numel())
    for at in range(low.numel()):
        kept = mask.kept.clone()
        kept[at] = ~kept[at]
        if kept.sum() <= limit:
            assert mask.cosine_after >= cosine(kept, low, high) - 1e-12


@some
@given(updates(), TAUS, st.integers(-40, 40), st.integers(-40, 40))
def test_powers_of_two_change_nothing(pair: tuple[Tensor, Tensor], tau: float, one: int, other: int) -> None:
    low, high = (torch.where(tensor.abs() < 2.0**-60, 0.0, tensor) for tensor in pair)  # stays clear of underflow
    mask, scaled = select(low, high, tau), select(low * 2.0**one, high * 2.0**other, tau)
    assert scaled.kept.equal(mask.kept)
    assert scaled.cosine_before == pytest.approx(mask.cosine_before, rel=1e-15)
    assert scaled.cosine_after == pytest.approx(mask.cosine_after, rel=1e-15)


@some
@given(distinct_updates(), TAUS, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_positive_factors_change_nothing(pair: tuple[Tensor, Tensor], tau: float, one: float, other: float) -> None:
    low, high = pair
    assert select(low * one, high * other, tau).kept.equal(select(low, high, tau).kept)


@some
@given(distinct_updates(), TAUS)
def test_both_signs_may_be_turned(pair: tuple[Tensor, Tensor], tau: float) -> None:
    low, high = pair
    signs = torch.where(torch.arange(low.numel()) % 3 == 0, -1.0, 1.0)
    assert select(low * signs, high * signs, tau).kept.equal(select(low, high, tau).kept)


@some
@given(distinct_updates(), TAUS, st.integers(0, 2**32))
def test_the_order_of_entries_is_kept(pair: tuple[Tensor, Tensor], tau: float, seed: int) -> None:
    low, high = pair
    order = torch.randperm(low.numel(), generator=torch.Generator().manual_seed(seed))
    assert select(low[order], high[order], tau).kept.equal(select(low, high, tau).kept[order])


@some
@given(updates())
def test_a_looser_limit_is_never_worse(pair: tuple[Tensor, Tensor]) -> None:
    cosines = [select(*pair, tau=tau).cosine_after for tau in (0.1, 0.3, 0.5, 0.8, 1.0)]
    assert all(tight <= loose + 1e-13 for tight, loose in pairwise(cosines))
