"""Methods that are no proposals: each has all of ProWD-SWA but the rule by which it chooses what to drop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from prowd.methods import ProWDSwa, ServerState
from prowd.scene import Scene
from prowd.seeds import generator
from prowd.selection import Mask

__all__ = ["MoversSwa", "RandomSwa"]

Values = Mapping[str, Tensor]


@dataclass(frozen=True)
class RandomSwa(ProWDSwa):
    """Masks drop as many entries of each tensor, drawn at random: does it matter which?"""

    name: ClassVar[str] = "prowd-swa-random"
    summary: ClassVar[str] = "selective aggregation that drops as many entries at random"

    def masks(self, scene: Scene, state: ServerState, low: Values, high: Values) -> dict[str, Mask]:
        """Those of Eq. 8, shuffled."""
        drawn: dict[str, Mask] = {}
        for name, mask in super().masks(scene, state, low, high).items():
            random = generator(scene.seed, "random mask", state.round, name)
            order = torch.randperm(mask.kept.numel(), generator=random).to(mask.kept.device)
            drawn[name] = _keeping(mask, mask.kept.flatten()[order], low[name], high[name])
        return drawn


@dataclass(frozen=True)
class MoversSwa(ProWDSwa):
    """Masks drop as many entries, those that moved the furthest: does it matter where high-bit clients went?"""

    name: ClassVar[str] = "prowd-swa-movers"
    summary: ClassVar[str] = "selective aggregation that drops as many entries, the ones that moved the furthest"

    def masks(self, scene: Scene, state: ServerState, low: Values, high: Values) -> dict[str, Mask]:
        """Of the sizes of those of Eq. 8; of entries that moved as far, the first are kept."""
        chosen: dict[str, Mask] = {}
        for name, mask in super().masks(scene, state, low, high).items():
            nearest = low[name].abs().flatten().argsort(stable=True)[: int(mask.kept.sum())]
            kept = torch.zeros_like(mask.kept.flatten())
            kept[nearest] = True
            chosen[name] = _keeping(mask, kept, low[name], high[name])
        return chosen


def _keeping(mask: Mask, kept: Tensor, low: Tensor, high: Tensor) -> Mask:
    """A mask of other entries, with the figures that these have."""
    moved, others = low.double().flatten(), high.double().flatten()
    square = float(moved.square().sum())
    return replace(
        mask,
        kept=kept.view(mask.kept.shape),
        cosine_after=float(torch.cosine_similarity(kept * moved, others, dim=0)),
        kept_movement=float((kept * moved.square()).sum()) / square if square else 0.0,
    )
