"""A comparison from beginning to end. ``prowd.compare`` and the command line use it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prowd.comparison.formats import write_tables
from prowd.comparison.outcomes import Outcome, Row, collect, has_accuracy, tabulate
from prowd.comparison.plan import Plan
from prowd.comparison.runner import ComparisonObserver, MakeObserver, execute
from prowd.errors import RunError
from prowd.federation.processes import available_cores
from prowd.files import atomic_write

__all__ = ["Comparison", "cores_for", "make"]

PLAN = "comparison.json"


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


def write_plan(plan: Plan, failures: Mapping[str, str]) -> None:
    """Write comparison.json: what is to be made, for whoever reads it meanwhile, and what failed."""
    runs = [{"folder": run.path.name, "method": run.method, "seed": run.seed} for run in plan.runs]
    facts = {"name": plan.config.name, "baseline": plan.baseline, "runs": runs, "failures": dict(failures)}
    try:
        plan.path.mkdir(parents=True, exist_ok=True)
        atomic_write(plan.path / PLAN, (json.dumps(facts, indent=2) + "\n").encode())
    except OSError as error:
        raise RunError(f"{plan.path} cannot be written: {error}") from error


def _forget_plan(plan: Plan) -> None:
    """Leave nothing behind of a comparison of which no run could even begin."""
    if [file.name for file in plan.path.iterdir()] == [PLAN]:
        (plan.path / PLAN).unlink()
        plan.path.rmdir()


def make(plan: Plan, cores: int, observer: ComparisonObserver, make_observer: MakeObserver | None = None) -> Comparison:
    """Make what is missing of a plan's runs, and write the tables of all that are finished."""
    write_plan(plan, {})
    missing = [run for run in plan.runs if not run.is_finished]
    try:
        failed = execute(missing, cores, observer, make_observer)
    except RunError:
        _forget_plan(plan)
        raise
    failures = {run.path.name: reason for run, reason in failed.items()}
    for run in plan.runs:
        summary = run.summary()
        if summary is not None and not has_accuracy(summary):
            failures[run.path.name] = f"{run.method} reports no accuracy_received and accuracy_trained in its metrics"
    write_plan(plan, failures)
    outcomes = collect(plan)
    rows = tabulate(outcomes, plan.baseline)
    if rows:
        write_tables(plan.path, plan.config, rows, outcomes, plan.baseline)
    return Comparison(plan.path, rows, outcomes, failures, plan.baseline)
