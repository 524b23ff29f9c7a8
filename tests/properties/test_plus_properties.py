"""What holds of three-level movements and of weights refined by side information, against slow obvious ways."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prowd.methods.movement import best_ternary, largest_scale, residue
from prowd.methods.sideinfo import drift_of, posterior_mean
from prowd.numbers.bits import INT2, Bitwidth
from prowd.numbers.quantize import QTensor, quantize, ternarize

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
def test_no_three_levels_are_nearer(steps: list[int], width: Bitwidth) -> None:
    moved = torch.tensor(steps, dtype=torch.float64)
    sent = best_ternary(moved, width)
    assert sent.width == INT2
    assert squares(moved, sent.codes.double()) <= best(moved) * (1 + 1e-12) + 1e-9
    kept = moved.abs()[sent.codes != 0]
    if len(kept):
        level = float(sent.value().abs().max()) * width.steps
        assert level == pytest.approx(float(kept.mean()), rel=1 / 256)
        assert bool((sent.codes[sent.codes != 0] == moved.sign()[sent.codes != 0]).all())
    else:
        assert not moved.any()


@some
@given(st.lists(st.integers(-254, 254), min_size=1, max_size=40).filter(any))
def test_a_full_message_goes_as_far_as_the_movement(steps: list[int]) -> None:
    moved = torch.tensor(steps, dtype=torch.float64)
    near, far = best_ternary(moved, INT8), best_ternary(moved, INT8, full=True)
    assert torch.equal(near.codes, far.codes)
    level = float(far.value().abs().max()) * INT8.steps
    along = float((far.codes * moved).sum()) * level / float(moved.square().sum())
    assert along == pytest.approx(1.0, rel=1 / 256) or (level == 254 and along < 1)
    assert far.scale >= near.scale
    assert far.scale <= (largest_scale(INT2) or 0)


@some
@given(st.lists(st.integers(-300, 300), min_size=1, max_size=40), WIDTHS)
def test_what_is_sent_and_what_is_kept_make_the_whole(steps: list[int], width: Bitwidth) -> None:
    moved = torch.tensor(steps, dtype=torch.float64)
    sent = best_ternary(moved, width)
    kept = residue(moved, sent, width)
    said = sent.value().double() * width.steps
    exact = (moved - said).clamp(-width.max_code, width.max_code)
    assert kept.width == width
    assert bool(((kept.codes - exact).abs() <= 0.5 + 1e-6).all())


@some
@given(st.integers(-127, 127), st.floats(0.002, 2.0), st.sampled_from([-1, 0, 1]))
def test_the_posterior_mean_is_the_integral(code: int, sigma: float, level: int) -> None:
    """Sum over a fine grid of the interval that rounds to the level."""
    received = torch.tensor([code / 128])
    ends = {-1: (-127 / 128, -32.5 / 128), 0: (-32.5 / 128, 32.5 / 128), 1: (32.5 / 128, 127 / 128)}[level]
    grid = torch.linspace(*ends, 200_001, dtype=torch.float64)
    log = -0.5 * ((grid - received.double()) / sigma).square()
    weight = torch.exp(log - log.max())
    weight[0] /= 2
    weight[-1] /= 2
    found = posterior_mean(received, torch.tensor([level]), sigma, INT8)
    assert float(found) == pytest.approx(float((grid * weight).sum() / weight.sum()), abs=2e-6)


@some
@given(st.lists(st.integers(-127, 127), min_size=1, max_size=30), st.floats(1e-4, 2.0), st.integers(0, 2**32), WIDTHS)
def test_a_refined_weight_still_has_its_level(codes: list[int], sigma: float, seed: int, width: Bitwidth) -> None:
    received = quantize(torch.tensor(codes) / 128, width).value()
    levels = torch.randint(-1, 2, received.shape, generator=torch.Generator().manual_seed(seed))
    found = posterior_mean(received, levels, sigma, width)
    step = 0.5 / width.steps  # the edge is between two codes
    assert bool(found.isfinite().all())
    assert bool((found.abs() <= 1).all())
    assert bool((found[levels > 0] > 0.25).all())
    assert bool((found[levels < 0] < -0.25).all())
    assert bool((found[levels == 0].abs() <= 0.25 + step).all())


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.4])
def test_drift_is_found_from_changed_levels_and_helps(sigma: float) -> None:
    random = torch.Generator().manual_seed(3)
    received = quantize(torch.rand(20_000, generator=random) * 1.5 - 0.75, INT8)
    clients = [received.value() + sigma * torch.randn(20_000, generator=random) for _ in range(3)]
    truth = [quantize(values, INT8) for values in clients]
    levels = [ternarize(tensor) for tensor in truth]
    found = drift_of(received.value(), [tensor.codes for tensor in levels], INT8)
    assert found == pytest.approx(sigma, rel=0.05)
    refined = posterior_mean(received.value(), levels[0].codes, found, INT8)
    error = (refined - truth[0].value()).abs().mean()
    assert error < (levels[0].value() - truth[0].value()).abs().mean()
    assert error < (received.value() - truth[0].value()).abs().mean()


def test_levels_that_never_changed_mean_no_drift() -> None:
    received = QTensor(torch.tensor([0, 100, -100], dtype=torch.int16), INT8)
    levels = ternarize(received).codes
    sigma = drift_of(received.value(), [levels], INT8)
    assert sigma < 1e-3
    found = posterior_mean(received.value(), levels, sigma, INT8)
    torch.testing.assert_close(found, received.value(), atol=1e-3, rtol=0)
