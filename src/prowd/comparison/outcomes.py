"""From finished runs to the rows of the paper's table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prowd.comparison.intervals import Estimate, estimate
from prowd.comparison.plan import Plan
from prowd.numbers.bits import Bitwidth

__all__ = ["Outcome", "Row", "collect", "has_accuracy", "tabulate"]


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
    return None not in summary["average_accuracy"].values()


def tabulate(outcomes: Sequence[Outcome], baseline: str = "fedavg") -> list[Row]:
    """One row for each method, in the order in which they first come."""
    base = {outcome.seed: outcome.average for outcome in outcomes if outcome.method == baseline}
    methods = dict.fromkeys(outcome.method for outcome in outcomes)
    return [_row(method, [o for o in outcomes if o.method == method], baseline, base) for method in methods]


def _row(method: str, found: Sequence[Outcome], baseline: str, base: Mapping[int, float]) -> Row:
    widths = _widths(found)
    paired = [outcome.average - base[outcome.seed] for outcome in found if outcome.seed in base]
    return Row(
        method=method,
        seeds=len(found),
        widths={width: estimate([outcome.trained[width] for outcome in found]) for width in widths},
        gap=estimate([one.trained[widths[-1]] - one.trained[widths[0]] for one in found]) if len(widths) > 1 else None,
        average=estimate([outcome.average for outcome in found]),
        received=estimate([outcome.average_received for outcome in found]),
        difference=estimate(paired) if paired and method != baseline else None,
        bytes_up=_mean(outcome.bytes_up for outcome in found),
        bytes_down=_mean(outcome.bytes_down for outcome in found),
    )


def _widths(found: Sequence[Outcome]) -> list[str]:
    """Widths that every run has measured, low ones first."""
    common = set.intersection(*(set(outcome.trained) for outcome in found))
    return sorted(common, key=Bitwidth.parse)


def _mean(values: Iterable[float]) -> float:
    return estimate(list(values)).mean
