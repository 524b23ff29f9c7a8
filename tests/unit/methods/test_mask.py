"""The mask of Eq. 8 against every mask there is, its ties, its errors, and longer updates."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from prowd.methods.prowd.mask import Mask, select

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]


def spread(random: np.random.Generator, shape: tuple[int, int], exponent: float) -> Floats:
    scales: Floats = 10.0 ** random.uniform(-exponent, exponent, shape)
    return random.choice([-1.0, 1.0], shape) * scales


DRAWS: dict[str, tuple[Draw, Draw]] = {
    "normal": (lambda r, s: r.normal(size=s), lambda r, s: r.normal(size=s)),
    "integers": (lambda r, s: r.integers(-3, 4, s).astype(float), lambda r, s: r.integers(-3, 4, s).astype(float)),
    "agreeing": (lambda r, s: r.integers(1, 5, s).astype(float), lambda r, s: r.integers(1, 9, s).astype(float)),
    "duplicates": (lambda r, s: r.choice([0.5, -1.5], s), lambda r, s: r.choice([0.25, 0.0, -3.0], s)),
    "low-bit": (lambda r, s: r.integers(-1, 2, s) / 2.0, lambda r, s: r.normal(size=s)),
    "decades": (lambda r, s: spread(r, s, 2.0), lambda r, s: spread(r, s, 2.0)),
    "extremes": (lambda r, s: spread(r, s, 20.0), lambda r, s: spread(r, s, 20.0)),
    "tiny": (lambda r, s: 1e-20 * r.normal(size=s), lambda r, s: 1e-20 * r.normal(size=s)),
    "huge": (lambda r, s: 1e20 * r.normal(size=s), lambda r, s: 1e20 * r.normal(size=s)),
    "steep": (lambda r, s: 1e-20 * r.normal(size=s), lambda r, s: 1e20 * r.normal(size=s)),
    "opposed": (lambda r, s: r.random(s) + 0.1, lambda r, s: -r.random(s)),
    "equal": (lambda r, s: np.ones(s), lambda r, s: np.full(s, 0.5)),
}
INTEGERS = ("integers", "agreeing", "duplicates", "equal")  # sums and their products are exact, so ties are
CASES = 5  # of each kind, size and tau


def pairs(kind: str, count: int, size: int) -> tuple[Tensor, Tensor]:
    random = np.random.default_rng([size, *kind.encode()])
    low, high = (torch.from_numpy(draw(random, (count, size))).float() for draw in DRAWS[kind])
    return low, high


def all_masks(size: int) -> Floats:
    return ((np.arange(2**size)[:, None] >> np.arange(size)) & 1).astype(np.float64)


def brute_force(low: Tensor, high: Tensor, limit: int) -> tuple[Floats, Floats, Floats]:
    """N and D of every mask and the greatest N²/D (0 for none), a row for each case; masks too large count as empty."""
    x, y = (low.double() * high.double()).numpy(), (low.double() ** 2).numpy()
    masks = all_masks(low.shape[1])
    masks[masks.sum(1) > limit] = 0.0
    dots, squares = x @ masks.T, y @ masks.T
    values = np.where(dots > 0, dots, 0.0) ** 2 / np.where(squares > 0, squares, 1.0)
    return dots, squares, values.max(1)


def of_mask(mask: Mask, low: Tensor, high: Tensor) -> tuple[float, float]:
    kept = low.double()[mask.kept]
    return float((kept * high.double()[mask.kept]).sum()), float((kept**2).sum())


@pytest.mark.parametrize("size", range(1, 13))
@pytest.mark.parametrize("kind", DRAWS)
def test_no_mask_is_better(kind: str, size: int) -> None:
    lows, highs = pairs(kind, CASES, size)
    for tau in (1.0, 0.7, 0.35):
        limit = math.floor(tau * size)
        _, _, values = brute_force(lows, highs, limit)
        for low, high, value in zip(lows, highs, values, strict=True):
            mask = select(low, high, tau)
            assert mask.kept.sum() <= limit
            assert not mask.kept[low * high.sign() <= 0].any()
            dot, square = of_mask(mask, low, high)
            assert (dot * dot / square if square else 0.0) == pytest.approx(value, rel=1e-13, abs=0.0)
            norm = float(high.double().norm())
            assert mask.cosine_after == pytest.approx(math.sqrt(value) / norm if norm else 0.0, rel=1e-13, abs=0.0)


@pytest.mark.parametrize("size", range(1, 13))
@pytest.mark.parametrize("kind", INTEGERS)
def test_the_sparsest_optimum_then_the_shortest(kind: str, size: int) -> None:
    lows, highs = pairs(kind, CASES, size)
    counts = all_masks(size).sum(1)
    for tau in (1.0, 0.6, 0.3):
        limit = math.floor(tau * size)
        dots, squares, values = brute_force(lows, highs, limit)
        for case, (low, high) in enumerate(zip(lows, highs, strict=True)):
            mask = select(low, high, tau)
            dot, square = of_mask(mask, low, high)
            if values[case] == 0:
                assert not mask.kept.any()
                continue
            same = (dots[case] > 0) & (dots[case] ** 2 * square == dot**2 * squares[case]) & (counts <= limit)
            assert same.any()
            ranks = sorted(zip(counts[same].tolist(), squares[case][same].tolist(), strict=True))
            assert (int(mask.kept.sum()), square) == ranks[0]


def test_a_hilltop_is_not_the_summit() -> None:
    low, high = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.25]), torch.tensor([1.0, 1.0, 1.0, 1.0, 4.0])
    # t <- N/2D from t = 0 stops at once: with everything N²/D = 25/4.0625, t = 0.615, and all ratios are above
    assert select(low, high).kept.tolist() == [False, False, False, False, True]  # N²/D = 16


@pytest.mark.parametrize("tau", [1.0, 0.67, 0.5])
def test_a_summit_below_the_rounding_of_the_foothills(tau: float) -> None:
    low = torch.tensor([1.5e19, 2.7e7, -1.2e-14, -1.6e18])
    high = torch.tensor([1.7e7, 0.33, -2.5e10, 1.1e3])  # x of the third is 10^-30 of the first one's, N²/D 10^6 times
    assert select(low, high, tau).kept.tolist() == [False, False, True, False]


@pytest.mark.parametrize("tau", [1.0, 0.95, 0.9])
def test_of_two_summits_of_one_height_the_sparser_is_taken(tau: float) -> None:
    low, high = torch.ones(9), torch.tensor([1.0] * 8 + [4.0])  # 12²/9 with all of them, 4²/1 with the last
    assert select(low, high, tau).kept.tolist() == [False] * 8 + [True]


@pytest.mark.parametrize(("tau", "kept"), [(1.0, 4), (0.75, 3), (0.5, 2), (0.49, 1), (0.2, 0)])
def test_of_equal_entries_the_first_are_kept(tau: float, kept: int) -> None:
    low, high = torch.tensor([1.0, -1.0, 1.0, -1.0]), torch.tensor([2.0, -2.0, 2.0, -2.0])
    assert select(low, high, tau).kept.tolist() == [True] * kept + [False] * (4 - kept)


@pytest.mark.parametrize(("tau", "kept"), [(1.0, [1, 5]), (0.34, [1, 5]), (0.2, [5])])
def test_what_did_not_move_is_dropped(tau: float, kept: list[int]) -> None:
    low, high = torch.tensor([0.0, 1.0, 0.0, -1.0, 0.0, 2.0]), torch.tensor([1.0, 1.0, 0.0, 1.0, -1.0, 2.0])
    assert select(low, high, tau).kept.nonzero().flatten().tolist() == kept


@pytest.mark.parametrize(
    ("low", "high", "before"),
    [
        ([1.0, -2.0], [-1.0, 2.0], -1.0),
        ([0.0, 0.0], [1.0, 2.0], 0.0),
        ([1.0, 2.0], [0.0, 0.0], 0.0),
        ([1.0, 0.0], [0.0, 1.0], 0.0),
        ([], [], 0.0),
    ],
)
def test_nothing_agrees(low: list[float], high: list[float], before: float) -> None:
    mask = select(torch.tensor(low), torch.tensor(high))
    assert not mask.kept.any()
    assert mask.cosine_before == pytest.approx(before)
    assert mask.cosine_after == 0.0
    assert mask.kept_fraction == 0.0


def test_shape_and_fraction() -> None:
    low, high = torch.tensor([[1.0, -1.0], [1.0, 1.0]]), torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    mask = select(low.T, high)  # not contiguous
    assert mask.kept.dtype == torch.bool
    assert mask.kept.tolist() == [[True, True], [False, True]]
    assert (mask.kept_fraction, mask.cosine_before) == (0.75, 0.5)
    assert mask.cosine_after == pytest.approx(math.sqrt(0.75))
    scalar = select(torch.tensor(2.0, requires_grad=True), torch.tensor(3.0))
    assert (scalar.kept.shape, bool(scalar.kept), scalar.cosine_after) == (torch.Size([]), True, 1.0)


@pytest.mark.parametrize("tau", [0.0, -0.5, 1.1, math.inf, math.nan])
def test_tau_out_of_range(tau: float) -> None:
    with pytest.raises(ValueError, match="tau"):
        select(torch.ones(3), torch.ones(3), tau)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite(value: float) -> None:
    bad, good = torch.tensor([1.0, value]), torch.zeros(2)
    with pytest.raises(ValueError, match="delta_low has entries that are not finite"):
        select(bad, good)
    with pytest.raises(ValueError, match="delta_high has entries that are not finite"):
        select(good, bad)


def test_shapes_and_dtypes_that_do_not_match() -> None:
    with pytest.raises(ValueError, match=r"delta_low is \(3,\), delta_high is \(1, 3\)"):
        select(torch.ones(3), torch.ones(1, 3))
    with pytest.raises(ValueError, match=r"delta_low is torch\.float64"):
        select(torch.ones(3, dtype=torch.float64), torch.ones(3))
    with pytest.raises(ValueError, match=r"delta_high is torch\.float16"):
        select(torch.ones(3), torch.ones(3, dtype=torch.float16))


def best_of_all_thresholds(low: Tensor, high: Tensor, limit: int) -> float:
    """Greatest N²/D of the S(t), of a t from every interval in which S(t) is constant."""
    x, y = (low.double() * high.double()).numpy(), (low.double() ** 2).numpy()
    with np.errstate(all="ignore"):
        edges = np.concatenate([((x[:, None] - x) / (y[:, None] - y)).ravel(), x / y])
    edges = np.unique(np.concatenate([[0.0], edges[np.isfinite(edges) & (edges > 0)]]))
    best = 0.0
    for t in (edges[1:] + edges[:-1]) / 2:
        scores = x - t * y
        kept = np.argsort(-scores, kind="stable")[:limit]
        kept = kept[scores[kept] > 0]
        if kept.size:
            best = max(best, float(x[kept].sum() ** 2 / y[kept].sum()))
    return best


@pytest.mark.parametrize("tau", [1.0, 0.4, 0.05])
@pytest.mark.parametrize("kind", DRAWS)
def test_no_threshold_is_better(kind: str, tau: float) -> None:
    limit = math.floor(tau * 60)
    for low, high in zip(*pairs(kind, 2, 60), strict=True):
        mask = select(low, high, tau)
        assert mask.kept.sum() <= limit
        dot, square = of_mask(mask, low, high)
        summit = best_of_all_thresholds(low, high, limit)
        assert (dot * dot / square if square else 0.0) == pytest.approx(summit, rel=1e-13)


@pytest.mark.parametrize("tau", [1.0, 0.3, 0.01])
@pytest.mark.parametrize("kind", ["normal", "agreeing", "low-bit", "decades"])
def test_an_update_repeated_has_its_mask_repeated(kind: str, tau: float) -> None:
    """N and D of an update repeated are so many times as large: its best mask is that of the update, repeated."""
    low, high = (tensor.view(-1) for tensor in pairs(kind, 1, 2000))
    once, often = select(low, high, tau), select(low.repeat(32), high.repeat(32), tau)
    assert often.cosine_after == pytest.approx(once.cosine_after, rel=1e-12)
    dot, square = of_mask(often, low.repeat(32), high.repeat(32))
    assert (dot, square) == pytest.approx(tuple(32 * sum_ for sum_ in of_mask(once, low, high)), rel=1e-9)


def test_the_mask_does_not_depend_on_the_number_of_threads() -> None:
    low, high = (tensor.view(-1) for tensor in pairs("normal", 1, 100_000))
    threads = torch.get_num_threads()
    masks = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            masks.append([select(low, high, tau) for tau in (1.0, 0.2)])
    finally:
        torch.set_num_threads(threads)
    for one, two in zip(*masks, strict=True):
        assert one.kept.equal(two.kept)
        assert (one.cosine_before, one.cosine_after) == (two.cosine_before, two.cosine_after)
