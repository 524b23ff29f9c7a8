"""Robust averages as their definitions have them, entry by entry in Python floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median


def weighted(values: Sequence[float], shares: Sequence[float]) -> float:
    """The mean by shares."""
    return math.fsum(value * share for value, share in zip(values, shares, strict=True)) / math.fsum(shares)


def trimmed(values: Sequence[float], shares: Sequence[float], cut: int) -> float:
    """Leave out the ``cut`` lowest and highest; of equals the first in order counts as lower."""
    order = sorted(range(len(values)), key=lambda n: (values[n], n))[cut : len(values) - cut]
    return weighted([values[n] for n in order], [shares[n] for n in order])


def krum(vectors: Sequence[Sequence[float]], wrong: int) -> list[int]:
    """Which vectors multi-Krum keeps when ``wrong`` of them may be wrong."""
    count = len(vectors)
    scores: list[float] = []
    for n, one in enumerate(vectors):
        squares = sorted(
            math.fsum((a - b) ** 2 for a, b in zip(one, other, strict=True))
            for m, other in enumerate(vectors)
            if m != n
        )
        scores.append(math.fsum(squares[: count - wrong - 2]))
    return sorted(sorted(range(count), key=lambda n: (scores[n], n))[: count - wrong])


def averaged(vectors: Sequence[Sequence[float]], shares: Sequence[float], kind: str, cut: int = 0) -> list[float]:
    """The average of vectors by a rule."""
    if kind == "krum" and len(vectors) > 4:
        kept = krum(vectors, (len(vectors) - 3) // 2)
        vectors, shares = [vectors[n] for n in kept], [shares[n] for n in kept]
    columns = list(zip(*vectors, strict=True))
    if kind == "median":
        return [median(column) for column in columns]
    return [trimmed(column, shares, cut if kind == "trimmed" else 0) for column in columns]
