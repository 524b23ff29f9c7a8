"""Quantizers against exact fractions and the integer oracle."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import (
    QTensor,
    Rate,
    encode,
    quantize,
    shift_exponent,
    ternarize,
    ternary,
)
from tests.reference import integer_numbers as oracle

WIDTHS = [Bitwidth(s) for s in range(2, 17)]
widths = st.sampled_from(WIDTHS)
odd = st.integers(0, 127).map(lambda half: 2 * half + 1)


def exact_code(x: float, width: Bitwidth) -> int:
    """Code of Q_s(x); Python rounds fractions half to even."""
    code = round(Fraction(x) * width.steps)
    return max(-width.max_code, min(width.max_code, code))


# --- Q_s -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", WIDTHS, ids=str)
def test_q_s_on_a_grid_of_quarter_steps(width: Bitwidth, dtype: torch.dtype) -> None:
    """Every code, every tie between codes, both sides of each, and beyond the range."""
    one = 4 * width.steps
    spread = range(-one - one // 4, one + one // 4 + 1, 1 if width.bits < 11 else 29)
    values = [q / one for q in (*spread, *range(-40, 41), *range(one - 40, one + 41))]
    codes = encode(torch.tensor(values, dtype=dtype), width)
    assert codes.dtype == dtype
    assert codes.tolist() == [exact_code(x, width) for x in values]


@settings(deadline=None)
@given(widths, st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_q_s_of_any_float32(width: Bitwidth, values: list[float]) -> None:
    tensor = quantize(torch.tensor(values, dtype=torch.float32), width)
    assert tensor.width == width
    assert tensor.scale == 1.0
    assert tensor.codes.dtype == torch.int16
    assert tensor.codes.tolist() == [exact_code(x, width) for x in values]


@settings(deadline=None)
@given(widths, st.integers(-(2**15), 2**15), st.sampled_from([-1, 0, 1]))
def test_q_s_next_to_ties(width: Bitwidth, code: int, side: int) -> None:
    """The tie after ``code`` and its two neighbours in float64."""
    tie = (code + 0.5) / width.steps
    x = math.nextafter(tie, side * math.inf) if side else tie
    assert encode(torch.tensor([x], dtype=torch.float64), width).item() == exact_code(x, width)


@pytest.mark.parametrize("width", WIDTHS, ids=str)
def test_q_s_is_idempotent_odd_and_saturates(width: Bitwidth) -> None:
    codes = torch.arange(-width.max_code, width.max_code + 1, dtype=torch.int16)
    assert torch.equal(quantize(QTensor(codes, width).value(), width).codes, codes)
    x = torch.linspace(-1.5, 1.5, 997)
    assert torch.equal(quantize(-x, width).codes, -quantize(x, width).codes)
    ends = quantize(torch.tensor([1.0, -1.0, math.inf, -math.inf]), width).codes
    assert ends.tolist() == [width.max_code, -width.max_code] * 2


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS, ids=str)
def test_values_are_exact(width: Bitwidth) -> None:
    codes = torch.arange(-width.max_code, width.max_code + 1, dtype=torch.int16)
    value = QTensor(codes, width).value()
    assert value.dtype == torch.float32
    at = range(0, len(codes), 1 if width.bits < 12 else 17)
    assert [Fraction(value[i].item()) for i in at] == [Fraction(int(codes[i]), width.steps) for i in at]
    assert torch.equal(value.double() * width.steps, codes.double())
    scaled = QTensor(codes, width, scale=0.125).value()
    assert torch.equal(scaled * 8, value)


# --- ternary ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS, ids=str)
def test_ternary_of_every_code(width: Bitwidth) -> None:
    codes = np.arange(-width.max_code, width.max_code + 1)
    expected = np.array([oracle.ternary(code, width.bits) for code in codes.tolist()])
    held = torch.from_numpy(codes)
    for dtype in (torch.float32, torch.float64, torch.int16):
        assert np.array_equal(ternary(held.to(dtype), width).numpy(), expected)
    tensor = ternarize(QTensor(held.to(torch.int16), width))
    assert np.array_equal(tensor.codes.numpy(), expected)
    assert tensor.width.bits == 2
    # the same as quantizing the value to Int2
    assert torch.equal(quantize(QTensor(held, width).value(), tensor.width).codes, tensor.codes)


# --- Shift -----------------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(st.integers(0, 70).flatmap(lambda bits: st.integers(0, 2**bits)))
def test_shift_exponent_is_the_oracle_s(m: int) -> None:
    """k = round(log2 m) exactly when 2^(2k−1) < m² < 2^(2k+1)."""
    k = shift_exponent(m)
    assert k == oracle.shift_exponent(m)
    assert m == 0 or 4**k < 2 * m * m < 4 ** (k + 1)


@pytest.mark.parametrize("power", range(63))
def test_shift_exponent_next_to_its_thresholds(power: int) -> None:
    threshold = math.isqrt(1 << (2 * power + 1))  # floor(2^power · √2)
    for m in (2**power - 1, 2**power, 2**power + 1, threshold - 1, threshold, threshold + 1, threshold + 2):
        assert shift_exponent(m) == oracle.shift_exponent(m)
    assert [shift_exponent(m) for m in (threshold, threshold + 1)] == [power, power + 1]


# --- Rate ------------------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(st.floats(min_value=1e-300, max_value=1e300))
def test_nearest_rate_is_within_half_a_step_of_8_bits(eta: float) -> None:
    """Half a unit of an 8-bit mantissa: 1/256 of the rate at most."""
    rate = Rate.nearest(eta)
    assert rate.mantissa % 2 == 1
    assert 1 <= rate.mantissa < 256
    exact = rate.mantissa * Fraction(2) ** rate.exponent
    assert Fraction(rate.value) == exact
    assert abs(exact - Fraction(eta)) <= Fraction(eta) / 256
    below = 2 ** (math.frexp(eta)[1] - 8)  # a unit of the mantissa at eta
    assert abs(exact - Fraction(eta)) <= Fraction(below) / 2


@given(odd, st.integers(-200, 200))
def test_representable_rates_are_exact(mantissa: int, exponent: int) -> None:
    assert Rate.nearest(math.ldexp(mantissa, exponent)) == Rate(mantissa, exponent)
    assert Rate.nearest(math.ldexp(1.0, exponent)) == Rate(1, exponent)


@settings(max_examples=300)
@given(st.integers(1, 2**80), st.integers(1, 2**80))
def test_ratios_are_rounded_as_the_oracle_s(a: int, b: int) -> None:
    rate = Rate.ratio(a, b)
    assert (rate.mantissa, rate.exponent) == oracle.nearest_rate(a, b)
    assert rate.mantissa % 2 == 1
    assert rate.mantissa < 256
    found, exact = rate.mantissa * Fraction(2) ** rate.exponent, Fraction(a, b)
    assert abs(found - exact) <= exact / 256


@given(st.floats(min_value=5e-324, max_value=1.7e308))
def test_exact_rates_are_exact(value: float) -> None:
    rate = Rate.exactly(value)
    assert rate.mantissa % 2 == 1
    assert rate.mantissa < 2**53
    assert rate.mantissa * Fraction(2) ** rate.exponent == Fraction(value)
    assert rate.value == value
