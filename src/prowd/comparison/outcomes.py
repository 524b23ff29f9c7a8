"""From finished runs to the rows of the paper's table: means over the seeds, with 95 % confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

from prowd.comparison.plan import Plan
from prowd.numbers.bits import Bitwidth

__all__ = ["Estimate", "Outcome", "Row", "collect", "estimate", "has_accuracy", "tabulate"]


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


@dataclass(frozen=True)
class Outcome:
    """What one run came to: accuracies in percent after local training, as received, and bytes a round."""

    method: str
    seed: int
    trained: Mapping[str, float]
    received: Mapping[str, float]
    average: float
    average_received: float
    bytes_up: float
    bytes_down: float
    weights_sha256: str

    @classmethod
    def of(cls, method: str, seed: int, summary: Mapping[str, Any]) -> Outcome:
        """Read a summary.json."""
        accuracy, average, moved = summary["accuracy"], summary["average_accuracy"], summary["bytes"]
        return cls(
            method=method,
            seed=seed,
            trained={width: 100 * value for width, value in accuracy["trained"].items()},
            received={width: 100 * value for width, value in accuracy["received"].items()},
            average=100 * average["trained"],
            average_received=100 * average["received"],
            bytes_up=sum(moved["up"].values()) / summary["rounds"],
            bytes_down=sum(moved["down"].values()) / summary["rounds"],
            weights_sha256=summary["weights_sha256"],
        )


@dataclass(frozen=True)
class Row:
    """A method over its seeds.

    The gap is the accuracy of the highest width minus that of the lowest, as the paper has it; one width has none.
    Differences are to the baseline, seed by seed; the baseline has none.
    """

    method: str
    seeds: int
    widths: Mapping[str, Estimate]
    gap: Estimate | None
    average: Estimate
    received: Estimate
    difference: Estimate | None
    bytes_up: float
    bytes_down: float


def collect(plan: Plan) -> list[Outcome]:
    """The outcomes of all runs of a plan that are finished and have measured something."""
    found = [(run, run.summary()) for run in plan.runs]
    return [Outcome.of(run.method, run.seed, summary) for run, summary in found if summary and has_accuracy(summary)]


def has_accuracy(summary: Mapping[str, Any]) -> bool:
    """Whether some client has said how good its models are; a method of one's own may not ask."""
    return None not in (summary["average_accuracy"][when] for when in ("received", "trained"))


def tabulate(outcomes: Sequence[Outcome], baseline: str = "fedavg") -> list[Row]:
    """One row for each method, in the order in which they first come."""
    base = {outcome.seed: outcome.average for outcome in outcomes if outcome.method == baseline}
    methods = dict.fromkeys(outcome.method for outcome in outcomes)
    return [_row(method, [o for o in outcomes if o.method == method], baseline, base) for method in methods]


def _row(method: str, found: Sequence[Outcome], baseline: str, base: Mapping[int, float]) -> Row:
    widths = sorted(set.intersection(*(set(outcome.trained) for outcome in found)), key=Bitwidth.parse)  # of every run
    paired = [outcome.average - base[outcome.seed] for outcome in found if outcome.seed in base]
    return Row(
        method=method,
        seeds=len(found),
        widths={width: estimate([outcome.trained[width] for outcome in found]) for width in widths},
        gap=estimate([one.trained[widths[-1]] - one.trained[widths[0]] for one in found]) if len(widths) > 1 else None,
        average=estimate([outcome.average for outcome in found]),
        received=estimate([outcome.average_received for outcome in found]),
        difference=estimate(paired) if paired and method != baseline else None,
        bytes_up=fmean(outcome.bytes_up for outcome in found),
        bytes_down=fmean(outcome.bytes_down for outcome in found),
    )
