"""Methods that are no proposals: each has all of ProWD-SWA but the rule by which it chooses what to drop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from prowd.device.scene import Scene
from prowd.methods import ProWDSwa, ServerState
from prowd.methods.prowd.selection import Mask
from prowd.numbers.seeds import generator

__all__ = ["MoversSwa", "RandomSwa"]

Values = Mapping[str, Tensor]
Choose = Callable[[str, Tensor], Tensor]  # from a tensor's name and a flat mask to another of as many entries


@dataclass(frozen=True)
class RandomSwa(ProWDSwa):
    """Masks drop as many entries of each tensor, drawn at random: does it matter which?"""

    name: ClassVar[str] = "prowd-swa-random"
    summary: ClassVar[str] = "selective aggregation that drops as many entries at random"

    def masks(self, scene: Scene, state: ServerState, low: Values, high: Values) -> dict[str, Mask]:
        """Those of Eq. 8, shuffled."""

        def shuffled(name: str, kept: Tensor) -> Tensor:
            random = generator(scene.seed, "random mask", state.round, name)
            return kept[torch.randperm(kept.numel(), generator=random).to(kept.device)]

        return _instead(super().masks(scene, state, low, high), low, high, shuffled)


@dataclass(frozen=True)
class MoversSwa(ProWDSwa):
    """Masks drop as many entries, those that moved the furthest: does it matter where high-bit clients went?"""

    name: ClassVar[str] = "prowd-swa-movers"
    summary: ClassVar[str] = "selective aggregation that drops as many entries, the ones that moved the furthest"

    def masks(self, scene: Scene, state: ServerState, low: Values, high: Values) -> dict[str, Mask]:
        """Of the sizes of those of Eq. 8; of entries that moved as far, the first are kept."""

        def nearest(name: str, kept: Tensor) -> Tensor:
            order = low[name].abs().flatten().argsort(stable=True)
            return torch.zeros_like(kept).index_fill(0, order[: int(kept.sum())], value=True)

        return _instead(super().masks(scene, state, low, high), low, high, nearest)


def _instead(masks: Mapping[str, Mask], low: Values, high: Values, choose: Choose) -> dict[str, Mask]:
    """Masks of other entries, with the figures that these have."""
    found: dict[str, Mask] = {}
    for name, mask in masks.items():
        kept = choose(name, mask.kept.flatten())
        moved, others = low[name].double().flatten(), high[name].double().flatten()
        square = float(moved.square().sum())
        found[name] = replace(
            mask,
            kept=kept.view(mask.kept.shape),
            cosine_after=float(torch.cosine_similarity(kept * moved, others, dim=0)),
            kept_movement=float((kept * moved.square()).sum()) / square if square else 0.0,
        )
    return found
