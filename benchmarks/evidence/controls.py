"""Methods that are no proposals: each has all of another but the part whose effect is asked for."""

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

__all__ = ["RandomSwa"]


@dataclass(frozen=True)
class RandomSwa(ProWDSwa):
    """ProWD-SWA with masks that keep as many entries of each tensor, drawn at random: does it matter which?"""

    name: ClassVar[str] = "prowd-swa-random"
    summary: ClassVar[str] = "selective aggregation with random masks of the same sizes"

    def masks(
        self, scene: Scene, state: ServerState, low: Mapping[str, Tensor], high: Mapping[str, Tensor]
    ) -> dict[str, Mask]:
        """Those of Eq. 8, shuffled."""
        drawn: dict[str, Mask] = {}
        for name, mask in super().masks(scene, state, low, high).items():
            random = generator(scene.seed, "random mask", state.round, name)
            order = torch.randperm(mask.kept.numel(), generator=random).to(mask.kept.device)
            kept = mask.kept.flatten()[order].view(mask.kept.shape)
            cosine = torch.cosine_similarity(
                (kept * low[name]).double().flatten(), high[name].double().flatten(), dim=0
            )
            drawn[name] = replace(mask, kept=kept, cosine_after=float(cosine))
        return drawn
