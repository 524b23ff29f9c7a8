"""Stochastic rounding against the oracle in Python integers, and its statistics."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prowd.numbers.quantize import Rate, stochastic_steps
from prowd.numbers.streams import Stream
from tests.reference import integer_numbers as oracle

odd = st.integers(0, 127).map(lambda half: 2 * half + 1)
BEYOND = 2**17


def oracle_steps(gradient: list[int], rate: Rate, words: list[int]) -> list[int]:
    """Steps beyond all codes count as 2^17."""
    k = oracle.shift_exponent(max(map(abs, gradient)))
    sizes = [
        min(BEYOND, oracle.step_size(g, k, (rate.mantissa, rate.exponent), word))
        for g, word in zip(gradient, words, strict=True)
    ]
    return [size if g > 0 else -size for g, size in zip(gradient, sizes, strict=True)]


WORDS = st.one_of(st.integers(0, 2**32 - 1), st.integers(0, 2**12), st.sampled_from([0, 255, 256, 2**31, 2**32 - 1]))


@settings(max_examples=500, deadline=None)
@given(
    st.integers(0, 45).flatmap(
        lambda bits: st.lists(st.tuples(st.integers(-(2**bits), 2**bits), WORDS), min_size=1, max_size=30)
    ),
    st.builds(Rate, odd, st.one_of(st.integers(-30, 20), st.integers(-100, 100), st.integers(-(2**15), 2**15 - 1))),
)
def test_steps_are_the_oracle_s(entries: list[tuple[int, int]], rate: Rate) -> None:
    gradient, words = [g for g, _ in entries], [word for _, word in entries]
    expected = oracle_steps(gradient, rate, words)
    for dtype in (torch.int64, torch.float64):
        steps = stochastic_steps(torch.tensor(gradient, dtype=dtype), rate, torch.tensor(words))
        assert steps.dtype == torch.int64
        assert steps.clamp(-BEYOND, BEYOND).tolist() == expected


@settings(max_examples=200, deadline=None)
@given(st.integers(30, 45), odd, st.integers(-120, -1), st.integers(0, 2**24 - 1), st.integers(-1, 1))
def test_steps_next_to_the_oracle_s_threshold(bits: int, mantissa: int, exponent: int, chance: int, off: int) -> None:
    """Gradients about the one at which the fraction of x is the random number itself, however small the rate."""
    near = min(2**bits, (chance << bits - exponent >> 24) // mantissa)
    gradient = [2**bits, max(0, near + off)]
    rate, words = Rate(mantissa, exponent), [2**32 - 1, chance << 8 | 255]
    steps = stochastic_steps(torch.tensor(gradient), rate, torch.tensor(words))
    assert steps.clamp(max=BEYOND).tolist() == oracle_steps(gradient, rate, words)


@settings(deadline=None)
@given(st.lists(st.integers(-1000, 1000), min_size=1), odd, st.integers(0, 10), st.integers(0, 2**32 - 1))
def test_integers_are_never_rounded(numbers: list[int], mantissa: int, extra: int, seed: int) -> None:
    """x = η·g/2^k is an integer for every entry if η's exponent is k or more."""
    k = oracle.shift_exponent(max(map(abs, numbers)))
    words = Stream.of(seed).words(0, 0, len(numbers))
    steps = stochastic_steps(torch.tensor(numbers), Rate(mantissa, k + extra), words)
    expected = [max(-BEYOND, min(BEYOND, mantissa * n * 2**extra)) for n in numbers]
    assert steps.clamp(-BEYOND, BEYOND).tolist() == expected


@pytest.mark.parametrize("extra_bits", [0, 1, 20])
def test_a_step_rounds_up_only_above_the_random_number(extra_bits: int) -> None:
    """Gradients so made that the fraction of x = g/2^k is the random number itself, or the least bit more."""
    words = Stream.of(11).words(0, 0, 1000)
    gradient = (words >> 8) << extra_bits
    gradient[0] = 2 ** (24 + extra_bits)  # the largest: x = 1
    for more in (0, 1):
        gradient[1:] += more
        for sign in (1, -1):
            steps = stochastic_steps(sign * gradient, Rate(1, 0), words)
            assert steps.tolist() == [sign] + [sign * more] * 999


def test_an_all_zero_gradient_takes_no_step() -> None:
    words = torch.zeros(3, 5, dtype=torch.int64)
    assert not stochastic_steps(torch.zeros(3, 5), Rate(3, 4), words).any()
    assert stochastic_steps(torch.zeros(0, 5), Rate(3, 4), words[:0]).shape == (0, 5)


DRAWS = 10_000
GRID = 64
FRACTIONS = torch.arange(-3 * GRID, 3 * GRID + 1, dtype=torch.float64)
"""x in steps of 1/64 from −3 to 3."""


def test_stochastic_rounding_is_unbiased() -> None:
    """The mean of many roundings of each x is within five standard deviations of x; whole numbers stay as they are."""
    x = FRACTIONS / GRID
    gradient = FRACTIONS.expand(DRAWS, -1).contiguous()
    # The largest |g| is 192, whose Shift is 256, so η = 4 gives x = g/64.
    words = Stream.of(2022).words(0, 0, gradient.numel()).reshape(gradient.shape)
    mean = stochastic_steps(gradient, Rate(1, 2), words).double().mean(0)
    fraction = x.abs() % 1
    deviation = (fraction * (1 - fraction) / DRAWS).sqrt()
    assert bool(((mean - x).abs() <= 5 * deviation).all())


def test_rounding_up_is_independent_between_entries() -> None:
    """The number of roundings up among entries of fraction 1/4 varies as a binomial does."""
    gradient = torch.full((1000, 400), 1.0)
    gradient[0, 0] = 4.0  # the largest; x = g/4
    words = Stream.of(7).words(0, 0, gradient.numel()).reshape(gradient.shape)
    ups = stochastic_steps(gradient, Rate(1, 0), words)[1:].sum(1).double()
    assert set(ups.tolist()) != {100.0}
    variance = 400 * 0.25 * 0.75
    assert abs(ups.mean().item() - 100) < 5 * math.sqrt(variance / len(ups))
    assert abs(ups.var().item() / variance - 1) < 5 * math.sqrt(2 / len(ups))
