"""The tables of e^(−x) against the oracle, which finds it in another way."""

from __future__ import annotations

import math

import pytest
import torch

from prowd.numbers.exponential import ENTRIES, ONE_BITS, exponential_tables
from tests.reference.integer_numbers import exponential


@pytest.mark.parametrize("exponent", [-31, -16, -13, -9, -8, -5, -4, -2, -1, 0, 1, 4, 15])
def test_tables_are_the_oracle_s(exponent: int) -> None:
    low, high = exponential_tables(exponent)
    assert low.dtype == high.dtype == torch.int64
    assert low.tolist() == [exponential(n, exponent) for n in range(ENTRIES)]
    assert high.tolist() == [exponential(n, exponent + 8) for n in range(ENTRIES)]


def test_tables_are_the_exponential() -> None:
    """Float64 has digits enough to tell entries apart, if not to round each of them."""
    low, high = exponential_tables(-5)
    for table, unit in ((low, 2.0**-5), (high, 2.0**3)):
        expected = [math.exp(-n * unit) * 2**ONE_BITS for n in range(ENTRIES)]
        assert table.tolist() == pytest.approx(expected, abs=0.51)


def test_two_tables_serve_sixteen_bits() -> None:
    low, high = exponential_tables(-12)
    for gap in (0, 1, 255, 256, 257, 4096, 40_000, 65_534):
        product = int(low[gap % ENTRIES]) * int(high[gap // ENTRIES]) >> ONE_BITS
        assert product == pytest.approx(math.exp(-gap / 4096) * 2**ONE_BITS, abs=2.6)
