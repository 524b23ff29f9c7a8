"""A comparison from beginning to end: a process for each run, in parallel over the cores, and the tables of all."""

from __future__ import annotations

import json
import logging
import shutil
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from prowd.comparison.formats import Record, run_records, table_records, write_tables
from prowd.comparison.outcomes import Outcome, Row, collect, has_accuracy, tabulate
from prowd.comparison.plan import Plan, PlannedRun
from prowd.config.schema import RunConfig
from prowd.errors import ProwdError, RunError
from prowd.federation.engine import Federation
from prowd.federation.processes import FAILED_IMPORT, GUARD, available_cores, be_a_child, start_child
from prowd.federation.report import RoundReport
from prowd.files import atomic_write
from prowd.methods import ServerState
from prowd.runs.build import as_used, load_data
from prowd.runs.observe import RunObserver
from prowd.runs.run import Session

__all__ = ["Comparison", "ComparisonObserver", "MakeObservers", "cores_for", "execute", "make"]

PLAN = "comparison.json"
HERE, DONE, FAILED = "here", "done", "failed"  # what a run's process sends; all else is a method of the observer
MakeObservers = Callable[[Path], Sequence[RunObserver]]
"""Makes observers for the run in a directory; called in the run's own process, so it must be picklable."""


class ComparisonObserver:
    """Is notified of a comparison's runs; nothing it does can change the results. This one does nothing."""

    def began(self, run: PlannedRun, rounds: int) -> None:
        """A run begins, or goes on after so many rounds."""

    def moved(self, run: PlannedRun, rounds: float) -> None:
        """A run has come so far."""

    def said(self, run: PlannedRun, text: str) -> None:
        """A run has something to say: a client was left out, a file was damaged."""

    def ended(self, run: PlannedRun, failure: str | None) -> None:
        """A run is over."""


@dataclass(frozen=True)
class Comparison:
    """What a comparison leaves: its directory, a row for each method, every run, and the runs that failed and why.

    ``pandas.DataFrame(comparison.runs())`` is a data frame of all runs; pandas is not needed otherwise.
    """

    path: Path
    rows: Sequence[Row]
    outcomes: Sequence[Outcome]
    failures: Mapping[str, str]
    baseline: str

    def table(self) -> list[Record]:
        """A flat dict for each method, with the columns of table.csv; None where there is no number."""
        return table_records(self.rows, self.baseline)

    def runs(self) -> list[Record]:
        """A flat dict for each run, with the columns of runs.csv."""
        return run_records(self.outcomes)


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


def make(
    plan: Plan, cores: int, observer: ComparisonObserver, make_observers: MakeObservers | None = None
) -> Comparison:
    """Make what is missing of a plan's runs, and write the tables of all that are finished."""
    write_plan(plan, {})
    missing = [run for run in plan.runs if not run.is_finished]
    try:
        failed = execute(missing, cores, observer, make_observers)
    except RunError:
        if [file.name for file in plan.path.iterdir()] == [PLAN]:  # no run could even begin
            shutil.rmtree(plan.path)
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


@dataclass
class _Active:
    run: PlannedRun
    process: SpawnProcess
    connection: Connection[Any, Any]
    cores: int
    heard: bool = False


def execute(
    runs: Sequence[PlannedRun], cores: int, observer: ComparisonObserver, make_observers: MakeObservers | None = None
) -> dict[PlannedRun, str]:
    """Make the runs, on so many cores; returns those that failed, with the reason. The others go on all the same.

    With more runs than cores each has one; with fewer, each spreads its clients over several. What
    ``make_observers`` returns observes a single run.
    """
    waiting, active = deque(runs), list[_Active]()
    failures: dict[PlannedRun, str] = {}
    try:
        while waiting or active:
            while waiting and (free := cores - sum(one.cores for one in active)) > 0:
                run = waiting.popleft()
                share = max(1, free // (len(waiting) + 1))
                child = start_child(_work, run.config, run.path, share, make_observers, daemon=False)
                active.append(_Active(run, *child, share))
            for connection in wait([one.connection for one in active]):
                (one,) = (one for one in active if one.connection is connection)
                kind, content = _receive(one)
                if kind in (DONE, FAILED):
                    active.remove(one)
                    _end(one)
                    failures |= {one.run: content} if kind == FAILED else {}
                    observer.ended(one.run, content if kind == FAILED else None)
                elif kind != HERE:
                    getattr(observer, kind)(one.run, content)
    finally:
        for one in active:
            one.process.kill()
            _end(one)
    return failures


def _end(one: _Active) -> None:
    one.connection.close()
    one.process.join()


def _receive(one: _Active) -> tuple[str, Any]:
    try:
        kind, content = one.connection.recv()
    except (EOFError, OSError):
        one.process.join()
        code = one.process.exitcode
        if not one.heard and code == FAILED_IMPORT:
            raise RunError(f"the process of {one.run.path.name} ended before it began. {GUARD}") from None
        return FAILED, f"its process ended (exit code {code})"
    one.heard = True
    return kind, content


def _work(
    connection: Connection[Any, Any], config: RunConfig, path: Path, workers: int, make_observers: MakeObservers | None
) -> None:
    """Body of a run's process."""
    be_a_child()
    connection.send((HERE, None))
    reporter = _Reporter(connection)
    logging.getLogger().addHandler(_Handler(connection))
    try:
        if (path / "config.toml").exists():
            session = Session.resume(path, {})
        else:
            session = Session.begin(config, as_used(config, load_data(config)), path)
        others = make_observers(path) if make_observers else []
        session.run(min(workers, session.federation.cohort), reporter, *others)
    except ProwdError as error:
        connection.send((FAILED, str(error)))
    except Exception:  # noqa: BLE001 - whatever it is, it is for the parent to show
        connection.send((FAILED, traceback.format_exc()))
    else:
        connection.send((DONE, None))


class _Reporter(RunObserver):
    """Notifies the parent of how a run goes on."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.connection = connection

    def began(self, config: RunConfig, federation: Federation, path: Path, done: int) -> None:
        """Say from where the run goes on."""
        self.connection.send(("began", done))

    def replied(self, round_: int, done: int, asked: int) -> None:
        """Say how far the run is."""
        self.connection.send(("moved", round_ - 1 + done / asked))

    def finished(self, report: RoundReport, state: ServerState) -> None:
        """Say who was left out."""
        for text in report.left_out():
            self.connection.send(("said", text))


class _Handler(logging.Handler):
    """Warnings of a run's process, which has no terminal of its own."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        super().__init__(logging.WARNING)
        self.connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a warning on."""
        self.connection.send(("said", record.getMessage()))
