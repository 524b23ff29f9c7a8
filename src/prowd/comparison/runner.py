"""The runs of a plan, in parallel over the cores: a process each, taken up again where it was stopped."""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from prowd.comparison.plan import PlannedRun
from prowd.config.schema import RunConfig
from prowd.errors import ProwdError, RunError
from prowd.federation.engine import Federation
from prowd.federation.processes import GUARD, be_a_child, start_child
from prowd.federation.report import RoundReport
from prowd.methods import ServerState
from prowd.runs.build import as_used, load_data
from prowd.runs.observe import Observers, RunObserver
from prowd.runs.run import Session

__all__ = ["ComparisonObserver", "MakeObserver", "execute"]

HERE, BEGAN, AT, SAID, DONE, FAILED = "here", "began", "at", "said", "done", "failed"
FAILED_IMPORT = 1  # exit code of a process that could not import the script it is of
MakeObserver = Callable[[Path], RunObserver]
"""Makes an observer for the run in a directory; called in the run's own process, so it must be picklable."""


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


@dataclass
class _Active:
    run: PlannedRun
    process: SpawnProcess
    connection: Connection[Any, Any]
    cores: int
    heard: bool = False


def execute(
    runs: Sequence[PlannedRun], cores: int, observer: ComparisonObserver, make_observer: MakeObserver | None = None
) -> dict[PlannedRun, str]:
    """Make the runs, on so many cores; returns those that failed, with the reason. The others go on all the same.

    With more runs than cores each has one; with fewer, each spreads its clients over several. What
    ``make_observer`` returns observes a single run.
    """
    waiting, active = deque(runs), list[_Active]()
    failures: dict[PlannedRun, str] = {}
    try:
        while waiting or active:
            while waiting and (free := cores - sum(one.cores for one in active)) > 0:
                run = waiting.popleft()
                share = max(1, free // (len(waiting) + 1))
                active.append(_start(run, share, make_observer))
            for connection in wait([one.connection for one in active]):
                (one,) = (one for one in active if one.connection is connection)
                kind, content = _receive(one)
                if kind in (DONE, FAILED):
                    active.remove(one)
                    _end(one)
                    failures |= {one.run: content} if kind == FAILED else {}
                    observer.ended(one.run, content if kind == FAILED else None)
                else:
                    _notify(observer, one.run, kind, content)
    finally:
        for one in active:
            one.process.kill()
            _end(one)
    return failures


def _notify(observer: ComparisonObserver, run: PlannedRun, kind: str, content: Any) -> None:
    if kind == BEGAN:
        observer.began(run, content)
    elif kind == AT:
        observer.moved(run, content)
    elif kind == SAID:
        observer.said(run, content)


def _start(run: PlannedRun, cores: int, make_observer: MakeObserver | None) -> _Active:
    workers = min(cores, 10**6 if run.config.cohort == "all" else run.config.cohort)
    process, connection = start_child(_work, run.config, run.path, workers, make_observer, daemon=False)
    return _Active(run, process, connection, cores)


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
    connection: Connection[Any, Any], config: RunConfig, path: Path, workers: int, make_observer: MakeObserver | None
) -> None:
    """Body of a run's process."""
    be_a_child()
    connection.send((HERE, None))
    reporter = _Reporter(connection)
    logging.getLogger().addHandler(reporter.handler)
    try:
        if (path / "config.toml").exists():
            session = Session.resume(path, {})
        else:
            session = Session.begin(config, as_used(config, load_data(config)), path)
        observer = Observers(reporter, make_observer(path)) if make_observer else reporter
        session.run(min(workers, session.federation.cohort), observer)
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
        self.handler = _Handler(self)

    def say(self, text: str) -> None:
        """Pass a line on."""
        self.connection.send((SAID, text))

    def began(self, config: RunConfig, federation: Federation, path: Path, done: int) -> None:
        """Say from where the run goes on."""
        self.connection.send((BEGAN, done))

    def replied(self, round_: int, done: int, asked: int) -> None:
        """Say how far the run is."""
        self.connection.send((AT, round_ - 1 + done / asked))

    def finished(self, report: RoundReport, state: ServerState) -> None:
        """Say who was left out."""
        for text in report.left_out():
            self.say(text)


class _Handler(logging.Handler):
    """Warnings of a run's process, which has no terminal of its own."""

    def __init__(self, reporter: _Reporter) -> None:
        super().__init__(logging.WARNING)
        self.reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a warning on."""
        self.reporter.say(record.getMessage())
