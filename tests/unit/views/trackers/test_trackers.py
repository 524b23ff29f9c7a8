"""What all trackers share: when they begin, go on, fail and end; their files themselves are read back in tests/e2e."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from prowd.config.schema import RunConfig
from prowd.errors import ConfigError, ProwdError, RunError
from prowd.methods import ServerState
from prowd.views.trackers import TRACKERS, Tracker, load_trackers
from prowd.views.trackers.tensorboard import TensorBoard
from tests.runs import ask
from tests.unit.views.trackers.rounds import report

STATE = ServerState(1, {})


class Board(Tracker):
    """A tracker that writes down what it is sent, and fails when it is told to."""

    name = "board"

    def __init__(self, has: int = 0, *, fails: bool = False) -> None:
        super().__init__()
        self.has, self.fails = has, fails
        self.rounds_sent: list[tuple[int, float]] = []
        self.ended: list[bool] = []

    def start(self, config: RunConfig) -> int:
        self._check()
        return self.has

    def send(self, round_: int, when: float, values: Mapping[str, float]) -> None:
        self._check()
        self.rounds_sent.append((round_, values["megabytes so far/up"]))

    def end(self, *, complete: bool) -> None:
        self._check()
        self.ended.append(complete)

    def _check(self) -> None:
        if self.fails:
            raise OSError("the board is full\nand says more")


def directory(path: Path, rounds: int) -> Path:
    lines = [json.dumps(report(number).line()) + "\n" for number in range(1, rounds + 1)]
    (path / "rounds.jsonl").write_text("".join(lines), "utf-8")
    return path


def test_rounds_that_are_there_are_not_sent_again(tmp_path: Path) -> None:
    board = Board(has=2)
    board.follow(RunConfig(rounds=5), directory(tmp_path, 3))
    board.finished(report(4), STATE)
    assert dict(board.rounds_sent) == pytest.approx({3: 0.0015, 4: 0.002}), "the totals count all rounds"
    board.close()
    board.finished(report(5), STATE)
    board.close()
    assert board.ended == [False, True]


def test_what_cannot_begin_stops_the_run_and_what_fails_later_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RunError, match=r"^board cannot be written for \S+: the board is full; .*--track board$"):
        Board(fails=True).follow(RunConfig(), tmp_path)
    board = Board()
    board.follow(RunConfig(rounds=2), tmp_path)
    board.fails = True
    with caplog.at_level(logging.WARNING):
        board.finished(report(1), STATE)
        board.fails = False
        board.finished(report(2), STATE)
    (record,) = caplog.records
    assert "the run goes on without it" in record.getMessage()
    assert board.rounds_sent == [], "a lost tracker gets no more rounds, or some would be missing in the middle"


def test_what_a_tracker_remembers_is_its_own(tmp_path: Path) -> None:
    first, second = Board(), TensorBoard()
    first.path = second.path = directory(tmp_path, 2)
    first.remember(run="a", rounds=1)
    second.remember(run="b")
    first.remember(rounds=2)
    assert first.recall(tmp_path) == {"run": "a", "rounds": 2}
    assert second.recall(tmp_path) == {"run": "b"}
    assert first.is_up_to_date(tmp_path)
    directory(tmp_path, 3)
    assert not first.is_up_to_date(tmp_path)
    (tmp_path / "tracking.json").write_text("{", "utf-8")
    with pytest.raises(ProwdError, match=r"tracking\.json cannot be read"):
        first.recall(tmp_path)


def test_event_files_that_cannot_be_written_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").touch()
    with pytest.raises(RunError, match=r"tensorboard cannot be written for .*File exists"):
        TensorBoard().follow(RunConfig(), tmp_path)


def test_event_files_of_a_finished_run_are_written_once(tmp_path: Path) -> None:
    run, home = directory(tmp_path, 1), tmp_path / "home"
    with closing(TensorBoard(home)) as board:
        assert not board.is_up_to_date(run)
        board.follow(RunConfig(), run)
    folder = home / "tensorboard" / run.name
    (first,) = folder.iterdir()
    (folder / "notes.txt").write_text("mine", "utf-8")
    assert TensorBoard(home).is_up_to_date(run)
    later = first.stat().st_mtime_ns + 1
    os.utime(run / "rounds.jsonl", ns=(later, later))
    assert not TensorBoard(home).is_up_to_date(run)
    with closing(TensorBoard(home)) as board:
        board.follow(RunConfig(), run)
    assert not first.exists()
    assert [re.sub(r"\d.*", "", file.name) for file in sorted(folder.iterdir())] == [
        "events.out.tfevents.",
        "notes.txt",
    ]


def _without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a tracker's package be missing."""
    ours = (f"prowd.views.trackers.{name}", "torch.utils.tensorboard")
    for module in [module for module in sys.modules if module.startswith(ours)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)


def test_trackers_are_known_by_their_names() -> None:
    assert [make.name for make in load_trackers([*TRACKERS, *TRACKERS])] == list(TRACKERS)
    with pytest.raises(ConfigError, match="'comet' is wrong; accepted: tensorboard, mlflow, wandb"):
        load_trackers(["comet"])


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _without(name, monkeypatch)
    with pytest.raises(ProwdError, match=rf"--track {name} needs {name}; .*pip install '\.\[{name}\]'"):
        load_trackers([name])


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_missing_package_is_named_before_anything_is_run(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without("tensorboard", monkeypatch)
    done = ask(command, "quick", "--track", "tensorboard", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install '.[tensorboard]'" in done.stderr
    assert list(tmp_path.iterdir()) == []
