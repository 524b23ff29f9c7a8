"""Who runs when, on how many cores, and what what the observer is notified of; the processes are played."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from prowd.comparison import ComparisonObserver, PlannedRun, execute, runner
from prowd.config.schema import RunConfig

Message = tuple[str, Any]
DONE: Message = (runner.DONE, None)


class Process:
    """What is left of a process that has said all it has to say."""

    exitcode = -9

    def __init__(self) -> None:
        self.killed = self.joined = False

    def kill(self) -> None:
        self.killed = True

    def join(self) -> None:
        self.joined = True


class Stage:
    """Processes that say what they are told to, and then hang up (or, with ``None`` at the end, stay silent)."""

    def __init__(self, lines: Callable[[int], list[Message | None]]) -> None:
        self.lines = lines
        self.workers: list[int] = []
        self.processes: list[Process] = []
        self.ends: list[Connection[Any, Any]] = []

    def start(
        self, target: object, config: RunConfig, path: Path, workers: int, make_observer: object, *, daemon: bool
    ) -> tuple[Process, Connection[Any, Any]]:
        assert not daemon, "a run has processes of its own, which a daemon may not"
        ours, theirs = Pipe()
        lines = self.lines(len(self.processes))
        for line in lines:
            if line is not None:
                theirs.send(line)
        if lines and lines[-1] is None:
            self.ends.append(theirs)
        else:
            theirs.close()
        self.workers.append(workers)
        self.processes.append(Process())
        return self.processes[-1], ours


class Diary(ComparisonObserver):
    """Writes everything down."""

    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []

    def began(self, run: PlannedRun, rounds: int) -> None:
        self.entries.append(("began", run.seed, rounds))

    def moved(self, run: PlannedRun, rounds: float) -> None:
        self.entries.append(("moved", run.seed, rounds))

    def said(self, run: PlannedRun, text: str) -> None:
        self.entries.append(("said", run.seed, text))

    def ended(self, run: PlannedRun, failure: str | None) -> None:
        self.entries.append(("ended", run.seed, failure))


def runs(count: int) -> list[PlannedRun]:
    return [PlannedRun("fedavg", seed, RunConfig(), Path(f"run{seed}")) for seed in range(count)]


def play(monkeypatch: pytest.MonkeyPatch, lines: Callable[[int], list[Message | None]]) -> Stage:
    stage = Stage(lines)
    monkeypatch.setattr(runner, "start_child", stage.start)
    return stage


@pytest.mark.parametrize(
    ("count", "cores", "workers"),
    [
        (0, 2, []),  # nothing to do takes no process
        (1, 1, [1]),
        (3, 1, [1, 1, 1]),
        (3, 3, [1, 1, 1]),
        (2, 3, [1, 2]),
        (2, 4, [2, 2]),
        (1, 4, [4]),
        (4, 3, [1, 1, 1, 3]),  # the last begins when the others are done
    ],
)
def test_runs_share_the_cores(count: int, cores: int, workers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    stage = play(monkeypatch, lambda _: [DONE])
    assert execute(runs(count), cores, ComparisonObserver()) == {}
    assert stage.workers == workers
    assert all(process.joined and not process.killed for process in stage.processes)


def test_no_more_runs_than_cores_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    stage = play(monkeypatch, lambda number: [("began", 0), ("moved", 0.5), DONE])

    class Counter(ComparisonObserver):
        under_way = 0

        def began(self, run: PlannedRun, rounds: int) -> None:
            Counter.under_way += 1
            begun.append(Counter.under_way)

        def ended(self, run: PlannedRun, failure: str | None) -> None:
            Counter.under_way -= 1

    execute(runs(5), 2, Counter())
    assert len(stage.processes) == len(begun) == 5
    assert max(begun) == 2


def test_the_observer_is_notified_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[Message | None] = [("said", "a file"), ("began", 2), ("moved", 2.5), DONE]
    play(monkeypatch, lambda _: lines)
    diary = Diary()
    execute(runs(1), 1, diary)
    assert diary.entries == [("said", 0, "a file"), ("began", 0, 2), ("moved", 0, 2.5), ("ended", 0, None)]


def test_a_run_that_fails_leaves_the_others_standing(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, lambda number: [(runner.FAILED, "too bad")] if number == 1 else [("began", 0), DONE])
    diary, all_runs = Diary(), runs(3)
    assert execute(all_runs, 1, diary) == {all_runs[1]: "too bad"}
    assert [entry for entry in diary.entries if entry[0] == "ended"] == [
        ("ended", 0, None),
        ("ended", 1, "too bad"),
        ("ended", 2, None),
    ]


def test_a_process_that_dies_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, lambda number: [("began", 0)] if number == 0 else [])
    begun, silent = runs(2)
    reason = "its process ended (exit code -9)"
    assert execute([begun, silent], 1, ComparisonObserver()) == {begun: reason, silent: reason}


def test_an_interrupt_ends_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = play(monkeypatch, lambda _: [("began", 0), None])

    class Impatient(ComparisonObserver):
        def began(self, run: PlannedRun, rounds: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(runs(3), 2, Impatient())
    assert [(process.killed, process.joined) for process in stage.processes] == [(True, True)] * 2
