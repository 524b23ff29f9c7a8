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
from prowd.views.console.comparison import Clock, ComparisonView

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


def move(clock: Clock, watch: Time, run: PlannedRun, rounds: float, seconds: float) -> None:
    watch.now += seconds
    clock.moved(run, rounds)


def test_nothing_is_known_before_the_first_message(tmp_path: Path) -> None:
    one = run(tmp_path)
    clock = Clock([one])
    assert (clock.left(), clock.done, clock.rounds) == (0.0, 0.0, ROUNDS)
    clock.began(one, 0)
    assert clock.left() == 0.0


def test_the_time_left_is_the_rounds_left_at_the_pace_so_far(watch: Time, tmp_path: Path) -> None:
    one = run(tmp_path)
    clock = Clock([one])
    clock.began(one, 0)
    move(clock, watch, one, 0.5, 1.0)
    assert clock.left() == 9.5 * 2
    move(clock, watch, one, 2.0, 5.0)
    assert clock.done == 2.0
    assert clock.left() == 8 * 3


def test_runs_at_the_same_time_share_the_time_left(watch: Time, tmp_path: Path) -> None:
    runs = [run(tmp_path, seed=seed) for seed in range(4)]
    clock = Clock(runs)
    for one in runs[:2]:
        clock.began(one, 0)
    watch.now += 4.0
    for one in runs[:2]:
        clock.moved(one, 2)
    assert clock.left() == (8 + 8 + 10 + 10) * 4 / 4


def test_finished_runs_count_as_done(watch: Time, tmp_path: Path) -> None:
    one, two = finish(run(tmp_path)), run(tmp_path, seed=1)
    clock = Clock([one, two])
    assert (clock.done, clock.rounds) == (10.0, 20)
    clock.began(two, 0)
    move(clock, watch, two, 1, 3.0)
    assert clock.left() == 9 * 3


def test_rounds_of_an_earlier_session_tell_nothing_of_the_pace(watch: Time, tmp_path: Path) -> None:
    one = run(tmp_path)
    clock = Clock([one])
    clock.began(one, 6)
    move(clock, watch, one, 7, 5.0)
    assert (clock.done, clock.left()) == (7, 3 * 5)


def test_a_failed_run_is_no_longer_waited_for(watch: Time, tmp_path: Path) -> None:
    one = run(tmp_path)
    clock = Clock([one])
    clock.began(one, 0)
    move(clock, watch, one, 1, 5.0)
    clock.ended(one)
    assert (clock.done, clock.left()) == (10, 0.0)


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
    assert file.getvalue().rstrip("\n").splitlines() == [
        "tiny: 3 methods, 2 seeds, 3 runs, 1 already made",
        f"results in {tmp_path}",
        "prowd, seed 0: round 1: client 3 (int8) left out: [red]no reply[/red]",
        "2/3 runs  prowd, seed 0  int8 50.0%  float32 75.0%  0:00:04 left",
        "mine, seed 1 failed: ValueError: [bold]bad[/bold]",
        "  in a second line",
    ]


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


def test_a_view_may_be_closed_twice_and_with_runs_under_way(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    view = ComparisonView(console, Plan(tmp_path, (run(tmp_path),)))
    view.began(run(tmp_path), 3)
    view.close()
    view.close()
    assert not view.progress.live.is_started


def test_the_closing_tables_have_all_methods_and_widths() -> None:
    outcomes = [
        Outcome(method, seed, {"int8": value + seed, "float32": value + 9}, {}, value, 12.0, 1500.0, 2500.0, "")
        for method, value in (("fedavg", 40.0), ("my_own", 50.0))
        for seed in range(2)
    ]
    file = io.StringIO()
    tables = comparison_tables(RunConfig(name="tiny", rounds=ROUNDS), tabulate(outcomes), "fedavg")
    for table in tables:
        Console(file=file, force_terminal=False, width=200).print(table)
    lines = [re.split(r" {2,}", line.strip()) for line in file.getvalue().splitlines()]
    assert ["fedavg", "40.50 ±6.35", "49.00 ±0.00", "+8.50 ±6.35", "40.00 ±0.00"] in lines
    assert ["fedavg", "–", "12.00 ±0.00", "1.5 kB", "2.5 kB"] in lines
    assert ["my_own", "+10.00 ±0.00 *", "12.00 ±0.00", "1.5 kB", "2.5 kB"] in lines
    assert ["method", "against fedavg", "as received", "up a round", "down a round"] in lines


def test_the_closing_tables_of_eleven_methods_fit_80_columns() -> None:
    accuracy = {"int8": 94.5, "float32": 96.25}
    outcomes = [
        Outcome(method, seed, accuracy, {}, 95.0 + seed, 96.0 - seed, 1.2e6, 1.4e6, "")
        for method in METHODS
        for seed in range(3)
    ]
    file = io.StringIO()
    for table in comparison_tables(RunConfig(name="quick"), tabulate(outcomes), "fedavg"):
        Console(file=file, force_terminal=False, width=80).print(table)
    lines = file.getvalue().splitlines()
    assert sum(line.split()[:1] == ["fedgroupedavg-asymmetric"] for line in lines) == 2, "no name is cut"
    assert len([line for line in lines if "±" in line]) == 2 * len(METHODS) + 1, "and no row is folded"
