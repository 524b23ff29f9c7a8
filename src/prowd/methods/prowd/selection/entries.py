"""S(t) and its point P(t) = (N, D), of entries that grow fewer as their fates are settled.

Samples only say where to look: nothing is concluded from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from prowd.methods.prowd.selection import sizes
from prowd.methods.prowd.selection.blocks import Block, Sums, blocks, ordered, places, take_first, unordered

__all__ = ["CLOSE", "Entries", "Point"]

DIGIT = 16  # bits of a score that one pass counts
LEAST = math.ulp(0.0)  # positive number
CLOSE = 2.0**-46  # values of N²/D that differ by less, relatively, are equal: above their rounding


@dataclass(frozen=True)
class Point:
    """S(t): the entries that score above ``floor``, and the first ``ties`` of those that score just that.

    The floor is the greatest score that is out, or 0 where all positive scores are in, and no others need be: so it is
    the same whatever has been set aside.
    """

    t: float
    floor: float
    ties: int
    count: int
    square: float  # D
    dot: float  # N

    @property
    def value(self) -> float:
        """N²/D, with the sign of N; 0 of the empty set."""
        return abs(self.dot) * (self.dot / self.square) if self.square else 0.0

    @property
    def rate(self) -> float:
        """N/2D; of the empty set the most it can be at a smaller t."""
        return 0.5 * self.dot / self.square if self.square else 0.5 * self.t

    @property
    def rise(self) -> float:
        """N − t·D, the height of the support line at D = 0, and no less than it is for this N without rounding."""
        return self.dot + abs(self.dot) * 2.0**-50 - self.t * self.square

    @property
    def is_free(self) -> bool:
        """Whether it has all entries of positive score and no others, as without any limit."""
        return self.floor == 0 and self.ties == 0


class Entries:
    """Entries whose fate is open, in their order, and the sums of those set aside as kept."""

    def __init__(self, low: Tensor, high: Tensor, aside: Sums | None = None) -> None:
        self.low, self.high = low, high
        self.count, self.square, self.dot = (aside.count, aside.square, aside.dot) if aside else (0, 0.0, 0.0)
        self.sample = Block.of(low, high, slice(None, None, -(-max(low.numel(), 1) // sizes.SAMPLE)))

    def __len__(self) -> int:
        return self.low.numel()

    def best(self, t: float, fewest: int, most: int) -> Point:
        """S(t), for ``fewest`` to ``most`` entries with those set aside."""
        room = most - self.count
        point = self._top(t, room, LEAST) if len(self) > room else self.cut(t, 0.0, 0)
        if point.count >= fewest:
            return point
        if len(self) <= fewest - self.count:
            return self.cut(t, -math.inf, 0)
        return self._top(t, fewest - self.count, -math.inf)

    def _top(self, t: float, room: int, bottom: float) -> Point:
        """The ``room`` entries of greatest score, of those that score ``bottom`` or more."""
        bounds = self._likely(t, room, bottom)
        return self._top_between(t, room, bottom, *bounds) or self.cut(t, *self._floor(t, room, bottom))

    def cut(self, t: float, floor: float, ties: int, out: Tensor | None = None) -> Point:
        """Keep what scores above ``floor`` and the first ``ties`` that score just that; write the mask to ``out``."""
        sums, left = Sums(self.count, self.square, self.dot), ties
        for block in blocks(self.low, self.high):
            scores = block.scores(t)
            kept = scores > floor
            if left:
                left -= take_first(scores == floor, left, kept)
            sums.add(kept, block.x, block.y)
            if out is not None:
                out[block.at] = kept
        return Point(t, floor, ties, sums.count, sums.square, sums.dot)

    def _likely(self, t: float, room: int, bottom: float) -> tuple[float, float]:
        """Scores between which that of rank ``room`` + 1 is likely to be, none below ``bottom``."""
        scores = self.sample.scores(t)
        size, share = scores.numel(), room / len(self)
        if size == len(self):
            return bottom, math.inf
        margin = 4 * math.sqrt(size * share * (1 - share)) + 4
        first, last = math.floor(size * share - margin), math.ceil(size * share + margin)
        upper = float(scores.kthvalue(size + 1 - first).values) if first > 0 else math.inf
        lower = float(scores.kthvalue(size + 1 - last).values) if last <= size else bottom
        return max(lower, bottom), max(upper, bottom)

    def _top_between(self, t: float, room: int, bottom: float, lower: float, upper: float) -> Point | None:
        """The same in one pass, if the score of rank ``room`` + 1 is from ``lower`` to ``upper`` and few others are."""
        sums = Sums(self.count, self.square, self.dot)
        near, size = [], 0
        for block in blocks(self.low, self.high):
            scores = block.scores(t)
            above = scores > upper
            sums.add(above, block.x, block.y)
            near.append(places(above ^ (scores >= lower)) + block.at.start)
            size += near[-1].numel()
            if size > sizes.SMALL:
                return None
        room -= sums.count - self.count
        if room < 0 or (size <= room and lower > bottom):
            return None
        found = torch.cat(near)
        low, high = self.low[found], self.high[found]
        scores = Block.of(low, high, slice(None)).scores(t)
        floor = float(scores.kthvalue(size - room).values) if size > room else 0.0
        ties = room - int(torch.count_nonzero(scores > floor)) if size > room else 0
        return Entries(low, high, sums).cut(t, floor, ties)

    def _floor(self, t: float, room: int, bottom: float) -> tuple[float, int]:
        """Score of rank ``room`` + 1, and how many of that score are before it; 0 and 0 if no more reach ``bottom``.

        Floats are in the order of their bits, negative ones in reverse: these are found a digit at a time, and no
        scores are stored.
        """
        known, rank, half = 0, room + 1, 2 ** (DIGIT - 1)
        for shift in range(64 - DIGIT, -1, -DIGIT):
            is_first = shift == 64 - DIGIT
            counts = torch.zeros(2**DIGIT, dtype=torch.int64, device=self.low.device)
            for block in blocks(self.low, self.high):
                scores = block.scores(t)
                keys = ordered(scores)
                keys = keys[places((scores >= bottom) & (is_first or (keys >> shift >> DIGIT == known)))]
                counts += torch.bincount(
                    (keys >> shift) + half if is_first else keys >> shift & 2**DIGIT - 1, minlength=2**DIGIT
                )
            ranks = counts.flip(0).cumsum(0)
            if int(ranks[-1]) < rank:
                return 0.0, 0
            place = int(torch.searchsorted(ranks, rank))
            rank -= int(ranks[place - 1]) if place else 0
            digit = 2**DIGIT - 1 - place
            known = digit - half if is_first else known << DIGIT | digit
        return unordered(known), rank - 1

    def narrowed(self, a: Point, b: Point, low: float, high: float) -> Entries:
        """Set aside what is in, or out, of every S(t) from ``low`` to ``high``, if that seems to be most of it."""
        if 4 * int(_fates(self.sample, a, b, low, high)[0].sum()) > self.sample.x.numel():
            return self
        sums, lows, highs = Sums(self.count, self.square, self.dot), [], []
        for block in blocks(self.low, self.high):
            is_open, is_in = _fates(block, a, b, low, high)
            sums.add(is_in, block.x, block.y)
            still = places(is_open)
            lows.append(self.low[block.at].index_select(0, still))
            highs.append(self.high[block.at].index_select(0, still))
        return Entries(torch.cat(lows), torch.cat(highs), sums)

    def best_prefix(self, low: float, record: float, fewest: int) -> float:
        """N/2D of the best prefix by Δ_High/Δ_Low > ``low``: the shortest of those as good as any, or as ``record``.

        With those set aside it has ``fewest`` entries or more.
        """
        everything = Block.of(self.low, self.high, slice(None))
        steep = places(everything.scores(low) > 0)
        order = steep[(everything.high[steep] / everything.low[steep]).argsort(descending=True, stable=True)]
        start = [] if self.count == 0 else [torch.zeros(1, dtype=torch.float64, device=order.device)]
        squares = self.square + torch.cat([*start, everything.y[order]]).cumsum(0)
        dots = self.dot + torch.cat([*start, everything.x[order]]).cumsum(0)
        values = dots * (dots / squares)
        values[: max(0, fewest - self.count - (0 if start else 1))] = -math.inf
        place = int((values >= max(record, float(values.max())) * (1 - CLOSE)).int().argmax())
        return 0.5 * float(dots[place] / squares[place])


def _fates(block: Block, a: Point, b: Point, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Which entries are in some S(t) from ``low`` to ``high`` but not in all, and which are in all.

    Scores fall as t grows, and so does the floor: it is from ``b.floor`` to ``a.floor``.
    """
    scores = block.scores(low)
    is_in = block.scores(high) > a.floor
    is_out = scores <= 0 if b.is_free else scores < b.floor
    return ~(is_in | is_out), is_in
