"""Robust averages as their definitions have them, entry by entry in Python floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median


def weighted(values: Sequence[float], shares: Sequence[float]) -> float:
    """The mean by shares."""
    return math.fsum(value * share for value, share in zip(values, shares, strict=True)) / math.fsum(shares)


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


def far_off(clients: Sequence[Sequence[Sequence[float]]]) -> list[float]:
    """Of each client, the mean over its tensors: distance to the median of each entry, by the median distance."""
    ratios: list[list[float]] = [[] for _ in clients]
    for tensors in zip(*clients, strict=True):
        middle = [median(column) for column in zip(*tensors, strict=True)]
        distances = [math.dist(tensor, middle) for tensor in tensors]
        usual = median(distances) or math.fsum(distances) / len(distances) or 1.0
        for found, distance in zip(ratios, distances, strict=True):
            found.append(distance / usual)
    return [math.fsum(found) / max(1, len(found)) for found in ratios]


def averaged(vectors: Sequence[Sequence[float]], shares: Sequence[float], kind: str) -> list[float]:
    """The average of vectors by a rule."""
    if kind == "krum" and len(vectors) > 4:
        kept = krum(vectors, (len(vectors) - 3) // 2)
        vectors, shares = [vectors[n] for n in kept], [shares[n] for n in kept]
    columns = list(zip(*vectors, strict=True))
    if kind == "median":
        return [median(column) for column in columns]
    return [weighted(column, shares) for column in columns]
