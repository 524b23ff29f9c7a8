"""Confidence intervals against printed tables of Student's t."""

from __future__ import annotations

import math
from statistics import stdev

import pytest

from prowd.comparison import Estimate, estimate

T_975 = {2: 12.7062, 3: 4.3027, 4: 3.1824, 5: 2.7764, 10: 2.2622, 30: 2.0452, 121: 1.9799}  # by number of values


@pytest.mark.parametrize(("count", "quantile"), T_975.items())
def test_the_quantile_is_that_of_the_tables(count: int, quantile: float) -> None:
    values = [float(number) for number in range(count)]
    found = estimate(values)
    assert found.half is not None
    assert found.half * math.sqrt(count) / stdev(values) == pytest.approx(quantile, abs=5e-5)


def test_two_values_by_hand() -> None:
    found = estimate([60.0, 62.0])  # s = √2, so t·s/√2 = t
    assert (found.mean, found.count) == (61.0, 2)
    assert found.half == pytest.approx(12.7062, abs=5e-5)


def test_five_values_by_hand() -> None:
    found = estimate([70.0, 71.0, 72.0, 73.0, 74.0])  # s = √2.5, so 2.7764·√0.5
    assert found.mean == 72.0
    assert found.half == pytest.approx(1.9632, abs=5e-5)


def test_one_value_has_no_interval() -> None:
    assert estimate([70.0]) == Estimate(70.0, None, 1)


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert estimate([70.0, 70.0, 70.0]) == Estimate(70.0, 0.0, 3)


@pytest.mark.parametrize(
    ("mean", "half", "excludes"),
    [(2.0, 1.9, True), (-2.0, 1.9, True), (2.0, 2.1, False), (-2.0, 2.1, False), (0.0, 0.0, False), (2.0, None, False)],
)
def test_an_interval_that_excludes_zero(mean: float, half: float | None, excludes: bool) -> None:
    assert Estimate(mean, half, 3).excludes_zero is excludes
