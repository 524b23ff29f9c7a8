"""The mask and its cosines, from two updates."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from prowd.methods.prowd.selection.blocks import moments, places, take_first
from prowd.methods.prowd.selection.entries import Entries
from prowd.methods.prowd.selection.hull import search

__all__ = ["Mask", "select"]


@dataclass(frozen=True)
class Mask:
    """The entries of the low-bit update that are kept, and its cosine with the high-bit one before and after."""

    kept: Tensor
    cosine_before: float
    cosine_after: float
    kept_movement: float
    """Share of ‖Δ_Low‖² that the kept entries have; 0 where nothing moved."""

    @property
    def kept_fraction(self) -> float:
        """Share of the entries that is kept; 0 of no entries."""
        return int(self.kept.sum()) / max(self.kept.numel(), 1)


def select(
    delta_low: Tensor,
    delta_high: Tensor,
    tau: float = 1.0,
    *,
    sparsity: float = 1.0,
    of_moved: bool = False,
    keep_zeros: bool = False,
) -> Mask:
    """Return the mask c of the greatest cos(c⊙Δ_Low, Δ_High) that keeps at most a share τ of the entries.

    Of n entries it keeps at most floor(τ·n), and drops at most floor(sparsity·n) or what τ demands; with ``of_moved``
    that is floor(sparsity·m), m being how many have Δ_Low ≠ 0, and τ demands zeros first. Where nothing
    agrees in sign the mask is empty, or as empty as it may be: of the greatest scalar product. Of several optima it is
    the one that keeps the fewest entries, then that of the smallest ‖c⊙Δ_Low‖; of entries with equal |Δ_Low| and
    |Δ_High|, those that come first. Entries with Δ_Low = 0 do not change the cosine: they are dropped as far as the
    sparsity allows or, with ``keep_zeros``, kept as far as τ allows, first ones first. The cosine with a zero vector
    counts as 0.
    """
    low, high = _checked(delta_low, delta_high, tau, sparsity)
    low_square, high_square, dot, energies = moments(low, high)
    is_zero = low == 0
    zeros = int(is_zero.sum())
    most = math.floor(tau * low.numel())
    least = low.numel() - math.floor(sparsity * (low.numel() - of_moved * zeros))
    fewest = min(least, most)
    needed = min(least - zeros, most) if of_moved else max(0, fewest - zeros)  # besides zeros, which cost nothing
    kept = torch.zeros_like(low, dtype=torch.bool)
    count, best_square, best_dot = _solve(low, high, is_zero, needed, most, energies, kept)
    take_first(is_zero, most - count if keep_zeros else max(0, fewest - count), kept)
    before, after = _cosine(dot, low_square, high_square), _cosine(best_dot, best_square, high_square)
    return Mask(kept.view(delta_low.shape), before, after, best_square / low_square if low_square else 0.0)


def _solve(
    low: Tensor, high: Tensor, is_zero: Tensor, fewest: int, most: int, energies: Tensor, kept: Tensor
) -> tuple[int, float, float]:
    """Write the mask to ``kept``, its zeros apart; returns its count, D and N."""
    moving = places(~is_zero) if fewest and bool(is_zero.any()) else None
    entries = Entries(low, high) if moving is None else Entries(low[moving], high[moving])
    best = search(entries, fewest, most, energies)
    out = kept if moving is None else torch.zeros(len(entries), dtype=torch.bool, device=low.device)
    best = entries.cut(best.t, best.floor, best.ties, out)
    if moving is not None:
        kept[moving] = out
    return best.count, best.square, best.dot


def _checked(low: Tensor, high: Tensor, tau: float, sparsity: float) -> tuple[Tensor, Tensor]:
    if low.shape != high.shape:
        raise ValueError(f"shape mismatch: delta_low is {tuple(low.shape)}, delta_high is {tuple(high.shape)}")
    if not 0.0 < tau <= 1.0:
        raise ValueError(f"tau is {tau}; accepted: above 0 and at most 1")
    if not (0.0 <= sparsity <= 1.0 and sparsity + tau >= 1.0 - 1e-9):
        raise ValueError(f"sparsity is {sparsity}; accepted: 0 to 1, and no less than 1 − tau")
    for name, tensor in (("delta_low", low), ("delta_high", high)):
        if tensor.dtype != torch.float32:
            raise ValueError(f"{name} is {tensor.dtype}; accepted: torch.float32")
    return low.detach().reshape(-1), high.detach().reshape(-1)


def _cosine(dot: float, square: float, other: float) -> float:
    if square == 0.0 or other == 0.0:
        return 0.0
    return max(-1.0, min(1.0, dot / (math.sqrt(square) * math.sqrt(other))))
