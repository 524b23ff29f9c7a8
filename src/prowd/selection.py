"""The mask of selective weight aggregation (Section 4.3, Eq. 8), solved to its global optimum.

Write x = Δ_Low·Δ_High and y = Δ_Low² entrywise, N = Σ c·x and D = Σ c·y over the kept entries, and k for the most
entries τ allows. The mask of the greatest cosine is that of the greatest N²/D among those with N > 0.

Candidates. For t >= 0 let S(t) be the k entries of greatest score x − t·y, of positive ones only. It maximises N − t·D
over all masks allowed, so its point P(t) = (N, D) is on the concave upper hull of the points masks can reach, and as t
grows N and D fall and N/D rises. Since N²/D = max_t 4t(N − tD), attained at t = N/2D, the optimum is the S(t) of some t
that equals its own N/2D. There may be many such t: iterating t <- N/2D climbs, but to the nearest hilltop only.

Proof. The hull from P(a) to P(b), a < b, is in the triangle of P(a), P(b) and the point Q where their support lines, of
slopes a and b, cross. N²/D is convex, so in that triangle it is greatest at a corner: where its value at Q is below the
best one found, the stretch from a to b has no optimum. Nor has it unless max(a, N/2D at a) < min(b, N/2D at b): the t
of an optimum is between these. Stretches that neither rule closes are split at such a t. Entries that are in, or out,
all along a stretch are set aside, so that passes soon are short. Where τ does not bind, the optimum is a prefix of the
entries in the order of Δ_High/Δ_Low, and few enough of them are sorted.

Arithmetic. Products of float32 numbers are exact in float64 and their quotients keep their order. Sums are taken over
blocks of a fixed size, and those are added without error: the mask is the same on any number of threads. Samples only
say where to look: nothing is concluded from them. Values of N²/D that differ by less than ``CLOSE`` relatively count as
equal. Data made to have hundreds of hills of one height would be searched for long: after ``PATIENCE`` points of the
hull that difference doubles every 25, and the mask is proven to be as good as any but for so much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = ["Mask", "select"]

BLOCK = 2**14  # entries at a time: temporaries stay in the cache, and PyTorch adds so few on one thread
SMALL = 2**19  # entries that may be sorted or copied as float64: a few megabytes
SAMPLE = 2**16  # entries that tell where the score of some rank is likely to be
DIGIT = 16  # bits of a score that one pass counts
PATIENCE = 500  # points of the hull; 50 are many unless data are made to have no summit
EXPONENTS = 2**11  # of float64
LEAST = math.ulp(0.0)  # positive number
CLOSE = 2.0**-46  # values of N²/D that differ by less, relatively, are equal: above their rounding


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
    low_square, high_square, dot, energies = _moments(low, high)
    limit = math.floor(tau * low.numel())
    entries = _Entries(low, high)
    best = _search(entries, limit, energies)
    kept = torch.zeros_like(low, dtype=torch.bool)
    best = entries.cut(best.t, best.floor, best.ties, kept)
    if keep_zeros:
        _take_first(low == 0, limit - best.count, kept)
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


@dataclass(frozen=True)
class _Block:
    """Entries in float64: where they are, both updates, and their exact products."""

    at: slice
    low: Tensor
    high: Tensor
    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, low: Tensor, high: Tensor, at: slice) -> _Block:
        a, b = low[at].double(), high[at].double()
        return cls(at, a, b, a * b, a * a)

    def scores(self, t: float) -> Tensor:
        return self.x - self.y * t


def _blocks(low: Tensor, high: Tensor) -> Iterator[_Block]:
    return (_Block.of(low, high, slice(at, at + BLOCK)) for at in range(0, low.numel(), BLOCK))


class _Sums:
    """Count, D and N of masks, block by block. Equal masks of equal blocks have equal sums."""

    def __init__(self, count: int = 0, square: float = 0.0, dot: float = 0.0) -> None:
        self.count, self.squares, self.dots = count, [square], [dot]

    def add(self, kept: Tensor, x: Tensor, y: Tensor) -> None:
        """Add up to ``BLOCK`` entries."""
        factor = kept.double()
        self.count += int(torch.count_nonzero(kept))
        self.squares.append(float((y * factor).sum()))
        self.dots.append(float((x * factor).sum()))

    @property
    def square(self) -> float:
        return math.fsum(self.squares)

    @property
    def dot(self) -> float:
        return math.fsum(self.dots)


def _moments(low: Tensor, high: Tensor) -> tuple[float, float, float, Tensor]:
    """Squares of both norms, scalar product, and Σ Δ_High² by the exponent of Δ_High/Δ_Low where that is positive."""
    low_squares, high_squares, dots = [], [], []
    energies = torch.zeros(EXPONENTS, dtype=torch.float64, device=low.device)
    for block in _blocks(low, high):
        energy = block.high * block.high
        squares = float(block.y.sum()), float(energy.sum())
        for name, square in zip(("delta_low", "delta_high"), squares, strict=True):
            if not math.isfinite(square):  # squares of finite float32 numbers are far from overflow
                raise ValueError(f"{name} has entries that are not finite")
        low_squares.append(squares[0])
        high_squares.append(squares[1])
        dots.append(float(block.x.sum()))
        exponents = torch.where(block.x > 0, block.high / block.low, 0.0).view(torch.int64) >> 52
        energies += torch.bincount(exponents, weights=energy, minlength=EXPONENTS)
    energies[0] = 0.0
    return math.fsum(low_squares), math.fsum(high_squares), math.fsum(dots), energies


@dataclass(frozen=True)
class _Point:
    """S(t): the entries that score above ``floor``, and the first ``ties`` of those that score just that.

    The floor is the greatest positive score that is out, or 0: so it is the same whatever has been set aside.
    """

    t: float
    floor: float
    ties: int
    count: int
    square: float  # D
    dot: float  # N

    @property
    def value(self) -> float:
        return self.dot * (self.dot / self.square) if self.square else 0.0

    @property
    def rate(self) -> float:
        """N/2D; of the empty set the most it can be at a smaller t."""
        return 0.5 * self.dot / self.square if self.square else 0.5 * self.t

    @property
    def rise(self) -> float:
        """N − t·D, the height of the support line at D = 0, and no less than it is without rounding."""
        return self.dot * (1 + 2.0**-50) - self.t * self.square


def _places(which: Tensor) -> Tensor:
    """Where a flat mask is true: as ``nonzero``, and several times as fast."""
    return torch.from_numpy(np.flatnonzero(which.cpu().numpy())).to(which.device)


def _take_first(which: Tensor, count: int, kept: Tensor) -> int:
    """Set ``kept`` at the first ``count`` places where ``which`` is; return at how many."""
    places = _places(which)[:count]
    kept[places] = True
    return places.numel()


class _Entries:
    """Entries whose fate is open, in their order, and the sums of those set aside as kept."""

    def __init__(self, low: Tensor, high: Tensor, aside: _Sums | None = None) -> None:
        self.low, self.high = low, high
        self.count, self.square, self.dot = (aside.count, aside.square, aside.dot) if aside else (0, 0.0, 0.0)
        self.sample = _Block.of(low, high, slice(None, None, -(-max(low.numel(), 1) // SAMPLE)))

    def __len__(self) -> int:
        return self.low.numel()

    def best(self, t: float, limit: int) -> _Point:
        """S(t), for at most ``limit`` entries with those set aside."""
        room = limit - self.count
        if len(self) <= room:
            return self.cut(t, 0.0, 0)
        return self._best_between(t, room, *self._likely(t, room)) or self.cut(t, *self._floor(t, room))

    def cut(self, t: float, floor: float, ties: int, out: Tensor | None = None) -> _Point:
        """Keep what scores above ``floor`` and the first ``ties`` that score just that; write the mask to ``out``."""
        sums, left = _Sums(self.count, self.square, self.dot), ties
        for block in _blocks(self.low, self.high):
            scores = block.scores(t)
            kept = scores > floor
            if left:
                left -= _take_first(scores == floor, left, kept)
            sums.add(kept, block.x, block.y)
            if out is not None:
                out[block.at] = kept
        return _Point(t, floor, ties, sums.count, sums.square, sums.dot)

    def _likely(self, t: float, room: int) -> tuple[float, float]:
        """Scores between which that of rank ``room`` + 1 is likely to be."""
        scores = self.sample.scores(t)
        size, share = scores.numel(), room / len(self)
        if size == len(self):
            return LEAST, math.inf
        margin = 4 * math.sqrt(size * share * (1 - share)) + 4
        first, last = math.floor(size * share - margin), math.ceil(size * share + margin)
        upper = float(scores.kthvalue(size + 1 - first).values) if first > 0 else math.inf
        lower = float(scores.kthvalue(size + 1 - last).values) if last <= size else LEAST
        return max(lower, LEAST), max(upper, 0.0)

    def _best_between(self, t: float, room: int, lower: float, upper: float) -> _Point | None:
        """S(t) in one pass, if the score of rank ``room`` + 1 is from ``lower`` to ``upper`` and few others are."""
        sums = _Sums(self.count, self.square, self.dot)
        near, size = [], 0
        for block in _blocks(self.low, self.high):
            scores = block.scores(t)
            above = scores > upper
            sums.add(above, block.x, block.y)
            near.append(_places(above ^ (scores >= lower)) + block.at.start)
            size += near[-1].numel()
            if size > SMALL:
                return None
        room -= sums.count - self.count
        if room < 0 or (size <= room and lower > LEAST):
            return None
        places = torch.cat(near)
        low, high = self.low[places], self.high[places]
        scores = _Block.of(low, high, slice(None)).scores(t)
        floor = float(scores.kthvalue(size - room).values) if size > room else 0.0
        ties = room - int(torch.count_nonzero(scores > floor)) if size > room else 0
        return _Entries(low, high, sums).cut(t, floor, ties)

    def _floor(self, t: float, room: int) -> tuple[float, int]:
        """Score of rank ``room`` + 1, and how many of that score are before it; 0 and 0 if no more are positive.

        Positive floats are in the order of their bits: these are found a digit at a time, and no scores are stored.
        """
        known, rank = 0, room + 1
        for shift in range(64 - DIGIT, -1, -DIGIT):
            counts = torch.zeros(2**DIGIT, dtype=torch.int64, device=self.low.device)
            for block in _blocks(self.low, self.high):
                keys = block.scores(t).view(torch.int64)
                keys = keys[_places((keys > 0) & (keys >> shift >> DIGIT == known))]
                counts += torch.bincount(keys >> shift & 2**DIGIT - 1, minlength=2**DIGIT)
            ranks = counts.flip(0).cumsum(0)
            if int(ranks[-1]) < rank:
                return 0.0, 0
            place = int(torch.searchsorted(ranks, rank))
            rank -= int(ranks[place - 1]) if place else 0
            known = known << DIGIT | 2**DIGIT - 1 - place
        return torch.tensor(known).view(torch.float64).item(), rank - 1

    def narrowed(self, a: _Point, b: _Point, low: float, high: float) -> _Entries:
        """Set aside what is in, or out, of every S(t) from ``low`` to ``high``, if that seems to be most of it."""
        if 4 * int(_fates(self.sample, a, b, low, high)[0].sum()) > self.sample.x.numel():
            return self
        sums, lows, highs = _Sums(self.count, self.square, self.dot), [], []
        for block in _blocks(self.low, self.high):
            is_open, is_in = _fates(block, a, b, low, high)
            sums.add(is_in, block.x, block.y)
            places = _places(is_open)
            lows.append(self.low[block.at].index_select(0, places))
            highs.append(self.high[block.at].index_select(0, places))
        return _Entries(torch.cat(lows), torch.cat(highs), sums)

    def best_prefix(self, low: float, record: float) -> float:
        """N/2D of the best prefix by Δ_High/Δ_Low > ``low``: the shortest of those as good as any, or as ``record``."""
        everything = _Block.of(self.low, self.high, slice(None))
        steep = _places(everything.scores(low) > 0)
        order = steep[(everything.high[steep] / everything.low[steep]).argsort(descending=True, stable=True)]
        start = [] if self.count == 0 else [torch.zeros(1, dtype=torch.float64, device=order.device)]
        squares = self.square + torch.cat([*start, everything.y[order]]).cumsum(0)
        dots = self.dot + torch.cat([*start, everything.x[order]]).cumsum(0)
        values = dots * (dots / squares)
        place = int((values >= max(record, float(values.max())) * (1 - CLOSE)).int().argmax())
        return 0.5 * float(dots[place] / squares[place])


def _fates(block: _Block, a: _Point, b: _Point, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Which entries are in some S(t) from ``low`` to ``high`` but not in all, and which are in all.

    Scores fall as t grows, and so does the floor: it is from ``b.floor`` to ``a.floor``.
    """
    scores = block.scores(low)
    is_in = block.scores(high) > a.floor
    return (scores >= b.floor) & (scores > 0) & ~is_in, is_in


@dataclass(frozen=True)
class _Stretch:
    """The hull from P(a) to P(b), and the entries that are open there."""

    a: _Point
    b: _Point
    entries: _Entries

    @property
    def low(self) -> float:
        """Least t of an optimum."""
        return max(self.a.t, self.a.rate)

    @property
    def high(self) -> float:
        """Greatest t of an optimum."""
        return min(self.b.t, self.b.rate)

    @property
    def bound(self) -> float:
        """N²/D where the support lines cross, both raised by what rounding may have taken."""
        a, b = self.a, self.b
        square = min(max((a.rise - b.rise) / (b.t - a.t), b.square), a.square)
        dot = min(a.rise + a.t * square, b.rise + b.t * square)
        return dot * (dot / square) if square else math.inf

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

    def __init__(self, point: _Point) -> None:
        self.point, self.value, self.points = point, point.value, 1

    def offer(self, point: _Point) -> None:
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


def _search(entries: _Entries, limit: int, energies: Tensor) -> _Point:
    first = entries.best(0.0, limit)
    if first.count == 0:
        return first
    record = _Record(first)
    last = entries.best(_ceiling(energies, first.value), limit)
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
        if len(entries) > BLOCK:
            entries = entries.narrowed(a, b, low, high)
        is_free = a.floor == 0  # τ does not bind from here on
        is_short = is_free and len(entries) <= SMALL
        t = min(max(entries.best_prefix(low, record.value) if is_short else middle, low), high)
        point = entries.cut(t, 0.0, 0) if is_free else entries.best(t, limit)
        record.offer(point)
        if not is_short:
            halves = _Stretch(a, point, entries), _Stretch(point, b, entries)
            stack += sorted(halves, key=lambda half: half.bound)  # the more promising one is next
    return record.point
