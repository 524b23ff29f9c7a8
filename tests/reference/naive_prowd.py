"""Lines 10 and 11 of Algorithm 1 transcribed naively: Python numbers, every mask tried."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

__all__ = ["best_mask", "mean", "selective_mean"]

Vector = Sequence[float]


def mean(vectors: Sequence[Vector], shares: Vector) -> list[float]:
    """Weighted mean, entry by entry."""
    return [sum(s * v[i] for s, v in zip(shares, vectors, strict=True)) / sum(shares) for i in range(len(vectors[0]))]


def best_mask(delta_low: Vector, delta_high: Vector, most: int) -> tuple[int, ...]:
    """argmax_c cos(c⊙Δ_Low, Δ_High) with |c| ≤ most, Eq. 8: of equally good masks the sparsest."""
    best, best_score = (0,) * len(delta_low), 0.0
    for mask in sorted(product((0, 1), repeat=len(delta_low)), key=sum):
        norm = math.sqrt(sum(c * low * low for c, low in zip(mask, delta_low, strict=True)))
        score = _dot(mask, delta_low, delta_high) / norm if norm else 0.0
        if sum(mask) <= most and score > best_score * (1 + 1e-12):
            best, best_score = mask, score
    return best


def _dot(mask: Sequence[int], delta_low: Vector, delta_high: Vector) -> float:
    return sum(c * low * high for c, low, high in zip(mask, delta_low, delta_high, strict=True))


def selective_mean(vectors: Sequence[Vector], shares: Vector, low: Sequence[bool], mask: Sequence[int]) -> list[float]:
    """w_G ← Σ c_n⊙w_n / Σ c_n, Eq. 9."""
    found = []
    for i, bit in enumerate(mask):
        weights = [share * (bit if is_low else 1) for share, is_low in zip(shares, low, strict=True)]
        total = sum(weight * vector[i] for weight, vector in zip(weights, vectors, strict=True))
        found.append(total / sum(weights))
    return found
