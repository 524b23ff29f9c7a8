"""Averages of tensors: the weighted mean, and others that a minority cannot carry away; and who is far off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from prowd.errors import ConfigError

__all__ = ["MEAN", "Rule", "average", "far_off"]

ACCEPTED = "none, median, trimmed:SHARE with a share from 0 to below 0.5 as in trimmed:0.2, or krum"
HAIR = 1e-9  # 0.2 · 15 is a hair above 3


@dataclass(frozen=True)
class Rule:
    """How several clients' tensors become one."""

    kind: Literal["none", "median", "trimmed", "krum"] = "none"
    share: float = 0.0
    """Of the clients of a width, how many are left out by ``trimmed``."""

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Read ``none``, ``median``, ``trimmed:0.2`` or ``krum``."""
        for kind in ("none", "median", "krum"):
            if text == kind:
                return cls(kind)
        name, _, share = text.partition(":")
        try:
            found = float(share)
        except ValueError:
            found = math.nan
        if name != "trimmed" or not 0 <= found < 0.5:
            raise ConfigError(f"robust: {text!r} is wrong; accepted: {ACCEPTED}")
        return cls("trimmed", found)

    def left_out(self, count: int) -> int:
        """How many of so many clients ``trimmed`` leaves out: its share, rounded up, but always fewer than half."""
        return min(math.ceil(self.share * count - HAIR), (count - 1) // 2)


MEAN = Rule()


def average(tensors: Sequence[Tensor], shares: Sequence[float], rule: Rule = MEAN) -> Tensor:
    """One tensor of several, as float32: computed in float64, in the order given.

    none: the mean by shares. median: of each entry; of an even number the mean of the middle two; shares do not count.
    trimmed: the mean by shares as well; whole clients have been left out before (``far_off``).
    krum (multi-Krum, Blanchard et al., 2017): of n tensors f = ⌊(n − 3)/2⌋ may be wrong; the n − f that are nearest to
    their n − f − 2 nearest others are averaged by their shares.
    """
    if rule.kind == "median":
        return _middle(torch.stack([tensor.double() for tensor in tensors])).float()
    if rule.kind == "krum" and len(tensors) > 4:
        kept = _nearest(tensors, (len(tensors) - 3) // 2)
        return _mean([tensors[n] for n in kept], [shares[n] for n in kept])
    return _mean(tensors, shares)


def far_off(clients: Sequence[Sequence[Tensor]]) -> list[float]:
    """How far each client is from the middle of all, as a multiple of how far clients usually are.

    A client is a sequence of tensors. The middle of a tensor is the median of each entry; fewer than half of the
    clients cannot carry it away. Distances to it, by l2 norm, are divided by their median, and averaged over tensors.
    """
    found = [0.0] * len(clients)
    for tensors in zip(*clients, strict=True):
        stacked = torch.stack([tensor.double().flatten() for tensor in tensors])
        distances = torch.linalg.vector_norm(stacked - _middle(stacked), dim=1)
        usual = float(_middle(distances)) or float(distances.mean()) or 1.0
        found = [total + far / usual for total, far in zip(found, distances.tolist(), strict=True)]
    return [total / max(1, len(clients[0])) for total in found]


def _mean(tensors: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    total = torch.zeros(tensors[0].shape, dtype=torch.float64)
    for tensor, share in zip(tensors, shares, strict=True):
        total.add_(tensor.double(), alpha=share)
    return (total / sum(shares)).float()


def _middle(stacked: Tensor) -> Tensor:
    """The median of each entry along the first axis; torch's own is the lower of the middle two."""
    ordered, half = stacked.sort(0).values, len(stacked) // 2
    return ordered[half] if len(stacked) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _nearest(tensors: Sequence[Tensor], wrong: int) -> list[int]:
    """Those of the lowest Krum scores, in their order: all but ``wrong``, of equals the first."""
    flat = torch.stack([tensor.double().flatten() for tensor in tensors])
    squares = torch.stack([(flat - one).square().sum(1) for one in flat])
    others = squares.sort(1).values[:, 1 : len(tensors) - wrong - 1]  # the first is the distance to itself
    return sorted(others.sum(1).sort(stable=True).indices[: len(tensors) - wrong].tolist())
