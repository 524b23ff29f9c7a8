"""Averages of tensors: the weighted mean, and three that a minority of wrong tensors cannot carry away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from prowd.errors import ConfigError

__all__ = ["MEAN", "Rule", "average"]

ACCEPTED = "none, median, trimmed:SHARE with a share from 0 to below 0.5 as in trimmed:0.2, or krum"


@dataclass(frozen=True)
class Rule:
    """How several tensors become one."""

    kind: Literal["none", "median", "trimmed", "krum"] = "none"
    share: float = 0.0
    """Of the tensors, how many are trimmed at either end."""

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


MEAN = Rule()


def average(tensors: Sequence[Tensor], shares: Sequence[float], rule: Rule = MEAN) -> Tensor:
    """One tensor of several, as float32: computed in float64, in the order given.

    none: the mean by shares. median: of each entry; of an even number the mean of the middle two; shares do not count.
    trimmed: of each entry the ⌊share·n⌋ lowest and as many highest are left out, the rest is averaged by its shares.
    krum (multi-Krum, Blanchard et al., 2017): of n tensors f = ⌊(n − 3)/2⌋ may be wrong; the n − f that are nearest to
    their n − f − 2 nearest others are averaged by their shares.
    """
    if rule.kind == "median":
        return _middle(torch.stack([tensor.double() for tensor in tensors])).float()
    if rule.kind == "trimmed":
        return _trimmed(tensors, shares, rule.share)
    if rule.kind == "krum" and len(tensors) > 4:
        kept = _nearest(tensors, (len(tensors) - 3) // 2)
        return _mean([tensors[n] for n in kept], [shares[n] for n in kept])
    return _mean(tensors, shares)


def _mean(tensors: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    total = torch.zeros(tensors[0].shape, dtype=torch.float64)
    for tensor, share in zip(tensors, shares, strict=True):
        total.add_(tensor.double(), alpha=share)
    return (total / sum(shares)).float()


def _middle(stacked: Tensor) -> Tensor:
    """The median of each entry along the first axis; torch's own is the lower of the middle two."""
    ordered, half = stacked.sort(0).values, len(stacked) // 2
    return ordered[half] if len(stacked) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _trimmed(tensors: Sequence[Tensor], shares: Sequence[float], share: float) -> Tensor:
    cut = min(int(share * len(tensors) + 1e-9), (len(tensors) - 1) // 2)  # 0.3 · 10 is a hair below 3
    ordered = torch.stack([tensor.double() for tensor in tensors]).sort(dim=0, stable=True)
    inner = slice(cut, len(tensors) - cut)
    weights = torch.tensor(shares, dtype=torch.float64)[ordered.indices[inner]]
    return ((ordered.values[inner] * weights).sum(0) / weights.sum(0)).float()


def _nearest(tensors: Sequence[Tensor], wrong: int) -> list[int]:
    """Those of the lowest Krum scores, in their order: all but ``wrong``, of equals the first."""
    flat = torch.stack([tensor.double().flatten() for tensor in tensors])
    squares = torch.stack([(flat - one).square().sum(1) for one in flat])
    others = squares.sort(1).values[:, 1 : len(tensors) - wrong - 1]  # the first is the distance to itself
    return sorted(others.sum(1).sort(stable=True).indices[: len(tensors) - wrong].tolist())
