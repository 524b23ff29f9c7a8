"""Quantizers by example."""

from __future__ import annotations

import math

import pytest
import torch

from prowd.numbers.bits import FLOAT32, INT2, Bitwidth
from prowd.numbers.quantize import (
    QTensor,
    Rate,
    clip_codes,
    encode,
    quantize,
    shift,
    shift_exponent,
    stochastic_steps,
    ternarize,
    ternary,
)

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
    ("x", "power"),
    [(1.0, 1), (1.4, 1), (1.5, 2), (3.0, 4), (5.6, 4), (5.7, 8), (0.75, 1), (0.7, 0.5), (0.001, 1 / 1024)],
)
def test_shift_is_the_nearest_power_in_ratio(x: float, power: float) -> None:
    assert shift(x) == power


def test_shift_of_zero_is_one() -> None:
    assert shift(0.0) == 1.0
    assert shift_exponent(0.0) == 0


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


def test_steps_by_hand() -> None:
    """The largest |g| is 64, so with η = 3 x = 3·g/64: 3, −3, 1.5, 0, 3/64."""
    gradient = torch.tensor([64.0, -64.0, 32.0, 0.0, 1.0])
    seen = set()
    for seed in range(100):
        steps = stochastic_steps(gradient, Rate(3, 0), torch.Generator().manual_seed(seed)).tolist()
        assert steps[:2] == [3, -3]
        assert steps[3] == 0
        seen.add((steps[2], steps[4]))
    assert seen == {(1, 0), (2, 0), (1, 1), (2, 1)}


def test_steps_draw_once_for_every_entry() -> None:
    """Whatever is in the gradient, the stream goes on from the same place."""
    after = []
    for gradient in (torch.zeros(3, 4), torch.arange(12.0).reshape(3, 4), torch.ones(3, 4, dtype=torch.float64)):
        for rate in (Rate(1, 0), Rate(5, -1)):
            random = torch.Generator().manual_seed(3)
            stochastic_steps(gradient, rate, random)
            after.append(torch.rand(1, generator=random).item())
    assert len(set(after)) == 1
