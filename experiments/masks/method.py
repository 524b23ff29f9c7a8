"""Other rules for what a mask drops than Eq. 8: a limit, and controls that drop as many entries by a rule of their own.

Use one as ``-s method=experiments/masks/method.py:LimitedSwa``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor

from prowd.device.scene import Scene
from prowd.methods import ProWD, ProWDSwa, ServerState
from prowd.methods.prowd.mask import Mask
from prowd.numbers.seeds import generator

__all__ = ["LimitedProWD", "LimitedSwa", "MoversSwa", "RandomSwa", "limited"]

Values = Mapping[str, Tensor]
Choose = Callable[[str, Tensor], Tensor]  # from a tensor's name and a flat mask to another of as many entries


@dataclass(frozen=True)
class LimitedProWD(ProWD):
    """The paper disregards "a few outliers": Eq. 8 among the masks that drop at most a share of the entries."""

    sparsity: Annotated[float, Ge(0), Le(1)] = 0.2
    """Largest share of entries that a mask may drop."""
    sparsity_of: Literal["all", "moved"] = "all"
    """Whether it is a share of all entries, or of those that moved."""
    zeros: Literal["drop", "keep"] = "drop"
    """What becomes of entries that did not move, which leave the cosine as it is."""
    scope: Literal["tensor", "global"] = "tensor"
    """Whether each tensor has a mask of its own, or one optimisation decides for all."""

    name: ClassVar[str] = "prowd-limited"
    summary: ClassVar[str] = "ProWD whose masks drop no more than a share of the entries"
    unused: ClassVar[tuple[str, ...]] = ("tau",)

    def masks(self, scene: Scene, state: ServerState, low: Values, high: Values) -> dict[str, Mask]:
        """Eq. 8 with a limit."""
        names = list(low) if self.scope == "tensor" else []
        found = {name: self._mask(low[name], high[name]) for name in names}
        if self.scope == "global":
            whole = self._mask(*(torch.cat([side[name].flatten() for name in low]) for side in (low, high)))
            parts = torch.split(whole.kept, [tensor.numel() for tensor in low.values()])
            found = {
                name: replace(whole, kept=part.view(low[name].shape)) for name, part in zip(low, parts, strict=True)
            }
        return found

    def _mask(self, low: Tensor, high: Tensor) -> Mask:
        moved = int((low != 0).sum())
        dropped = math.floor(self.sparsity * (moved if self.sparsity_of == "moved" else low.numel()))
        kept = limited(low.flatten(), high.flatten(), low.numel() - dropped)
        if self.zeros == "keep":
            kept |= low.flatten() == 0
        return _described(kept.view(low.shape), low, high)


@dataclass(frozen=True)
class LimitedSwa(LimitedProWD):
    """The same without a dequantizer."""

    name: ClassVar[str] = "prowd-swa-limited"
    summary: ClassVar[str] = "selective aggregation whose masks drop no more than a share of the entries"
    dequantizes: ClassVar[bool] = ProWDSwa.dequantizes
    unused: ClassVar[tuple[str, ...]] = (*ProWDSwa.unused, *LimitedProWD.unused)


@dataclass(frozen=True)
class RandomSwa(LimitedSwa):
    """Masks drop as many entries of each tensor, drawn at random: does it matter which?"""

    name: ClassVar[str] = "prowd-swa-random"
    summary: ClassVar[str] = "selective aggregation that drops as many entries at random"

    def masks(self, scene: Scene, state: ServerState, low: Values, high: Values) -> dict[str, Mask]:
        """Those of LimitedSwa, shuffled."""

        def shuffled(name: str, kept: Tensor) -> Tensor:
            random = generator(scene.seed, "random mask", state.round, name)
            return kept[torch.randperm(kept.numel(), generator=random).to(kept.device)]

        return _instead(super().masks(scene, state, low, high), low, high, shuffled)


@dataclass(frozen=True)
class MoversSwa(LimitedSwa):
    """Masks drop as many entries, those that moved the furthest: does it matter where high-bit clients went?"""

    name: ClassVar[str] = "prowd-swa-movers"
    summary: ClassVar[str] = "selective aggregation that drops as many entries, the ones that moved the furthest"

    def masks(self, scene: Scene, state: ServerState, low: Values, high: Values) -> dict[str, Mask]:
        """Of the sizes of those of LimitedSwa; of entries that moved as far, the first are kept."""

        def nearest(name: str, kept: Tensor) -> Tensor:
            order = low[name].abs().flatten().argsort(stable=True)
            return torch.zeros_like(kept).index_fill(0, order[: int(kept.sum())], value=True)

        return _instead(super().masks(scene, state, low, high), low, high, nearest)


def limited(low: Tensor, high: Tensor, fewest: int) -> Tensor:
    """The mask of the greatest cos(c⊙low, high) among those that keep at least ``fewest`` entries.

    Entries that did not move leave the cosine as it is, and fill a mask up only as far as they must.
    """
    still = low == 0
    kept = torch.zeros_like(still)
    moving = (~still).nonzero().flatten()
    kept[moving] = _greatest(low[moving].double(), high[moving].double(), max(0, fewest - int(still.sum())))
    filling = still.nonzero().flatten()[: max(0, fewest - int(kept.sum()))]
    return kept.index_fill(0, filling, value=True)


@dataclass(frozen=True)
class _Corner:
    """A mask that is best for some t: of the greatest N − t·D, with N = Σ c·low·high and D = Σ c·low²."""

    t: float
    kept: Tensor
    dot: float
    square: float

    @property
    def cosine(self) -> float:
        """Up to the factor that all masks share; at most 0 where nothing agrees in sign."""
        return self.dot / math.sqrt(self.square) if self.square else 0.0


def _greatest(low: Tensor, high: Tensor, fewest: int) -> Tensor:
    """The best mask is a corner of the convex hull of all (D, N): halve the hull, leave out what cannot be better.

    Between two corners the hull is below both their tangents, so no mask there has a greater cosine than the point
    where these meet.
    """
    x, y = low * high, low.square()

    def corner(t: float) -> _Corner:
        order = y if math.isinf(t) else t * y - x
        kept = torch.zeros_like(y, dtype=torch.bool) if math.isinf(t) else order < 0
        if int(kept.sum()) < fewest:
            kept = torch.zeros_like(kept).index_fill(0, order.argsort(stable=True)[:fewest], value=True)
        return _Corner(t, kept, float(x[kept].sum()), float(y[kept].sum()))

    first, last = corner(0.0), corner(math.inf)
    best = first if first.dot <= 0 else max(first, last, key=lambda one: one.cosine)
    open_ = [(first, last)] if first.dot > 0 else []
    while open_:
        right, left = open_.pop()
        if right.square <= left.square or _bound(right, left) <= best.cosine * (1 + 1e-12):
            continue
        middle = corner(max(0.0, (right.dot - left.dot) / (right.square - left.square)))
        if middle.square in (right.square, left.square):
            continue
        best = max(best, middle, key=lambda one: one.cosine)
        open_ += [(middle, left), (right, middle)]
    return best.kept


def _bound(right: _Corner, left: _Corner) -> float:
    """The cosine where the tangents of two corners meet."""
    square = left.square
    if math.isfinite(left.t) and left.t > right.t:
        rise = left.dot - left.t * left.square - right.dot + right.t * right.square
        square = rise / (right.t - left.t)
    dot = right.dot + right.t * (square - right.square)
    return dot / math.sqrt(square) if square > 0 else math.inf


def _instead(masks: Mapping[str, Mask], low: Values, high: Values, choose: Choose) -> dict[str, Mask]:
    """Masks of other entries, with figures of their own."""
    return {
        name: _described(choose(name, mask.kept.flatten()).view(mask.kept.shape), low[name], high[name])
        for name, mask in masks.items()
    }


def _described(kept: Tensor, low: Tensor, high: Tensor) -> Mask:
    moved, others, square = low.double(), high.double(), float(low.double().square().sum())
    return Mask(
        kept=kept,
        cosine_before=_cosine(moved, others),
        cosine_after=_cosine(kept * moved, others),
        kept_movement=float((kept * moved.square()).sum()) / square if square else 0.0,
    )


def _cosine(one: Tensor, other: Tensor) -> float:
    return float(torch.cosine_similarity(one.flatten(), other.flatten(), dim=0))
