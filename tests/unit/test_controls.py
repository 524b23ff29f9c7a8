"""Methods that evidence is held against: they differ from the real ones by the part that is asked for, and no other."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from benchmarks.evidence.controls import RandomSwa
from prowd.bits import FLOAT32
from prowd.methods import ProWDSwa, ServerState

from .scenes import INT8, dot, scene

SCENE = scene(INT8, INT8, FLOAT32, architecture=dot(40, 5))
START = ServerState(1, {})


def movements(seed: int) -> dict[str, Tensor]:
    return {"fc.weight": torch.randn(5, 40, generator=torch.Generator().manual_seed(seed))}


@pytest.mark.parametrize("sparsity", [0.2, 1.0])
def test_random_masks_have_the_size_of_those_of_equation_8(sparsity: float) -> None:
    low, high = movements(1), movements(2)
    best = ProWDSwa(sparsity=sparsity).masks(SCENE, START, low, high)["fc.weight"]
    drawn = RandomSwa(sparsity=sparsity).masks(SCENE, START, low, high)["fc.weight"]
    assert drawn.kept.shape == best.kept.shape
    assert int(drawn.kept.sum()) == int(best.kept.sum()) < 200
    assert not torch.equal(drawn.kept, best.kept)
    assert drawn.cosine_before == best.cosine_before
    pairs = [
        (a if keep else 0.0, b)
        for a, b, keep in zip(
            low["fc.weight"].flatten(), high["fc.weight"].flatten(), drawn.kept.flatten(), strict=True
        )
    ]
    norms = [math.sqrt(sum(float(pair[side]) ** 2 for pair in pairs)) for side in (0, 1)]
    expected = sum(float(a) * float(b) for a, b in pairs) / math.prod(norms)
    assert drawn.cosine_after == pytest.approx(expected)
    assert drawn.cosine_after < best.cosine_after


def test_random_masks_are_drawn_anew_by_seed_and_round_and_by_nothing_else() -> None:
    low, high, method = movements(1), movements(2), RandomSwa()

    def kept(seed: int, round_: int) -> Tensor:
        given = replace(SCENE, seed=seed)
        return method.masks(given, replace(START, round=round_), low, high)["fc.weight"].kept

    assert torch.equal(kept(0, 1), kept(0, 1))
    assert not torch.equal(kept(0, 1), kept(0, 2))
    assert not torch.equal(kept(0, 1), kept(1, 1))
