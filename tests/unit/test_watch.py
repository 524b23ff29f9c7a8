"""A run as it is watched from outside: growing, cut back, damaged, of an older version, stopped."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from prowd import records
from prowd.console.watch import follower, watch
from prowd.console.watch.follower import Follower
from prowd.console.watch.phrases import span, sparkline
from prowd.errors import RunError
from tests.runs import ask

from .watched import HALF, Hand, a_line, follow, seen


@pytest.fixture
def hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hand:
    monkeypatch.chdir(tmp_path)
    return Hand(Path("runs"))


def test_a_run_under_way(hand: Hand) -> None:
    absent = {"lost": [{"client": 2, "width": "int8", "reason": "no reply"}], "refused": []}
    path = hand.run("one", 4, line={"clients": {"asked": 4, **absent}})
    hand.now += 5
    lines = seen(Follower(path, hand), width=80)
    assert lines[0] == "tiny: fedavg, clients int8:3, float32:1, seed 0"
    assert re.fullmatch(r"round 4/10 ━+ +0:01:07 left", lines[1]), "6 rounds of 12 seconds, and 5 are gone"
    assert lines[2] == "clients    as received      after training       loss sent up received"
    assert lines[4:] == [
        "int8 ×3         20.00% ▁▃▆█         40.00% ▁▃▆█ 1.500  4.0 kB   8.0 kB",
        "float32 ×1      30.00% ▁▃▆█         70.00% ▄▄▄▄ 0.250 16.0 kB  16.0 kB",
        "all             22.50%              47.50%            20.0 kB  24.0 kB",
        "work that is missing: 4 lost, 0 refused",
        *(f"  round {number}: client 2 (int8) lost: no reply" for number in (2, 3, 4)),
        "runs/one",
    ]


def test_nothing_is_wider_than_the_terminal(hand: Hand) -> None:
    path = hand.run("one", 300, of=400, clients="int2:40000, int12:3, float32:100000", seed=2**62)
    for width in (20, 40, 80, 200):
        assert all(len(line) <= width for line in seen(Follower(path, hand), width=width))
    assert any("▁▂▃" in line for line in seen(Follower(path, hand), width=80)) is False, "no such widths were measured"


def test_a_terminal_with_room_shows_more_of_the_course(hand: Hand) -> None:
    looker = Follower(hand.run("one", 10, of=20), hand)
    assert "▁▂▂▃▄▅▆▆▇█" not in "".join(seen(looker, width=80))
    assert "▁▂▃▃▄▅▆▆▇█" in "".join(seen(looker, width=160))


def test_a_run_before_its_first_round(hand: Hand) -> None:
    path = hand.run("one", 0)
    hand.now += 60
    lines = seen(Follower(path, hand))
    assert lines[1].startswith("round 0/10")
    assert lines[2] == "waiting for the first round"
    hand.now += 3600
    text = "".join(seen(Follower(path, hand), width=300))
    assert "no news for 1 h 1 min (no round is finished yet); if it was stopped: prowd run --resume" in text
    assert "waiting" not in text


def test_a_finished_run(hand: Hand) -> None:
    path = hand.run("one", 10, finished=True)
    hand.now += 1e6
    lines = seen(Follower(path, hand))
    assert re.fullmatch(r"round 10/10 ━+ finished in 0:02:00", lines[1])
    assert not any("no news" in line for line in lines)


def test_a_run_that_stops_moving_is_not_an_error(hand: Hand) -> None:
    looker = Follower(hand.run("my run", 4), hand)
    hand.now += 47
    assert not any("no news" in line for line in seen(looker)), "four times a round is not unusual"
    hand.now += 143
    (told,) = [line for line in seen(looker, width=300) if "no news" in line]
    assert told == "no news for 3 min 10 s (a round took 12 s); if it was stopped: prowd run --resume 'runs/my run'"
    assert "left" not in seen(looker)[1]
    hand.run("my run", 5)
    assert not any("no news" in line for line in seen(looker))


def test_short_rounds_may_have_pauses_of_half_a_minute(hand: Hand) -> None:
    looker = Follower(hand.run("one", 4, seconds=0.1), hand)
    hand.now += 29
    assert looker.look().runs[0].state == "running"
    hand.now += 2
    assert looker.look().runs[0].state == "no news"


def test_a_run_of_devices_goes_on_on_flower(hand: Hand) -> None:
    path = hand.run("one", 4)
    hand.write(path / "devices.json", "{}")
    hand.now += 1000
    assert "on Flower (docs/deploy.md)" in "".join(seen(Follower(path, hand), width=300))


def test_a_line_that_is_being_written_is_no_damage(hand: Hand) -> None:
    looker = Follower(hand.run("one", 2, tail=HALF), hand)
    hand.now += 4.9
    assert looker.look().runs[0].made == 2
    assert not any("damaged" in line for line in seen(looker))
    hand.now += 0.2
    assert any(line.startswith("line 3 of rounds.jsonl is damaged") for line in seen(looker)), "it stays so"
    hand.run("one", 3)
    assert not any("damaged" in line for line in seen(looker))


@pytest.mark.parametrize("tail", ["nonsense\n", HALF + "\n" + HALF])
def test_a_whole_line_that_is_damaged_is_remarked_at_once(hand: Hand, tail: str) -> None:
    looker = Follower(hand.run("one", 2, tail=tail), hand)
    hand.now += 0.0 if tail.endswith("\n") else 6.0
    lines = seen(looker)
    assert lines[1].startswith("round 2/10 ")
    assert any(line.startswith("line 3 of rounds.jsonl is damaged") for line in lines)


def test_a_line_that_comes_while_the_file_is_read_is_no_damage(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    path = hand.run("one", 2, tail=HALF)
    read = records.read_record

    def and_then_it_is_whole(place: Path) -> Any:
        found = read(place)
        hand.run("one", 3)
        return found

    monkeypatch.setattr(follower, "read_record", and_then_it_is_whole)
    looker = Follower(path, hand)
    assert looker.look().runs[0].remarks == ()
    monkeypatch.setattr(follower, "read_record", read)
    assert looker.look().runs[0].made == 3


def test_a_run_of_an_older_version(hand: Hand) -> None:
    path = hand.run("one", 0)
    old = {"round": 1, "accuracy": {"trained": {"int8": 0.5}}, "bytes": {"up": {"int8": 10}, "down": {"int8": 20}}}
    hand.write(path / "rounds.jsonl", json.dumps(old) + "\n")
    lines = seen(Follower(path, hand))
    assert any(re.fullmatch(r"int8 ×3 +- +50.00% ▄ +- +10 B +20 B", line) for line in lines), lines
    assert not any("damaged" in line for line in lines)


STRANGE: Sequence[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"seconds": float("nan")}),
    ({}, {"seconds": -5.0}),
    ({}, {"seconds": 1e308}),
    ({}, {"loss": {"int8": float("inf"), "float32": 1e300}}),
    ({}, {"accuracy": {"received": {"int8": float("nan")}, "trained": {"int8": 1e300, "int77": -1.0}}}),
    ({}, {"accuracy": {"received": {}, "trained": {}}}),
    ({"clients": 7}, {}),
    ({"clients": "int8:2000000"}, {"accuracy": {"received": {"[/b]": 0.5}, "trained": {"[red]": 0.5}}}),
    ({"rounds": "many"}, {}),
    ({"rounds": 10**300}, {}),
    ({"rounds": -3}, {}),
    ({"name": "[/bold]\x1b[31m\n", "method": "[/x]\x07"}, {}),
    ({"seed": "one"}, {"notes": {"a": [None]}}),
]


@pytest.mark.parametrize(("config", "line"), STRANGE, ids=str)
def test_strange_contents_give_a_page(hand: Hand, config: dict[str, Any], line: dict[str, Any]) -> None:
    path = hand.run("one", 3, **config, line=line)
    hand.plan(("fedavg", 0))
    for silence in (0, 1e9):
        hand.now += silence
        for folder in (path, hand.folder):
            lines = seen(Follower(folder, hand))
            assert any("3/" in text for text in lines), lines
            assert not any("\x1b" in text or "\x07" in text for text in lines)
    hand.now += 1
    changed = {**config, "rounds": 4}
    text = follow(hand, path, lambda: hand.run("one", 4, finished=True, **changed, line=line))
    assert "round 4/4  " in text


def test_remarks_on_other_files(hand: Hand) -> None:
    path = hand.run("one", 4)
    hand.write(path / "summary.json", "[]")
    hand.write(path / "provenance.json", "{")
    assert "summary.json is no table" in seen(Follower(path, hand))


def test_warnings_of_the_readers_do_not_tear_the_page(hand: Hand, caplog: pytest.LogCaptureFixture) -> None:
    path = hand.run("one", 2, of=2, finished=True)
    hand.write(path / "provenance.json", "{")
    Follower(path, hand).look()
    assert "provenance.json is damaged" in caplog.text
    caplog.clear()
    follow(hand, path)
    assert caplog.text == ""


def test_what_is_no_run_is_an_error(hand: Hand, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    for name, problem in (
        ("nowhere", "is not a directory"),
        ("other", "holds no run"),
        ("other/thesis.tex", "is not a"),
    ):
        with pytest.raises(RunError, match=f"{name} {problem}.*accepted: "):
            Follower(tmp_path / name, hand).look()
    hand.write(tmp_path / "bad" / "config.toml", "a = [")
    for folder in (tmp_path / "bad", tmp_path):
        with pytest.raises(RunError, match=r"bad/config.toml cannot be read"):
            Follower(folder, hand).look()


@pytest.mark.parametrize("there", [[], ["checkpoints/", ".lock", ".config.toml.ab12.tmp"], ["data.npz"]])
def test_a_run_that_has_not_begun_is_waited_for(hand: Hand, there: list[str]) -> None:
    hand.folder.mkdir()
    for name in there:
        (hand.folder / name).mkdir() if name.endswith("/") else (hand.folder / name).touch()
    assert seen(Follower(hand.folder, hand), width=500) == [f"{hand.folder}: waiting for the first round"]
    text = follow(
        hand,
        hand.folder,
        lambda: None,
        lambda: hand.run("", 0, of=2),
        lambda: hand.run("", 1, of=2),
        lambda: hand.run("", 2, of=2, finished=True),
    )
    assert text.count("waiting for the first round") == 1
    assert "0 of 2 rounds are made\nround 1/2 " in text
    assert "finished in 0:00:24" in text


def test_lines_of_a_run_from_the_middle_to_the_end(hand: Hand) -> None:
    path = hand.run("one", 3, of=6)
    refused = {"asked": 4, "lost": [], "refused": [{"client": 1, "width": "int8", "reason": "NaN"}]}

    def two_more() -> None:
        hand.run("one", 5, of=6)
        lines = (path / "rounds.jsonl").read_text("utf-8").splitlines()[:4]
        hand.write(path / "rounds.jsonl", "\n".join([*lines, json.dumps(a_line(5, clients=refused))]) + "\n")

    text = follow(hand, path, lambda: None, two_more, lambda: hand.run("one", 6, of=6, finished=True))
    assert text.splitlines()[:7] == [
        "tiny: fedavg, clients int8:3, float32:1, seed 0",
        f"in {path}",
        "3 of 6 rounds are made",
        "round 5: client 1 (int8) refused: NaN",
        "round 4/6  int8 40.0%  float32 70.0%  ↑20.0 kB ↓24.0 kB",
        "round 5/6  int8 45.0%  float32 70.0%  ↑25.0 kB ↓30.0 kB  0:00:12 left",
        "round 6/6  int8 50.0%  float32 70.0%  ↑30.0 kB ↓36.0 kB",
    ]
    assert text.splitlines()[-1] == str(path), "the final page, its path in one piece"
    assert "finished in 0:01:12" in text


def test_a_stopped_run_is_followed_on_when_it_is_resumed_with_a_round_less(hand: Hand) -> None:
    path = hand.run("one", 5, of=6)
    text = follow(
        hand,
        path,
        *[lambda: None] * 3,
        lambda: hand.run("one", 4, of=6),
        lambda: hand.run("one", 5, of=6),
        lambda: hand.run("one", 6, of=6, finished=True),
        pause=100.0,
    )
    told = [re.sub(r" \(a.*| {2}int8.*", "", line) for line in text.splitlines()[2:8]]
    assert told == [
        "5 of 6 rounds are made",
        "no news for 1 min 40 s",
        "goes on after round 4",
        "round 5/6",
        "round 6/6",
        "tiny: fedavg, clients int8:3, float32:1, seed 0",
    ]


def test_the_live_page_follows_a_run_to_its_end(hand: Hand) -> None:
    path = hand.run("one", 1, of=3)
    steps = [lambda: hand.run("one", 2, of=3), lambda: hand.run("one", 1, of=3)]
    text = follow(hand, path, *steps, lambda: hand.run("one", 3, of=3, finished=True), terminal=True)
    frames = re.findall(r"round (\d)/3 ", text)
    assert frames == ["1", "2", "1", "3", "3", "3"], (
        "up and back, the last once more as the view ends, and then to stay"
    )
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor comes back"
    assert text.endswith(f"{path}\n")


@pytest.mark.parametrize("terminal", [False, True])
def test_ctrl_c_leaves_the_last_page(hand: Hand, terminal: bool) -> None:
    path = hand.run("one", 1)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    file = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        watch(path, Console(file=file, force_terminal=terminal, width=80), now=hand, sleep=interrupt)
    assert file.getvalue().endswith(f"{path}\n")
    assert not terminal or file.getvalue().rindex("\x1b[?25h") > file.getvalue().rindex("\x1b[?25l")


def test_what_is_over_is_shown_once(hand: Hand) -> None:
    path = hand.run("one", 2, of=2, finished=True)
    for terminal in (False, True):
        assert follow(hand, path, terminal=terminal).count("tiny: fedavg") == 1


def test_a_directory_that_goes_away_is_an_error(hand: Hand) -> None:
    path = hand.run("one", 1)
    with pytest.raises(RunError, match="one is not a directory"):
        follow(hand, path, lambda: path.rename("elsewhere"))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.44, "0.4 s"), (9.9, "9.9 s"), (12, "12 s"), (59.7, "1 min 0 s"), (190, "3 min 10 s"),
        (7500, "2 h 5 min"), (3e5, "3 days"), (1e300, "11574074 days"),
    ],
)  # fmt: skip
def test_spans_of_time(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("values", "width", "text"),
    [
        ([], 8, ""), ([0.5], 8, "▄"), ([0.1, 0.2, 0.9], 8, "▁▂█"), ([0.0, 0.2, 0.8, 1.0], 2, "▁█"),
        ([0.3] * 9, 3, "▄▄▄"), ([float("nan"), 0.2, float("inf")], 8, "▁█"), ([0.1, 0.2], 0, ""),
    ],
)  # fmt: skip
def test_courses(values: list[float], width: int, text: str) -> None:
    assert sparkline(values, width) == text


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon", "3601"])
def test_how_often_must_be_sensible(value: str, tmp_path: Path) -> None:
    done = ask("watch", ".", "--every", value, cwd=tmp_path)
    assert done.returncode == 2
    assert "--every" in done.stderr


def test_the_command_ends_with_what_came_of_the_runs(hand: Hand, tmp_path: Path) -> None:
    hand.run("a-seed0", 2, of=2, method="a", finished=True)
    hand.plan(("a", 0))
    done = ask("watch", "runs", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1/1 run finished" in done.stdout
    hand.plan(("a", 0), ("b", 0), b_seed0="gone")
    assert ask("watch", "runs", cwd=tmp_path).returncode == 1
    assert ask("watch", "runs", "--once", cwd=tmp_path).returncode == 0


def test_the_command_once(hand: Hand, tmp_path: Path) -> None:
    path = hand.run("one", 3, tail=HALF)
    hand.write(path / "provenance.json", "{")
    done = ask("watch", "runs/one", "--once", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no news for" in done.stdout
    assert "line 4 of rounds.jsonl is damaged" in done.stdout
    missing = ask("watch", "nowhere", cwd=tmp_path)
    assert missing.returncode == 1
    assert missing.stderr == ("error: nowhere is not a directory; accepted: that of a run or of a comparison\n")
