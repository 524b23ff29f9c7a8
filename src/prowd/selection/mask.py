"""The mask and its cosines, from two updates."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from prowd.selection.blocks import moments, take_first
from prowd.selection.entries import Entries
from prowd.selection.hull import search

__all__ = ["Mask", "select"]


@dataclass(frozen=True)
class Mask:
    """The entries of the low-bit update that are kept, and its cosine with the high-bit one before and after."""

    kept: Tensor
    cosine_before: float
    cosine_after: float

    @property
    def kept_fraction(self) -> float:
        """Share of the entries that is kept; 0 of no entries."""
        return int(self.kept.sum()) / max(self.kept.numel(), 1)


def select(delta_low: Tensor, delta_high: Tensor, tau: float = 1.0, *, keep_zeros: bool = False) -> Mask:
    """Return the mask c of the greatest cos(c⊙Δ_Low, Δ_High) that keeps at most floor(τ·n) of n entries.

    Where nothing agrees in sign the mask is empty. Of several optima it is the one that keeps the fewest entries, then
    that of the smallest ‖c⊙Δ_Low‖; of entries with equal |Δ_Low| and |Δ_High|, those that come first. Entries with
    Δ_Low = 0 do not change the cosine: they are dropped or, with ``keep_zeros``, kept as far as the count allows, first
    ones first. The cosine with a zero vector counts as 0.
    """
    low, high = _checked(delta_low, delta_high, tau)
    low_square, high_square, dot, energies = moments(low, high)
    limit = math.floor(tau * low.numel())
    entries = Entries(low, high)
    best = search(entries, limit, energies)
    kept = torch.zeros_like(low, dtype=torch.bool)
    best = entries.cut(best.t, best.floor, best.ties, kept)
    if keep_zeros:
        take_first(low == 0, limit - best.count, kept)
    before, after = _cosine(dot, low_square, high_square), _cosine(best.dot, best.square, high_square)
    return Mask(kept.view(delta_low.shape), before, after)


def _checked(low: Tensor, high: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    if low.shape != high.shape:
        raise ValueError(f"shape mismatch: delta_low is {tuple(low.shape)}, delta_high is {tuple(high.shape)}")
    if not 0.0 < tau <= 1.0:
        raise ValueError(f"tau is {tau}; accepted: above 0 and at most 1")
    for name, tensor in (("delta_low", low), ("delta_high", high)):
        if tensor.dtype != torch.float32:
            raise ValueError(f"{name} is {tensor.dtype}; accepted: torch.float32")
    return low.detach().reshape(-1), high.detach().reshape(-1)


def _cosine(dot: float, square: float, other: float) -> float:
    if square == 0.0 or other == 0.0:
        return 0.0
    return max(-1.0, min(1.0, dot / (math.sqrt(square) * math.sqrt(other))))
