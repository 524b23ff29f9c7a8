"""The search for the optimum along the hull of the points that masks can reach.

Candidates. S(t) maximises N − t·D over all masks allowed, so its point P(t) = (N, D) is on the concave upper hull of
the points masks can reach, and as t grows N and D fall and N/D rises. Since N²/D = max_t 4t(N − tD), attained at
t = N/2D, the optimum is the S(t) of some t that equals its own N/2D. There may be many such t: iterating t <- N/2D
climbs, but to the nearest hilltop only.

Where at least m entries are kept, N may be negative and N − t·D too. It is N/2 at an optimum and falls as t grows: so
optima are where it is positive, and up to there N/D rises.

Proof. The hull from P(a) to P(b), a < b, is in the triangle of P(a), P(b) and the point Q where their support lines, of
slopes a and b, cross. N²/D is convex, so in that triangle it is greatest at a corner: where its value at Q is below the
best one found, the stretch from a to b has no optimum. Nor has it unless max(a, N/2D at a) < min(b, N/2D at b): the t
of an optimum is between these. Stretches that neither rule closes are split at such a t. Entries that are in, or out,
all along a stretch are set aside, so that passes soon are short. Where no limit binds, the optimum is a prefix of the
entries in the order of Δ_High/Δ_Low, and few enough of them are sorted.

Patience. Values of N²/D that differ by less than ``CLOSE`` relatively count as equal. Data made to have hundreds of
hills of one height would be searched for long: after ``PATIENCE`` points of the hull that difference doubles every 25,
and the mask is proven to be as good as any but for so much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from prowd.methods.prowd.selection import sizes
from prowd.methods.prowd.selection.blocks import EXPONENTS
from prowd.methods.prowd.selection.entries import CLOSE, Entries, Point

__all__ = ["search"]

PATIENCE = 500  # points of the hull; 50 are many unless data are made to have no summit


@dataclass(frozen=True)
class _Stretch:
    """The hull from P(a) to P(b), and the entries that are open there."""

    a: Point
    b: Point
    entries: Entries

    @property
    def low(self) -> float:
        """Least t of an optimum."""
        return max(self.a.t, self.a.rate)

    @property
    def high(self) -> float:
        """Greatest t of an optimum."""
        return min(self.b.t, self.b.rate) if self.b.rise > 0 else self.b.t

    @property
    def bound(self) -> float:
        """N²/D where the support lines cross, both raised by what rounding may have taken."""
        a, b = self.a, self.b
        square = min(max((a.rise - b.rise) / (b.t - a.t), b.square), a.square)
        dot = min(a.rise + a.t * square, b.rise + b.t * square)
        return max(dot, 0.0) * (dot / square) if square else math.inf

    def middle(self) -> float | None:
        """Where to look for more of the hull: at the slope of the chord. None if a support line is the chord."""
        a, b = self.a, self.b
        chord = (a.dot - b.dot) / (a.square - b.square)
        if a.t < chord < b.t:
            return chord
        if a.rise > 0.1 * a.dot:
            return None
        middle = math.sqrt(self.low) * math.sqrt(self.high)  # the chord is lost in the rounding of N and t·D
        return middle if a.t < middle < b.t else None


class _Record:
    """The best value so far, and of the points that are as good the one with the least D: it keeps the fewest."""

    def __init__(self, point: Point) -> None:
        self.point, self.value, self.points = point, point.value, 1

    def offer(self, point: Point) -> None:
        self.points += 1
        self.value = max(self.value, point.value)
        enough = self.value * (1 - CLOSE)
        if point.value >= enough and (self.point.value < enough or point.square < self.point.square):
            self.point = point

    def rules_out(self, bound: float) -> bool:
        impatience = math.exp2((self.points - PATIENCE) / 25) if self.points > PATIENCE else 0.0
        return bound < self.value * (1 + CLOSE * (impatience - 1))


def _ceiling(energies: Tensor, value: float) -> float:
    """Power of two that no t of a set better than ``value`` reaches: by Cauchy and Schwarz N²/D <= Σ c·Δ_High²."""
    tails = energies.flip(0).cumsum(0)
    return math.ldexp(1.0, int((tails >= value * (1 - CLOSE)).sum()) - EXPONENTS // 2 + 1)


def _last(entries: Entries, first: Point, fewest: int, most: int, energies: Tensor) -> Point:
    """An S(t) beyond all optima."""
    if fewest == 0:
        return entries.best(_ceiling(energies, first.value), fewest, most)
    point = first
    while point.rise > 0:
        point = entries.best(4 * max(point.t, point.rate), fewest, most)
    return point


def search(entries: Entries, fewest: int, most: int, energies: Tensor) -> Point:
    """The S(t) of the greatest N²/D for ``fewest`` to ``most`` entries, none with Δ_Low = 0 unless ``fewest`` is 0.

    If no such mask has N > 0, that of the greatest N. ``energies`` are those of ``moments``.
    """
    first = entries.best(0.0, fewest, most)
    if first.dot <= 0:
        return first
    record = _Record(first)
    last = _last(entries, first, fewest, most, energies)
    record.offer(last)
    stack = [_Stretch(first, last, entries)]
    while stack:
        stretch = stack.pop()
        a, b, entries, low, high = stretch.a, stretch.b, stretch.entries, stretch.low, stretch.high
        if a.square <= b.square or high - low <= low * 2.0**-50 or record.rules_out(stretch.bound):
            continue
        middle = stretch.middle()
        if middle is None:
            continue
        if len(entries) > sizes.BLOCK:
            entries = entries.narrowed(a, b, low, high)
        is_free = a.is_free and b.is_free  # and so all along
        is_short = is_free and len(entries) <= sizes.SMALL
        t = min(max(entries.best_prefix(low, record.value, fewest) if is_short else middle, low), high)
        point = entries.cut(t, 0.0, 0) if is_free else entries.best(t, fewest, most)
        record.offer(point)
        if not is_short:
            halves = _Stretch(a, point, entries), _Stretch(point, b, entries)
            stack += sorted(halves, key=lambda half: half.bound)  # the more promising one is next
    return record.point
