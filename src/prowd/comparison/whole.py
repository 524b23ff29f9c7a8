"""A comparison from beginning to end. ``prowd.compare`` and the command line use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prowd.comparison.formats import write_tables
from prowd.comparison.outcomes import Outcome, Row, collect, has_accuracy, tabulate
from prowd.comparison.plan import Plan
from prowd.comparison.runner import Onlooker, execute
from prowd.processes import available_cores

__all__ = ["Comparison", "cores_for", "make"]


@dataclass(frozen=True)
class Comparison:
    """What a comparison leaves: its directory, a row for each method, every run, and the runs that failed and why."""

    path: Path
    rows: Sequence[Row]
    outcomes: Sequence[Outcome]
    failures: Mapping[str, str]
    baseline: str


def cores_for(plan: Plan) -> int:
    """All cores, or one run at a time on an accelerator, which they would share."""
    return available_cores() if plan.config.device == "cpu" else 1


def make(plan: Plan, cores: int, onlooker: Onlooker) -> Comparison:
    """Make what is missing of a plan's runs, and write the tables of all that are finished."""
    failed = execute([run for run in plan.runs if not run.is_finished], cores, onlooker)
    failures = {run.path.name: reason for run, reason in failed.items()}
    for run in plan.runs:
        summary = run.summary()
        if summary is not None and not has_accuracy(summary):
            failures[run.path.name] = f"{run.method} reports no accuracy_received and accuracy_trained in its metrics"
    outcomes = collect(plan)
    rows = tabulate(outcomes, plan.baseline)
    if rows:
        write_tables(plan.path, plan.config, rows, outcomes, plan.baseline)
    return Comparison(plan.path, rows, outcomes, failures, plan.baseline)
