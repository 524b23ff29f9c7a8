"""Methods that evidence is held against: they differ from the real ones by the part that is asked for, and no other."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from benchmarks.evidence.controls import MoversSwa, RandomSwa
from prowd.methods import ProWDSwa, ServerState
from prowd.numbers.bits import FLOAT32

from .scenes import INT8, dot, scene

SCENE = scene(INT8, INT8, FLOAT32, architecture=dot(40, 5))
START = ServerState(1, {})


def movements(seed: int) -> dict[str, Tensor]:
    """Of a layer, and the same of another."""
    drawn = torch.randn(5, 40, generator=torch.Generator().manual_seed(seed))
    return {"fc.weight": drawn, "other.weight": drawn}


@pytest.mark.parametrize("sparsity", [0.2, 1.0])
@pytest.mark.parametrize("control", [RandomSwa, MoversSwa])
def test_controls_drop_as_much_as_equation_8(control: type[ProWDSwa], sparsity: float) -> None:
    low, high = movements(1), movements(2)
    best = ProWDSwa(sparsity=sparsity).masks(SCENE, START, low, high)["fc.weight"]
    mask = control(sparsity=sparsity).masks(SCENE, START, low, high)["fc.weight"]
    assert mask.kept.shape == best.kept.shape
    assert 0 < int(mask.kept.sum()) == int(best.kept.sum()) < 200
    assert not torch.equal(mask.kept, best.kept)
    assert mask.cosine_before == best.cosine_before
    assert mask.cosine_after == pytest.approx(cosine(mask.kept * low["fc.weight"], high["fc.weight"]))
    assert mask.cosine_after < best.cosine_after
    squares = low["fc.weight"].double().square()
    assert mask.kept_movement == pytest.approx(float(squares[mask.kept].sum() / squares.sum()))
    still = {name: torch.zeros(5, 40) for name in high}
    assert control(sparsity=sparsity).masks(SCENE, START, still, high)["fc.weight"].kept_movement == 0.0


def cosine(one: Tensor, other: Tensor) -> float:
    a, b = one.flatten().tolist(), other.flatten().tolist()
    return float(sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b))


def test_what_moved_the_furthest_is_dropped() -> None:
    low, high = movements(1), movements(2)
    mask = MoversSwa(sparsity=0.2).masks(SCENE, START, low, high)["fc.weight"]
    moved = low["fc.weight"].abs()
    assert int(mask.kept.sum()) == 160
    assert moved[mask.kept].max() < moved[~mask.kept].min()


def test_random_masks_are_drawn_anew_by_seed_and_round_and_tensor() -> None:
    low, high, method = movements(1), movements(2), RandomSwa()

    def kept(seed: int, round_: int, name: str = "fc.weight") -> Tensor:
        given = replace(SCENE, seed=seed)
        return method.masks(given, replace(START, round=round_), low, high)[name].kept

    assert torch.equal(kept(0, 1), kept(0, 1))
    assert not torch.equal(kept(0, 1), kept(0, 2))
    assert not torch.equal(kept(0, 1), kept(1, 1))
    assert not torch.equal(kept(0, 1), kept(0, 1, "other.weight"))
