"""The mask that may drop a few entries only, against every such mask there is."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from prowd.methods.prowd.selection import select, sizes

from .test_selection import DRAWS, SIZES, Floats, all_masks, of_mask, pairs

SPARSITIES = (0.0, 0.1, 0.25, 0.5, 0.8)
CLOSE = 1e-12  # of cosines: N is a sum with cancellation, of terms that are at most ‖Δ_Low‖·‖Δ_High‖ together


def cosines(low: Tensor, high: Tensor, masks: Floats) -> Floats:
    """cos(c⊙Δ_Low, Δ_High) of every mask, a row for each case."""
    x, y = (low.double() * high.double()).numpy(), (low.double() ** 2).numpy()
    norms = np.sqrt(y @ masks.T) * high.double().norm(dim=1).numpy()[:, None]
    found: Floats = np.divide(x @ masks.T, norms, out=np.zeros_like(norms), where=norms > 0)
    return found


@pytest.mark.parametrize("size", range(1, 13))
@pytest.mark.parametrize("kind", DRAWS)
def test_no_mask_that_drops_as_few_is_better(kind: str, size: int) -> None:
    lows, highs = pairs(kind, 5, size)
    for sparsity, tau in [*((sparsity, 1.0) for sparsity in SPARSITIES), (0.6, 0.7), (0.3, 0.7)]:
        most = math.floor(tau * size)
        fewest = min(size - math.floor(sparsity * size), most)
        masks = all_masks(size)
        masks = masks[(masks.sum(1) >= fewest) & (masks.sum(1) <= most)]
        best = cosines(lows, highs, masks).max(1)
        for low, high, cosine in zip(lows, highs, best, strict=True):
            mask = select(low, high, tau, sparsity=sparsity)
            assert fewest <= mask.kept.sum() <= most
            (found,) = cosines(low[None], high[None], mask.kept.double().numpy()[None])
            assert mask.cosine_after == pytest.approx(found[0], abs=CLOSE)
            if cosine > 0:
                assert mask.cosine_after == pytest.approx(cosine, abs=CLOSE)
            else:
                product = low.double() * high.double()
                assert of_mask(mask, low, high)[0] == pytest.approx(_greatest(product, fewest, most), rel=1e-9)


def _greatest(product: Tensor, fewest: int, most: int) -> float:
    """The greatest scalar product of a mask."""
    ranked = product.sort(descending=True).values
    positive = int((ranked > 0).sum())
    return float(ranked[: max(fewest, min(most, positive))].sum())


def test_outliers_are_what_is_dropped() -> None:
    low = torch.tensor([1.0, 1.0, 1.0, -5.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0])
    assert select(low, torch.ones(10), sparsity=0.1).kept.tolist() == [True] * 3 + [False] + [True] * 6
    kept = select(low, torch.ones(10), sparsity=0.2).kept
    assert (~kept).nonzero().flatten().tolist() == [3, 6]
    assert select(low, torch.ones(10), sparsity=0.9).kept.tolist() == (low > 0).tolist(), "and no more than that"


@pytest.mark.parametrize("size", range(1, 11))
@pytest.mark.parametrize("keep_zeros", [False, True])
def test_a_share_of_what_moved(size: int, keep_zeros: bool) -> None:
    lows, highs = pairs("normal", 10, size)
    still = torch.rand(lows.shape, generator=torch.Generator().manual_seed(size)) < 0.5
    lows = torch.where(still, 0.0, lows)
    for low, high in zip(lows, highs, strict=True):
        moved = low != 0
        for sparsity in (0.0, 0.2, 0.5, 1.0):
            mask = select(low, high, sparsity=sparsity, of_moved=True, keep_zeros=keep_zeros)
            alone = select(low[moved], high[moved], sparsity=sparsity)
            assert mask.cosine_after == pytest.approx(float(alone.cosine_after) * _share(high, moved), abs=CLOSE)
            assert (~mask.kept).sum() <= math.floor(sparsity * int(moved.sum()))
            assert torch.equal(mask.kept[moved], alone.kept)


def _share(high: Tensor, moved: Tensor) -> float:
    """Of the norm of Δ_High, what is in the entries in which the other side has moved."""
    return float(high[moved].double().norm() / high.double().norm())


def test_what_did_not_move_is_no_part_of_the_share() -> None:
    low, high = torch.tensor([0.0] * 10 + [1.0, 1.0, -1.0, -2.0, 1.0]), torch.ones(15)
    assert select(low, high, sparsity=0.2).kept.tolist() == [True] * 9 + [False, True, True, False, False, True]
    assert select(low, high, sparsity=0.2, of_moved=True).kept.tolist() == [True] * 13 + [False, True]


def test_what_must_go_for_tau_is_first_what_did_not_move() -> None:
    low, high = torch.tensor([0.0] * 4 + [-1.0] * 4 + [1.0, 1.0]), torch.ones(10)
    mask = select(low, high, 0.6, sparsity=0.4, of_moved=True)
    assert mask.kept.tolist() == [True, True, *[False] * 2, True, True, *[False] * 2, True, True]
    assert select(low, high, 0.5, sparsity=0.5, of_moved=True).kept.sum() == 5


def test_nothing_is_dropped_without_sparsity() -> None:
    low, high = (tensor[0] for tensor in pairs("normal", 1, 50))
    mask = select(low, high, sparsity=0.0)
    assert mask.kept.all()
    assert mask.cosine_after == mask.cosine_before


def test_zeros_are_kept_before_anything_that_disagrees() -> None:
    low, high = torch.tensor([0.0, 1.0, 0.0, -1.0, 0.0]), torch.ones(5)
    assert select(low, high, sparsity=0.2).kept.tolist() == [True, True, True, False, True]
    assert select(low, high, sparsity=0.6).kept.tolist() == [True, True, False, False, False], "as few as may be"
    assert select(low, high, sparsity=0.6, keep_zeros=True).kept.tolist() == [True, True, True, False, True]
    assert select(low, high, sparsity=1.0).kept.tolist() == [False, True, False, False, False]
    assert select(torch.zeros(4), torch.ones(4), sparsity=0.5).kept.tolist() == [True, True, False, False]


def test_of_equal_entries_the_last_are_dropped() -> None:
    low, high = -torch.ones(4), torch.ones(4)
    assert select(low, high, sparsity=0.5).kept.tolist() == [True, True, False, False]
    assert select(torch.tensor([2.0, -1.0, -1.0, 2.0]), high, sparsity=0.25).kept.tolist() == [True, True, False, True]


@pytest.mark.parametrize(("tau", "sparsity"), [(1.0, -0.1), (1.0, 1.1), (0.5, 0.4), (1.0, float("nan"))])
def test_a_sparsity_out_of_range(tau: float, sparsity: float) -> None:
    with pytest.raises(ValueError, match=r"sparsity is .*; accepted: 0 to 1, and no less than 1 − tau"):
        select(torch.ones(3), torch.ones(3), tau, sparsity=sparsity)


def best_of_all_thresholds(low: Tensor, high: Tensor, fewest: int) -> float:
    """Greatest cosine of the S(t), of a t from every interval in which S(t) is constant."""
    x, y = (low.double() * high.double()).numpy(), (low.double() ** 2).numpy()
    with np.errstate(all="ignore"):
        edges = np.concatenate([((x[:, None] - x) / (y[:, None] - y)).ravel(), x / y])
    edges = np.unique(np.concatenate([[0.0], edges[np.isfinite(edges) & (edges > 0)]]))
    edges = np.append(edges, edges[-1] * 4 + 1)
    best = -1.0
    for t in (edges[1:] + edges[:-1]) / 2:
        scores = x - t * y
        kept = np.argsort(-scores, kind="stable")[: max(fewest, int((scores > 0).sum()))]
        square = float(y[kept].sum())
        best = max(best, float(x[kept].sum()) / math.sqrt(square) if square else 0.0)
    return best / float(high.double().norm())


@pytest.mark.parametrize(("block", "small", "sample"), SIZES)
@pytest.mark.parametrize("kind", ["normal", "agreeing", "low-bit", "decades", "extremes", "integers"])
def test_passes_over_blocks_samples_and_digits(
    kind: str, block: int, small: int, sample: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("BLOCK", block), ("SMALL", small), ("SAMPLE", sample)):
        monkeypatch.setattr(sizes, name, size)
    for low, high in zip(*pairs(kind, 2, 60), strict=True):
        for sparsity in (0.05, 0.2, 0.5, 0.9):
            fewest = 60 - math.floor(sparsity * 60)
            mask = select(low, high, sparsity=sparsity)
            assert mask.kept.sum() >= fewest
            summit = best_of_all_thresholds(low, high, fewest)
            assert mask.cosine_after == pytest.approx(summit, abs=CLOSE)


@pytest.mark.parametrize("sparsity", [0.02, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("kind", ["normal", "agreeing", "low-bit", "decades"])
def test_large_arrays_are_solved_as_small_ones(kind: str, sparsity: float, monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = (tensor.view(-1) for tensor in pairs(kind, 1, 100_000))
    high = high + 0.3 * low  # something to agree on
    at_once = select(low, high, sparsity=sparsity)
    for name, size in (("SMALL", 2000), ("SAMPLE", 1000), ("BLOCK", 512)):
        monkeypatch.setattr(sizes, name, size)
    mask = select(low, high, sparsity=sparsity)
    assert mask.cosine_after == pytest.approx(at_once.cosine_after, abs=CLOSE)
    assert int((mask.kept != at_once.kept).sum()) <= 2, "but for entries that make no difference"
    assert mask.kept.sum() >= 100_000 - math.floor(sparsity * 100_000)
