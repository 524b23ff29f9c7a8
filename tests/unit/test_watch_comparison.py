"""A comparison as it is watched from outside: runs that wait, go on, are stopped, fail; its end and its time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from prowd import records
from prowd.console.watch import follower
from prowd.console.watch.follower import Follower
from prowd.methods import METHODS

from .watched import Hand, follow, seen


@pytest.fixture
def hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hand:
    monkeypatch.chdir(tmp_path)
    return Hand(Path("runs"))


def comparison(hand: Hand) -> None:
    """Runs of every kind."""
    hand.now -= 1000
    hand.run("fedavg-seed0", 10, finished=True)
    hand.run("old-seed7", 3, method="old", seed=7)
    hand.now += 1000
    hand.run("prowd-seed0", 5, method="examples/mine.py:prowd", seconds=20.0)
    hand.run("prowd-seed1", 2, method="prowd", seed=1, seconds=30.0)
    hand.run("local-seed0", 1, method="local")
    for other in ("tensorboard/fedavg-seed0", "report", "prowd-seed0/snapshots"):
        (hand.folder / other).mkdir(parents=True)
    failure = "Traceback (most recent call last):\n  ...\nValueError: [bold]bad[/bold]\n"
    hand.plan(
        ("fedavg", 0), ("prowd", 0), ("local", 0), ("fedavg", 1), ("prowd", 1), ("odd", 1),
        local_seed0=failure, odd_seed1="its process ended",
    )  # fmt: skip


def test_a_comparison_of_all_kinds_of_runs(hand: Hand) -> None:
    comparison(hand)
    lines = seen(Follower(hand.folder, hand))
    assert lines[0] == "tiny: 5 methods, 3 seeds, 7 runs"
    assert re.fullmatch(r"1/7 runs finished ━+ +2 failed, 2 at once, 0:04:00 left", lines[1])
    assert [line.split() for line in lines[2:3]] == [["method", "seed", "round", "int8", "float32", "average", "state"]]
    assert [re.sub(" +", " ", line) for line in lines[4:]] == [
        "fedavg 0 10/10 70.0% 70.0% 70.0% finished",
        "prowd 0 5/10 45.0% 70.0% 51.2% running",
        "local 0 1/10 25.0% 70.0% 36.2% failed",
        "fedavg 1 0/10 - - - waiting",
        "prowd 1 2/10 30.0% 70.0% 40.0% running",
        "odd 1 0/10 - - - failed",
        "old 7 3/10 35.0% 70.0% 43.8% no news",
        "local, seed 0 failed: ValueError: [bold]bad[/bold]",
        "odd, seed 1 failed: its process ended",
        "old, seed 7: no news for 16 min 40 s (a round took 12 s)",
        "runs",
    ]


def test_the_time_that_a_comparison_takes(hand: Hand) -> None:
    hand.run("a-seed0", 10, method="a", finished=True, seconds=4.0)
    hand.run("b-seed0", 5, method="b", seconds=10.0)
    hand.plan(("a", 0), ("b", 0))
    looker = Follower(hand.folder, hand)
    assert looker.look().left() == 50
    hand.plan(("a", 0), ("b", 0), ("a", 1), ("c", 0))
    assert looker.look().left() == 50 + 40 + 70, "the rounds of a method's other runs, or of all"
    hand.run("a-seed1", 0, method="a", seed=1)
    assert looker.look().left() == 160 / 2
    hand.now += 3
    assert looker.look().left() == pytest.approx((47 + 40 + 70) / 2)
    hand.run("b-seed0", 10, method="b", finished=True, seconds=10.0)
    assert looker.look().jobs == 2, "two went on at once a moment ago"
    assert looker.look().left() == 70, "the longest of those that are left"
    hand.now += 40
    assert looker.look().jobs == 1
    hand.run("a-seed1", 10, method="a", seed=1, finished=True)
    hand.now += 40
    assert looker.look().left() is None, "nobody is at work"


def test_a_comparison_that_was_stopped(hand: Hand) -> None:
    hand.run("a-seed0", 5, method="a")
    hand.plan(("a", 0), ("b", 0))
    hand.now += 1000
    looker = Follower(hand.folder, hand)
    assert "if they were stopped: the same prowd compare goes on with them" in seen(looker)
    assert not looker.look().is_over
    assert "left" not in seen(looker)[1]


def test_more_runs_than_lines(hand: Hand) -> None:
    for seed in range(40):
        hand.run(f"fedavg-seed{seed}", 10, seed=seed, finished=True)
    for seed in range(40, 43):
        hand.run(f"fedavg-seed{seed}", 4, seed=seed)
    hand.plan(*(("fedavg", seed) for seed in range(60)))
    looker = Follower(hand.folder, hand)
    lines = seen(looker, height=24)
    assert len(lines) < 24, "and a line for the cursor"
    assert sum("running" in line for line in lines) == 3
    assert "and 26 finished, 17 waiting" in lines
    assert [line.split()[1] for line in lines[4:-2]] == [*map(str, range(14)), "40", "41", "42"], "in the plan's order"
    assert len(seen(looker)) == 60 + 5, "all of them at the end"
    assert "and 2 running, 40 finished, 17 waiting" in seen(looker, height=7)
    assert seen(looker, height=1)


def test_a_comparison_of_many_methods_and_widths_fits_80_columns(hand: Hand) -> None:
    names = [*METHODS, "a_method_whose_name_is_too_long"]
    for method in names:
        hand.run(f"{method}-seed0", 400, of=400, method=method, clients="int6:3, int8:3, int12:2, int16:2")
    looker = Follower(hand.folder, hand)
    lines = seen(looker)
    assert all(len(line) <= 80 and "…" not in line for line in lines if "a_method" not in line)
    assert "a_method_whose_name_is_…" in "".join(lines)
    assert lines[2].split() == ["method", "seed", "round", "int6", "int16", "average", "state"]
    assert "int12" in seen(looker, width=100)[2]
    for width in (20, 40, 60):
        assert all(len(line) <= width for line in seen(looker, width=width))


def test_of_many_widths_those_of_most_runs_are_shown(hand: Hand) -> None:
    mixes = ["int8:1, float32:1"] * 3 + ["int2:1", "int4:1, int6:1, int7:1", "int16:1"]
    for seed, mix in enumerate(mixes):
        hand.run(f"a_method_of_a_long_name_-seed{seed}", 1, method="a_method_of_a_long_name_", seed=seed, clients=mix)
    looker = Follower(hand.folder, hand)
    assert seen(looker)[2].split()[3:-2] == ["int8", "float32"]
    assert seen(looker, width=89)[2].split()[3:-2] == ["int2", "int8", "float32"], "and of the others the outermost"


def test_runs_of_several_comparisons_go_by_their_folders(hand: Hand) -> None:
    hand.run("one/fedavg-seed0", 10, finished=True)
    hand.run("two/fedavg-seed0", 3)
    hand.write(hand.folder / "two/fedavg-seed0/checkpoints/config.toml", "")
    lines = seen(Follower(hand.folder, hand))
    assert lines[2].split()[0] == "run"
    assert [line.split()[0] for line in lines[4:6]] == ["one/fedavg-seed0", "two/fedavg-seed0"]
    assert lines[0] == "tiny: 1 method, 1 seed, 2 runs"


def test_a_comparison_ends_by_itself(hand: Hand) -> None:
    hand.plan(("a", 0), ("b", 0))
    text = follow(
        hand,
        hand.folder,
        lambda: hand.run("a-seed0", 0, of=1, method="a"),
        lambda: hand.run("a-seed0", 1, of=1, method="a", finished=True),
        lambda: hand.run("b-seed0", 1, of=1, method="b"),
        lambda: hand.run("b-seed0", 1, of=1, method="b", finished=True),
    )
    assert text.splitlines()[:4] == [
        "runs: 2 methods, 1 seed, 2 runs (2 waiting)",
        "in runs",
        "a, seed 0: round 1/1  int8 25.0%  float32 70.0%  ↑5.0 kB ↓6.0 kB",
        "b, seed 0: round 1/1  int8 25.0%  float32 70.0%  ↑5.0 kB ↓6.0 kB  0:00:00 left",
    ]
    assert "2/2 runs finished" in text


def test_a_comparison_whose_remaining_runs_failed_ends(hand: Hand) -> None:
    hand.run("a-seed0", 10, method="a", finished=True)
    hand.run("b-seed0", 2, method="b")
    hand.plan(("a", 0), ("b", 0))

    def fail() -> None:
        hand.run("b-seed0", 3, method="b")  # its last round is seen together with its failure
        hand.plan(("a", 0), ("b", 0), b_seed0="no [memory]\nOSError: gone")

    text = follow(hand, hand.folder, lambda: None, fail)
    assert "b, seed 0: failed: OSError: gone\n" in text
    assert "1/2 runs finished" in text
    assert "1 failed" in text


def test_a_failed_run_that_is_resumed_is_followed_on(hand: Hand) -> None:
    hand.run("a-seed0", 1, method="a")
    hand.run("b-seed0", 2, method="b")
    hand.plan(("a", 0), ("b", 0), b_seed0="gone")
    looker = Follower(hand.folder, hand)
    assert [run.state for run in looker.look().runs] == ["running", "failed"]
    hand.now += 1
    hand.run("b-seed0", 3, method="b")
    assert [run.state for run in looker.look().runs] == ["running", "running"]
    hand.run("b-seed0", 10, method="b", finished=True)
    assert looker.look().runs[1].state == "finished"
    assert not any("gone" in line for line in seen(looker))


def test_a_finished_run_that_reports_no_accuracy_failed(hand: Hand) -> None:
    hand.run("a-seed0", 3, of=3, method="a", finished=True, line={"accuracy": {}})
    hand.plan(("a", 0), a_seed0="a reports no accuracy_received")
    picture = Follower(hand.folder, hand).look()
    assert [run.state for run in picture.runs] == ["failed"]
    assert picture.is_over


def test_a_run_beside_the_plan_is_waited_for_only_while_it_moves(hand: Hand) -> None:
    hand.run("a-seed0", 10, method="a", finished=True)
    hand.run("b-seed0", 2, method="b")
    hand.plan(("a", 0))
    looker = Follower(hand.folder, hand)
    assert not looker.look().is_over
    hand.now += 100
    assert looker.look().is_over
    (hand.folder / "comparison.json").unlink()
    assert not looker.look().is_over, "without a plan all runs count alike"


def test_a_run_that_cannot_be_read_is_named_among_the_others(hand: Hand) -> None:
    hand.run("a-seed0", 10, method="a", finished=True)
    hand.write(hand.folder / "b-seed0" / "config.toml", "rounds = [")
    looker = Follower(hand.folder, hand)
    lines = seen(looker, width=200)
    assert any(re.match(r"b-seed0 unreadable: runs/b-seed0/config.toml cannot be read", line) for line in lines), lines
    assert looker.look().is_over
    hand.plan(("a", 0), ("b", 0))
    assert any(re.match(r"b, seed 0 unreadable: ", line) for line in seen(looker, width=200))


def test_a_damaged_plan_is_remarked(hand: Hand) -> None:
    hand.run("a-seed0", 3, method="a")
    hand.write(hand.folder / "comparison.json", '{"runs": 7')
    assert any(line.startswith("comparison.json cannot be read") for line in seen(Follower(hand.folder, hand)))


def test_of_many_runs_only_those_that_changed_are_read(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(9):
        hand.run(f"fedavg-seed{seed}", 2, seed=seed)
    read: list[str] = []

    def note(place: Path) -> records.Record:
        read.append(place.name)
        return records.read_record(place)

    monkeypatch.setattr(follower, "read_record", note)
    looker = Follower(hand.folder, hand)
    looker.look()
    assert len(read) == 9
    looker.look()
    assert len(read) == 9
    hand.run("fedavg-seed4", 3, seed=4)
    assert looker.look().runs[4].made == 3
    (hand.folder / "fedavg-seed5/summary.json").write_text("{}", "utf-8")
    looker.look()
    assert read[9:] == ["fedavg-seed4", "fedavg-seed5"]


def test_nothing_is_written_and_no_lock_is_touched(hand: Hand) -> None:
    comparison(hand)
    hand.write(hand.folder / "prowd-seed0" / ".lock", "")

    def state() -> dict[Path, tuple[int, int]]:
        return {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in hand.folder.rglob("*")}

    before = state()
    for folder in (hand.folder, hand.folder / "prowd-seed0"):
        seen(Follower(folder, hand))
    assert state() == before
