"""What is shown while a comparison runs: the time that is left, lines or bars, and the closing tables."""

from __future__ import annotations

import io
import json
import re
import time
from pathlib import Path

import pytest
from rich.console import Console

from prowd.comparison import Outcome, Plan, PlannedRun, tabulate
from prowd.config.schema import RunConfig
from prowd.methods import METHODS
from prowd.views.console import comparison_tables
from prowd.views.console.comparison import ComparisonView
from prowd.views.console.words import Clock

ROUNDS = 10


class Time:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(time, "perf_counter", made)
    return made


def run(folder: Path, method: str = "fedavg", seed: int = 0) -> PlannedRun:
    return PlannedRun(method, seed, RunConfig(name="tiny", rounds=ROUNDS), folder / f"{method}-seed{seed}")


def finish(made: PlannedRun) -> PlannedRun:
    """Leave the summary of a finished run."""
    made.path.mkdir(parents=True, exist_ok=True)
    accuracy = {when: {"int8": 0.5, "float32": 0.75} for when in ("trained", "received")}
    rest = dict.fromkeys(("average_accuracy", "bytes", "weights_sha256"))
    (made.path / "summary.json").write_text(json.dumps({"rounds": ROUNDS, "accuracy": accuracy, **rest}), "utf-8")
    return made


@pytest.mark.parametrize(
    ("skipped", "done", "left"), [(0, 0.0, ""), (0, 0.5, "0:01:35 left"), (6, 6, ""), (6, 7, "0:00:15 left")]
)
def test_the_time_left_is_the_rounds_left_at_the_pace_since_the_start(
    skipped: int, done: float, left: str, watch: Time
) -> None:
    clock = Clock(ROUNDS, skipped)
    watch.now += 5.0
    assert clock.left(done) == left


def test_runs_that_are_finished_resumed_or_failed_tell_nothing_of_the_pace(watch: Time, tmp_path: Path) -> None:
    there, resumed, failing, waiting = (run(tmp_path, seed=seed) for seed in range(4))
    view = ComparisonView(Console(file=io.StringIO()), Plan(tmp_path, (finish(there), resumed, failing, waiting)))
    view.began(resumed, 6)
    view.began(failing, 0)
    watch.now += 4.0
    view.moved(resumed, 8)
    view.ended(failing, "no memory")
    assert view.done == 10 + 8 + 10
    assert view.clock.left(view.done) == "0:00:24 left"  # 2 + 10 rounds of 2 s
    view.close()


def two_runs(console: Console, folder: Path, watch: Time) -> None:
    """Show a run that is made and one that fails, after one that is already there."""
    runs = (finish(run(folder)), run(folder, "prowd"), run(folder, "mine", 1))
    view = ComparisonView(console, Plan(folder, runs))
    for one in runs[1:]:
        view.began(one, 0)
    watch.now += 2.0
    view.moved(runs[1], 0.5)
    view.said(runs[1], "round 1: client 3 (int8) left out: [red]no reply[/red]")
    watch.now += 2.0
    view.moved(finish(runs[1]), 10.0)
    view.ended(runs[1], None)
    view.ended(runs[2], "ValueError: [bold]bad[/bold]\n  in a second line")
    view.close()


def test_elsewhere_than_on_a_terminal_a_run_is_a_line(watch: Time, tmp_path: Path) -> None:
    file = io.StringIO()
    two_runs(Console(file=file, force_terminal=False, width=60), tmp_path, watch)
    shown = file.getvalue().splitlines()
    assert "2/3 runs  prowd, seed 0  int8 50.0%  float32 75.0%  0:00:04 left" in shown
    assert any("[red]no reply[/red]" in line for line in shown), "brackets are brackets"
    assert any("mine, seed 1 failed: " in line for line in shown)


def test_on_a_terminal_there_are_bars(watch: Time, tmp_path: Path) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, force_interactive=True, width=100, color_system=None)
    two_runs(console, tmp_path, watch)
    text = file.getvalue()
    assert "2/3 runs  prowd" not in text, "the bar says so"
    assert "3/3 runs" in text
    assert "prowd, seed 0" in text
    assert "mine, seed 1 failed: ValueError: [bold]bad[/bold]" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor comes back"


def test_the_closing_tables_of_all_methods_fit_80_columns() -> None:
    outcomes = [
        Outcome(method, seed, {"int8": 94.5 + seed, "float32": 96.25}, {}, 95.0 + number, 90.0, 1.2e6, 1.4e6, "")
        for number, method in enumerate(METHODS)
        for seed in range(2)
    ]
    file = io.StringIO()
    for table in comparison_tables(RunConfig(name="quick"), tabulate(outcomes, "local"), "local"):
        Console(file=file, force_terminal=False, width=80).print(table)
    lines = [re.split(r" {2,}", line.strip()) for line in file.getvalue().splitlines()]
    assert {len([line for line in lines if line[0] == method]) for method in METHODS} == {2}, "no name is cut"
    assert ["local", "95.00 ±6.35", "96.25 ±0.00", "+1.25 ±6.35", "95.00 ±0.00"] in lines
    assert ["local", "–", "90.00 ±0.00", "1,200.0 kB", "1,400.0 kB"] in lines
    assert ["fedavg", "+1.00 ±0.00 *", "90.00 ±0.00", "1,200.0 kB", "1,400.0 kB"] in lines
