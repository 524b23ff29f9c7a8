"""Means with their 95 % confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.special import stdtrit

__all__ = ["CONFIDENCE", "Estimate", "estimate"]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean and half the width of its confidence interval, which takes two values or more."""

    mean: float
    half: float | None
    count: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies wholly on one side of zero."""
        return self.half is not None and abs(self.mean) > self.half


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of independent runs and its interval by Student's t: t_{0.975, n−1}·s/√n."""
    count = len(values)
    if count < 2:
        return Estimate(fmean(values), None, count)
    quantile = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    return Estimate(fmean(values), quantile * stdev(values) / math.sqrt(count), count)
