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
    shift,
    shift_exponent,
    stochastic_steps,
    ternarize,
    ternary,
)
from tests.reference import integer_oracle as oracle

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
    expected = oracle.ternary(codes, width.bits)
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
@given(st.integers(0, 53).flatmap(lambda bits: st.integers(0, 2**bits)))
def test_shift_exponent_of_integers(m: int) -> None:
    assert shift_exponent(float(m)) == oracle.shift_exponent(m)
    assert shift(float(m)) == 2.0 ** oracle.shift_exponent(m)


@pytest.mark.parametrize("power", range(53))
def test_shift_exponent_next_to_its_thresholds(power: int) -> None:
    threshold = math.isqrt(1 << (2 * power + 1))  # floor(2^power · √2)
    for m in (2**power - 1, 2**power, 2**power + 1, threshold - 1, threshold, threshold + 1, threshold + 2):
        assert shift_exponent(float(m)) == oracle.shift_exponent(m)
    if power > 0:
        assert [oracle.shift_exponent(m) for m in (threshold, threshold + 1)] == [power, power + 1]


@given(st.floats(min_value=5e-324, max_value=1.7e308, allow_infinity=False))
def test_shift_exponent_of_any_float(x: float) -> None:
    """k = round(log2 x) exactly when 2^(2k−1) < x² < 2^(2k+1)."""
    k = shift_exponent(x)
    assert Fraction(2) ** (2 * k - 1) < Fraction(x) ** 2 < Fraction(2) ** (2 * k + 1)


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


# --- stochastic rounding ---------------------------------------------------------------------------------------------


def oracle_steps(gradient: list[int], rate: Rate, seed: int) -> list[int]:
    uniform = torch.rand(len(gradient), generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    scaled = uniform.double() * 2**oracle.RANDOM_BITS
    r = scaled.to(torch.int64)
    assert torch.equal(r.double(), scaled), "uniform numbers are multiples of 2^−24"
    k = oracle.shift_exponent(max(map(abs, gradient)))
    sizes = [oracle.step_size(g, k, rate.mantissa, rate.exponent, i) for g, i in zip(gradient, r.tolist(), strict=True)]
    return [size if g > 0 else -size for g, size in zip(gradient, sizes, strict=True)]


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 45),
    st.integers(1, 30),
    st.builds(Rate, odd, st.integers(-30, 20)),
    st.integers(0, 2**32 - 1),
)
def test_steps_are_the_oracle_s(bits: int, size: int, rate: Rate, seed: int) -> None:
    gradient: list[int] = np.random.default_rng(seed).integers(-(2**bits), 2**bits, size, endpoint=True).tolist()
    tensor = torch.tensor(gradient, dtype=torch.float64)
    steps = stochastic_steps(tensor, rate, torch.Generator().manual_seed(seed))
    expected = oracle_steps(gradient, rate, seed)
    assert [int(step) for step in steps.tolist()] == expected
    if max(map(abs, gradient)) <= 2**24:  # float32 holds the gradient as well
        steps = stochastic_steps(tensor.float(), rate, torch.Generator().manual_seed(seed))
        assert [int(step) for step in steps.tolist()] == expected


@settings(deadline=None)
@given(st.lists(st.integers(-1000, 1000), min_size=1), odd, st.integers(0, 10), st.integers(0, 2**32 - 1))
def test_integers_are_never_rounded(numbers: list[int], mantissa: int, extra: int, seed: int) -> None:
    """x = η·g/2^k is an integer for every entry if η's exponent is k or more."""
    k = oracle.shift_exponent(max(map(abs, numbers)))
    rate = Rate(mantissa, k + extra)
    steps = stochastic_steps(torch.tensor(numbers).double(), rate, torch.Generator().manual_seed(seed))
    assert steps.tolist() == [mantissa * n * 2**extra for n in numbers]


@pytest.mark.parametrize("extra_bits", [0, 1, 20])
def test_a_step_rounds_up_only_above_the_uniform_number(extra_bits: int) -> None:
    """Gradients so made that the fraction of x = g/2^k is the uniform number itself, or the least bit more."""
    uniform = torch.rand(1000, generator=torch.Generator().manual_seed(11), dtype=torch.float32)
    gradient = uniform.double() * 2 ** (24 + extra_bits)
    gradient[0] = 2.0 ** (24 + extra_bits)  # the largest: x = 1
    for more in (0, 1):
        gradient[1:] += more
        for sign in (1, -1):
            steps = stochastic_steps(sign * gradient, Rate(1, 0), torch.Generator().manual_seed(11))
            assert steps.tolist() == [sign] + [sign * more] * 999


def test_an_all_zero_gradient_takes_no_step() -> None:
    steps = stochastic_steps(torch.zeros(3, 5), Rate(3, 4), torch.Generator().manual_seed(0))
    assert torch.equal(steps, torch.zeros(3, 5))
    assert stochastic_steps(torch.zeros(0, 5), Rate(3, 4), torch.Generator().manual_seed(0)).shape == (0, 5)


DRAWS = 10_000
GRID = 64
FRACTIONS = torch.arange(-3 * GRID, 3 * GRID + 1, dtype=torch.float64)
"""x in steps of 1/64 from −3 to 3."""


def test_stochastic_rounding_is_unbiased() -> None:
    """The mean of many roundings of each x is within five standard deviations of x; whole numbers stay as they are."""
    x = FRACTIONS / GRID
    gradient = FRACTIONS.expand(DRAWS, -1).contiguous()
    # The largest |g| is 192, whose Shift is 256, so η = 4 gives x = g/64.
    mean = stochastic_steps(gradient, Rate(1, 2), torch.Generator().manual_seed(2022)).double().mean(0)
    fraction = x.abs() % 1
    deviation = (fraction * (1 - fraction) / DRAWS).sqrt()
    assert bool(((mean - x).abs() <= 5 * deviation).all())


def test_rounding_up_is_independent_between_entries() -> None:
    """The number of roundings up among entries of fraction 1/4 varies as a binomial does."""
    gradient = torch.full((1000, 400), 1.0)
    gradient[0, 0] = 4.0  # the largest; x = g/4
    ups = stochastic_steps(gradient, Rate(1, 0), torch.Generator().manual_seed(7))[1:].sum(1).double()
    assert set(ups.tolist()) != {100.0}
    variance = 400 * 0.25 * 0.75
    assert abs(ups.mean().item() - 100) < 5 * math.sqrt(variance / len(ups))
    assert abs(ups.var().item() / variance - 1) < 5 * math.sqrt(2 / len(ups))
