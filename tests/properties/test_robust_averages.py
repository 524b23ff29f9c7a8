"""Robust averages against their definitions, and what they promise."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prowd.numbers.averages import MEAN, Rule, average, far_off
from tests.reference import robust_averages as reference

some = settings(deadline=None, max_examples=60)
RULES = ["none", "median", "trimmed:0.3", "krum"]


@st.composite
def sets(draw: st.DrawFn, least: int = 1) -> tuple[list[Tensor], list[float]]:
    """Tensors of whole numbers, many of them equal, with whole shares: sums of them are exact."""
    count, size = draw(st.integers(least, 12)), draw(st.integers(1, 6))
    numbers = st.lists(st.integers(-5, 5).map(float), min_size=size, max_size=size)
    tensors = [torch.tensor(draw(numbers)) for _ in range(count)]
    return tensors, [float(draw(st.integers(1, 9))) for _ in range(count)]


@some
@given(sets(), st.sampled_from(RULES))
def test_an_average_is_what_its_definition_says(found: tuple[list[Tensor], list[float]], text: str) -> None:
    tensors, shares = found
    rule = Rule.parse(text)
    expected = reference.averaged([tensor.tolist() for tensor in tensors], shares, rule.kind)
    assert average(tensors, shares, rule).tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


@some
@given(sets(), st.sampled_from(RULES))
def test_an_average_is_between_the_lowest_and_the_highest(found: tuple[list[Tensor], list[float]], text: str) -> None:
    tensors, shares = found
    stacked, made = torch.stack(tensors), average(tensors, shares, Rule.parse(text))
    assert bool((made >= stacked.amin(0) - 1e-6).all())
    assert bool((made <= stacked.amax(0) + 1e-6).all())


@some
@given(sets(least=5), st.floats(-(2.0**40), 2.0**40, width=32))
def test_a_median_does_not_leave_the_range_of_the_others(found: tuple[list[Tensor], list[float]], wild: float) -> None:
    tensors, shares = found
    honest = torch.stack(tensors[2:])
    hostile = [torch.full_like(tensors[0], wild)] * 2
    made = average([*hostile, *tensors[2:]], shares, Rule("median"))
    assert bool((made >= honest.amin(0) - 1e-5).all())
    assert bool((made <= honest.amax(0) + 1e-5).all())


@pytest.mark.parametrize("wild", [1e6, -1e6, 1e18])
def test_krum_leaves_out_what_is_far_from_the_others(wild: float) -> None:
    honest = [torch.tensor([1.0, 2.0]) + 0.01 * n for n in range(7)]
    made = average([*honest, *[torch.full((2,), wild)] * 3], [1.0] * 7 + [9.0] * 3, Rule("krum"))
    assert made.tolist() == pytest.approx([1.03, 2.03])


def test_the_mean_is_summed_in_float64_in_order() -> None:
    values = [torch.tensor([2.0**24]), *[torch.tensor([1.0])] * 1000]
    assert average(values, [1.0] * 1001, MEAN).item() == pytest.approx((2**24 + 1000) / 1001)


@st.composite
def clients(draw: st.DrawFn, least: int = 1) -> list[list[Tensor]]:
    """Clients of up to three tensors each."""
    sizes = draw(st.lists(st.integers(1, 5), max_size=3))
    numbers = st.integers(-5, 5).map(float)
    one = st.tuples(*(st.lists(numbers, min_size=size, max_size=size).map(torch.tensor) for size in sizes)).map(list)
    return draw(st.lists(one, min_size=least, max_size=9))


@some
@given(clients())
def test_how_far_clients_are_off_is_what_the_definition_says(found: list[list[Tensor]]) -> None:
    expected = reference.far_off([[tensor.tolist() for tensor in one] for one in found])
    assert far_off(found) == pytest.approx(expected, rel=1e-9)


@some
@given(clients(least=3), st.sampled_from([-1e6, 1e6, 1e12]), st.data())
def test_a_minority_that_agrees_on_something_wild_is_farthest_off(
    found: list[list[Tensor]], wild: float, data: st.DataObject
) -> None:
    most = Rule("trimmed", 0.49).left_out(len(found))
    hostile = data.draw(st.sets(st.integers(0, len(found) - 1), min_size=1, max_size=most))
    sent = [[t + wild for t in found[0]] if n in hostile else one for n, one in enumerate(found)]
    far = far_off(sent)
    if found[0]:
        assert min(far[n] for n in hostile) > max(far[n] for n in range(len(far)) if n not in hostile)
