"""Passes over two updates, block by block: exact products, and sums that are the same on any number of threads.

Products of float32 numbers are exact in float64 and their quotients keep their order. Sums are taken over blocks of a
fixed size, and those are added without error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from prowd.methods.prowd.selection import sizes

__all__ = ["EXPONENTS", "Block", "Sums", "blocks", "moments", "ordered", "places", "take_first", "unordered"]

EXPONENTS = 2**11  # of float64


@dataclass(frozen=True)
class Block:
    """Entries in float64: where they are, both updates, and their exact products."""

    at: slice
    low: Tensor
    high: Tensor
    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, low: Tensor, high: Tensor, at: slice) -> Block:
        """The entries ``at`` some places."""
        a, b = low[at].double(), high[at].double()
        return cls(at, a, b, a * b, a * a)

    def scores(self, t: float) -> Tensor:
        """x − t·y, and never −0."""
        return self.x - self.y * t + 0.0


def blocks(low: Tensor, high: Tensor) -> Iterator[Block]:
    """All entries, in their order."""
    return (Block.of(low, high, slice(at, at + sizes.BLOCK)) for at in range(0, low.numel(), sizes.BLOCK))


class Sums:
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
        """D."""
        return math.fsum(self.squares)

    @property
    def dot(self) -> float:
        """N."""
        return math.fsum(self.dots)


def moments(low: Tensor, high: Tensor) -> tuple[float, float, float, Tensor]:
    """Squares of both norms, scalar product, and Σ Δ_High² by the exponent of Δ_High/Δ_Low where that is positive."""
    low_squares, high_squares, dots = [], [], []
    energies = torch.zeros(EXPONENTS, dtype=torch.float64, device=low.device)
    for block in blocks(low, high):
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


def places(which: Tensor) -> Tensor:
    """Where a flat mask is true: as ``nonzero``, and several times as fast."""
    return torch.from_numpy(np.flatnonzero(which.cpu().numpy())).to(which.device)


def take_first(which: Tensor, count: int, kept: Tensor) -> int:
    """Set ``kept`` at the first ``count`` places where ``which`` is; return at how many."""
    first = places(which)[:count]
    kept[first] = True
    return first.numel()


def ordered(values: Tensor) -> Tensor:
    """Integers in the order of float64 numbers that are not −0."""
    bits = values.view(torch.int64)
    return torch.where(bits < 0, bits ^ (2**63 - 1), bits)


def unordered(key: int) -> float:
    """The number of an integer of ``ordered``."""
    bits = key ^ (2**63 - 1) if key < 0 else key
    return torch.tensor(bits).view(torch.float64).item()
