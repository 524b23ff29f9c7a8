"""Quantizers by example."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from prowd.numbers.bits import FLOAT32, INT2, Bitwidth
from prowd.numbers.quantize import (
    QTensor,
    Rate,
    clip_codes,
    corrected_steps,
    encode,
    largest_magnitude,
    quantize,
    shift_exponent,
    stochastic_steps,
    ternarize,
    ternary,
)
from prowd.numbers.streams import Stream

INT4, INT8 = Bitwidth(4), Bitwidth(8)


def test_int2_has_three_levels() -> None:
    x = torch.tensor([-1.0, -0.3, -0.25, -0.2, 0.0, 0.25, 0.26, 0.5, 0.75, 9.0])
    assert quantize(x, INT2).value().tolist() == [-0.5, -0.5, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5]


def test_rounds_half_to_even() -> None:
    x = torch.tensor([0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5]) / 8
    assert encode(x, INT4).tolist() == [0, 2, 2, 4, 0, -2, -2]


def test_clips_to_the_largest_code() -> None:
    assert quantize(torch.tensor([1.0, -1.0, 0.9375, 5.0]), INT4).codes.tolist() == [7, -7, 7, 7]
    assert clip_codes(torch.tensor([-8, -7, 0, 8]), INT4).tolist() == [-7, -7, 0, 7]


def test_codes_are_int16_and_values_float32() -> None:
    tensor = quantize(torch.tensor([[0.5, -0.25]], dtype=torch.float64), INT8)
    assert tensor.codes.dtype == torch.int16
    assert tensor.codes.tolist() == [[64, -32]]
    assert tensor.shape == (1, 2)
    assert tensor.value().dtype == torch.float32
    assert tensor.value().tolist() == [[0.5, -0.25]]


def test_scale_multiplies_the_value() -> None:
    assert QTensor(torch.tensor([1, -3], dtype=torch.int16), INT4, scale=4.0).value().tolist() == [0.5, -1.5]
    assert QTensor(torch.tensor([1.5]), FLOAT32, scale=2.0).value().tolist() == [3.0]


def test_ternary_thresholds_are_at_a_quarter() -> None:
    codes = torch.tensor([-127.0, -33.0, -32.0, 0.0, 31.0, 32.0, 33.0, 96.0, 127.0])
    assert ternary(codes, INT8).tolist() == [-1, -1, 0, 0, 0, 0, 1, 1, 1]
    tensor = ternarize(QTensor(codes.to(torch.int16), INT8))
    assert tensor.width == INT2
    assert tensor.codes.dtype == torch.int16
    assert tensor.value().tolist() == [-0.5, -0.5, 0, 0, 0, 0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("x", "exponent"),
    [(0, 0), (1, 0), (2, 1), (3, 2), (5, 2), (6, 3), (11, 3), (12, 4), (45, 5), (46, 6), (2**40, 40), (2**62 - 1, 62)],
)
def test_shift_is_the_nearest_power_in_ratio(x: int, exponent: int) -> None:
    assert shift_exponent(x) == exponent


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64, torch.float32, torch.float64])
def test_the_largest_magnitude(dtype: torch.dtype) -> None:
    assert largest_magnitude(torch.tensor([[3, -7], [0, 5]], dtype=dtype)) == 7
    assert largest_magnitude(torch.tensor([], dtype=dtype)) == 0


@pytest.mark.parametrize(
    ("eta", "rate"),
    [
        (8.0, Rate(1, 3)),
        (1.0, Rate(1, 0)),
        (0.125, Rate(1, -3)),
        (6.0, Rate(3, 1)),
        (0.1, Rate(205, -11)),
        (255.9, Rate(1, 8)),
        (2048.0, Rate(1, 11)),
    ],
)
def test_nearest_rate(eta: float, rate: Rate) -> None:
    assert Rate.nearest(eta) == rate
    assert rate.value == pytest.approx(eta, rel=1 / 256)


@pytest.mark.parametrize("eta", [0.0, -1.0, math.inf, -math.inf, math.nan])
def test_rates_are_positive_and_finite(eta: float) -> None:
    with pytest.raises(ValueError, match=f"positive and finite, not {eta}"):
        Rate.nearest(eta)


@pytest.mark.parametrize(
    ("a", "b", "rate"),
    [
        (8, 1, Rate(1, 3)),
        (1, 3, Rate(171, -9)),
        (2, 3, Rate(171, -8)),
        (511, 2, Rate(1, 8)),  # 255.5: the tie goes to the even mantissa 256
        (513, 2, Rate(1, 8)),
        (509, 2, Rate(127, 1)),  # 254.5: to 254
        (254, 1, Rate(127, 1)),
        (10**30, 10**30, Rate(1, 0)),
        (1, 2**100, Rate(1, -100)),
    ],
)
def test_rates_of_ratios(a: int, b: int, rate: Rate) -> None:
    assert Rate.ratio(a, b) == rate


@pytest.mark.parametrize(
    ("value", "rate"),
    [
        (1.0, Rate(1, 0)),
        (0.75, Rate(3, -2)),
        (0.1, Rate(0x1999999999999A >> 1, -55)),
        (257.0, Rate(257, 0)),
        (5e-324, Rate(1, -1074)),
        (2.0**1000, Rate(1, 1000)),
    ],
)
def test_rates_that_are_exact(value: float, rate: Rate) -> None:
    assert Rate.exactly(value) == rate
    assert rate.value == value


def words(count: int, seed: int = 0) -> Tensor:
    return Stream.of(seed).words(0, 0, count)


def test_steps_by_hand() -> None:
    """The largest |g| is 64, so with η = 3 x = 3·g/64: 3, −3, 1.5, 0, 3/64."""
    gradient = torch.tensor([64, -64, 32, 0, 1])
    seen = set()
    for seed in range(100):
        steps = stochastic_steps(gradient, Rate(3, 0), words(5, seed)).tolist()
        assert steps[:2] == [3, -3]
        assert steps[3] == 0
        seen.add((steps[2], steps[4]))
    assert seen == {(1, 0), (2, 0), (1, 1), (2, 1)}


def test_a_step_rounds_up_above_the_upper_24_bits_of_its_word() -> None:
    """x = 1/2 and −1/2: up exactly when r < 2^23."""
    gradient = torch.tensor([2, 1, -1, 1, -1])
    given = torch.tensor([0, 2**31 - 1, 2**31 - 256, 2**31, 2**32 - 1])
    assert stochastic_steps(gradient, Rate(1, 0), given).tolist() == [1, 1, -1, 0, 0]


def test_corrected_steps_by_hand() -> None:
    """x = η·(g/64 + addition) with η = 2 and the largest |g| 64: 2 + 1, −1 + 1/2, 0 − 3/4."""
    gradient, addition = torch.tensor([64, -32, 0]), torch.tensor([0.5, 0.25, -0.375])
    low, high = torch.zeros(3, dtype=torch.int64), torch.full((3,), 2**32 - 1)
    assert corrected_steps(gradient, Rate(1, 1), low, addition).tolist() == [3, -1, -1]
    assert corrected_steps(gradient, Rate(1, 1), high, addition).tolist() == [3, 0, 0]


def test_a_correction_of_nothing_changes_nothing() -> None:
    gradient = torch.arange(-500, 500)
    plain = stochastic_steps(gradient, Rate(13, -2), words(1000))
    assert torch.equal(corrected_steps(gradient, Rate(13, -2), words(1000), torch.zeros(1000)), plain.double())
