"""The mask of selective weight aggregation (Section 4.3, Eq. 8), solved to its global optimum.

Write x = Δ_Low·Δ_High and y = Δ_Low² entrywise, and N = Σ c·x and D = Σ c·y of the entries kept. The mask of the
greatest cosine is that of the greatest N²/D, and has entries with x > 0 only. Since N²/D = max_t 4t(N − t·D), attained
at t = N/2D, the optimum is some S(t), the mask of the greatest N − t·D: all entries of positive score x − t·y or, where
more than k have one, the k of greatest score. k = ⌊τ·n⌋ is how many of n entries a mask may keep.

Where k does not bind, S(t) is a prefix of the entries in the order of x/y = Δ_High/Δ_Low, and one sort finds the best.
Where it binds, the points (N, D) of S(a) and S(b), a < b, are on the concave hull of what masks can reach. The hull
between them is in the triangle of the two points and the one where their support lines, of slopes a and b, cross. N²/D
is convex: where its value at that corner is below the best one found, no better mask is between. Otherwise the stretch
from a to b is split.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Mask", "select"]

CLOSE = 2.0**-46  # values of N²/D that differ by less, relatively, are equal: above their rounding
Floats = NDArray[np.float64]


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


def select(delta_low: Tensor, delta_high: Tensor, tau: float = 1.0) -> Mask:
    """Return the mask c of the greatest cos(c⊙Δ_Low, Δ_High) that keeps at most a share τ of the entries.

    Where nothing agrees in sign it is empty. Of several optima it is the one of the smallest ‖c⊙Δ_Low‖, which keeps
    the fewest entries; of equal entries those that come first. Entries with Δ_Low = 0 do not change the cosine and are
    dropped. The cosine with a zero vector counts as 0.
    """
    if delta_low.shape != delta_high.shape:
        raise ValueError(f"delta_low is {tuple(delta_low.shape)}, delta_high is {tuple(delta_high.shape)}: not alike")
    if not 0.0 < tau <= 1.0:
        raise ValueError(f"tau is {tau}; accepted: above 0 and at most 1")
    low, high = _floats("delta_low", delta_low), _floats("delta_high", delta_high)
    x, y = low * high, low * low  # exact: products of float32 numbers
    kept = np.flatnonzero(x > 0)
    kept = kept[_best(x[kept], y[kept], math.floor(tau * x.size))]
    square, kept_square, other = float(y.sum()), float(y[kept].sum()), float((high * high).sum())
    mask = np.zeros(x.size, dtype=np.bool_)
    mask[kept] = True
    return Mask(
        torch.from_numpy(mask).view(delta_low.shape).to(delta_low.device),
        _cosine(float(x.sum()), square, other),
        _cosine(float(x[kept].sum()), kept_square, other),
        kept_square / square if square else 0.0,
    )


class _Point:
    """S(t), with its D and N."""

    def __init__(self, t: float, x: Floats, y: Floats, most: int) -> None:
        scores = x - t * y
        kept = np.flatnonzero(scores > 0)
        if kept.size > most:
            kept = np.sort(kept[np.argsort(-scores[kept], kind="stable")[:most]])
        self.t, self.kept, self.square, self.dot = t, kept, float(y[kept].sum()), float(x[kept].sum())
        self.value = self.dot * (self.dot / self.square) if kept.size else 0.0
        self.rise = self.dot * (1 + 2.0**-50) - t * self.square  # of the support line, at D = 0, and rounding's share


def _best(x: Floats, y: Floats, most: int) -> NDArray[np.intp]:
    """The mask of the greatest N²/D that keeps at most ``most`` entries, all of which have x > 0."""
    if not x.size or not most:
        return np.empty(0, dtype=np.intp)
    ratios = x / y
    order = np.argsort(-ratios, kind="stable")
    dots, squares = x[order[:most]].cumsum(), y[order[:most]].cumsum()
    values = dots * (dots / squares)
    shortest = int((values >= values.max() * (1 - CLOSE)).argmax())
    best = _Point(0.5 * float(dots[shortest] / squares[shortest]), x, y, most)
    if x.size <= most:
        return best.kept
    greatest = best.value
    stretches = [(_Point(0.0, x, y, most), _Point(float(ratios[order[most]]), x, y, most))]
    while stretches:
        a, b = stretches.pop()
        for point in (a, b):
            greatest = max(greatest, point.value)
            enough = greatest * (1 - CLOSE)
            if point.value >= enough and (best.value < enough or point.square < best.square):
                best = point
        t = _between(a, b, greatest * (1 - CLOSE))
        if t is not None:
            middle = _Point(t, x, y, most)
            stretches += [(a, middle), (middle, b)]
    return best.kept


def _between(a: _Point, b: _Point, enough: float) -> float | None:
    """Where to look for an optimum from a to b: at the slope of the chord. None if there is none of value ``enough``.

    An optimum's t is its own N/2D, and N/D rises with t: so it is from N/2D of a to that of b.
    """
    low, high = max(a.t, 0.5 * a.dot / a.square), min(b.t, 0.5 * b.dot / b.square) if b.square else b.t
    if a.square <= b.square or high - low <= low * 2.0**-50:
        return None
    square = min(max((a.rise - b.rise) / (b.t - a.t), b.square), a.square)  # D of the corner
    dot = min(a.rise + a.t * square, b.rise + b.t * square)
    if square and dot * (dot / square) < enough:
        return None
    chord = (a.dot - b.dot) / (a.square - b.square)
    return chord if low < chord < high else math.sqrt(low) * math.sqrt(high)


def _floats(name: str, delta: Tensor) -> Floats:
    if delta.dtype != torch.float32:
        raise ValueError(f"{name} is {delta.dtype}; accepted: torch.float32")
    if not bool(delta.isfinite().all()):
        raise ValueError(f"{name} has entries that are not finite")
    values: Floats = delta.detach().reshape(-1).cpu().double().numpy()
    return values


def _cosine(dot: float, square: float, other: float) -> float:
    if square == 0.0 or other == 0.0:
        return 0.0
    return max(-1.0, min(1.0, dot / (math.sqrt(square) * math.sqrt(other))))
