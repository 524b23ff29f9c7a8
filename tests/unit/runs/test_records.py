"""Runs as they are found on a disk: whole, under way, of an older version and of a later one."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from prowd.federation.report import Absence
from prowd.runs.read import read_record
from tests.runs import ROUND_KEYS, rounds, run_tiny, summary
from tests.unit.runs.records import CONFIG, SESSIONS, SUMMARY, finished, line, names, without, write


def test_a_finished_run_is_read_whole(tmp_path: Path) -> None:
    found = read_record(finished(tmp_path / "run"))
    assert (found.name, found.method, found.seed, found.rounds) == ("mine", "prowd", 4, 3)
    assert found.path == tmp_path / "run"
    assert found.is_finished
    assert list(found.remarks) == []
    assert found.config["float32"] == {"lr": 0.1}
    assert found.summary == SUMMARY
    assert found.sessions == SESSIONS
    assert [one.round for one in found.lines] == [1, 2, 3]
    assert found.lines[1].accuracy.trained == {"int8": 0.2, "float32": 0.75}
    assert found.lines[1].accuracy.received == {"int8": 0.25, "float32": 0.5}
    assert found.lines[1].loss == {"int8": 1.5, "float32": 0.5}
    assert found.lines[1].traffic.clients == {0: (100, 100), 1: (100, 100), 2: (10, 40)}
    assert found.lines[1].seconds == 2.5


def test_a_round_is_read_as_it_was_written(tmp_path: Path) -> None:
    diverged = line(1, loss={"int8": math.nan, "float32": math.inf}, devices=[{"client": 0, "status": "ok"}])
    (found,) = read_record(write(tmp_path, lines=[diverged])).lines
    assert json.dumps(found.line()) == json.dumps(diverged), "to the key, and to a loss that is no number"
    assert found.devices == diverged["devices"]


def test_a_record_adds_up(tmp_path: Path) -> None:
    found = read_record(finished(tmp_path))
    assert found.widths == {0: "float32", 1: "float32", 2: "int8"}
    assert list(found.mix.items()) == [("int8", 1), ("float32", 2)], "low widths first"
    assert list(found.latest("trained").items()) == [("int8", 0.3), ("float32", 0.75)]
    assert found.latest("received") == {"int8": 0.25, "float32": 0.5}
    assert found.average(found.latest("trained")) == pytest.approx((0.3 + 2 * 0.75) / 3)
    assert found.average({}) is None
    assert (found.moved("up"), found.moved("down")) == (3 * 210, 3 * 240)


def test_an_accuracy_that_was_not_measured_is_that_of_the_last_measurement(tmp_path: Path) -> None:
    partly = line(2, accuracy={"received": {}, "trained": {"int8": 0.9}})
    found = read_record(write(tmp_path, lines=[line(1), partly, line(3, accuracy={"received": {}, "trained": {}})]))
    assert found.latest("trained") == {"int8": 0.9, "float32": 0.75}
    assert found.latest("received") == {"int8": 0.25, "float32": 0.5}
    never = read_record(write(tmp_path / "never", lines=[line(1, accuracy={})]))
    assert never.latest("trained") == {}
    assert never.average(never.latest("trained")) is None


@pytest.mark.parametrize(
    ("rounds", "made", "summary", "remark"),
    [
        (3, 0, None, "no round is finished yet"),
        (3, 2, None, "2 of 3 rounds are made"),
        (3, 3, None, "3 of 3 rounds are made"),  # and not summed up
        (5, 4, SUMMARY, "4 of 5 rounds are made"),  # of a run that is made longer
    ],
)
def test_an_unfinished_run_says_how_far_it_is(
    rounds: int, made: int, summary: dict[str, Any] | None, remark: str, tmp_path: Path
) -> None:
    found = read_record(write(tmp_path, {**CONFIG, "rounds": rounds}, map(line, range(1, made + 1)), summary))
    assert not found.is_finished
    assert (len(found.lines), found.rounds, found.moved("up")) == (made, rounds, made * 210)
    assert list(found.remarks) == [remark]


def test_an_older_version_wrote_less(tmp_path: Path) -> None:
    older = [without(without(line(n), "bytes", "clients"), "notes") for n in (1, 2, 3)]
    found = read_record(write(tmp_path, without(CONFIG, "snapshots"), older, SUMMARY))
    assert found.is_finished
    assert list(found.remarks) == []
    assert list(found.sessions) == []
    assert all(one.traffic.clients == {} for one in found.lines)
    assert found.moved("up") == 630


@pytest.mark.parametrize("key", ["loss", "notes", "seconds", "clients"])
def test_what_is_no_more_than_good_to_know_may_be_missing(key: str, tmp_path: Path) -> None:
    found = read_record(write(tmp_path, lines=[without(line(n), key) for n in (1, 2, 3)], summary=SUMMARY))
    assert found.is_finished


def test_a_later_version_writes_more(tmp_path: Path) -> None:
    more = {"devices": [{"client": 0}], "energy": 3}
    later = line(1, **more, bytes={**line(1)["bytes"], "sideways": {}}, accuracy={**line(1)["accuracy"], "best": 1})
    config = {**CONFIG, "rounds": 1, "weather": "fine", "options": {"new": [1]}}
    found = read_record(write(tmp_path, config, [later], {**SUMMARY, "rounds": 1, "new": 1}, [{"round": 0, "new": {}}]))
    assert found.is_finished
    assert list(found.remarks) == []
    assert (found.config["weather"], found.sessions[0]["new"]) == ("fine", {})


def test_who_was_missing_is_said(tmp_path: Path) -> None:
    lost = [{"client": 2, "width": "int8", "reason": "no reply"}]
    refused = [{"client": 0, "width": "float32", "reason": "too long", "attempt": 2}, {"client": 1, "width": "float32"}]
    crowd = {"asked": 3, "lost": lost, "refused": refused}
    (found,) = read_record(write(tmp_path, lines=[line(1, clients=crowd)])).lines
    assert found.clients.asked == 3
    assert found.clients.lost == [Absence(client=2, width="int8", reason="no reply")]
    assert found.clients.refused == [
        Absence(client=0, width="float32", reason="too long", attempt=2), Absence(client=1, width="float32"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "named", "shown"),
    [
        ("fedavg", None, "fedavg"),
        ("/home/ada/my methods/median.py:Median", None, "Median"),
        ("C:/mine/median.py:Median", None, "Median"),
        ("mine.median:Median", None, "Median"),
        ("/home/ada/median.py:Median", "median", "median"),
        ("", None, ""),
        (7, None, "7"),
    ],
)
def test_a_method_of_one_s_own_has_the_name_of_its_class_until_it_says_more(
    method: object, named: str | None, shown: str, tmp_path: Path
) -> None:
    path = write(tmp_path, {**CONFIG, "method": method}, [line(1)], {"method": named} if named else None)
    assert read_record(path).method == shown


def test_settings_that_are_not_there_or_make_no_sense_are_made_up_for(tmp_path: Path) -> None:
    bare = read_record(write(tmp_path / "bare", {}, [line(1)], {**SUMMARY, "rounds": 1}))
    assert (bare.name, bare.method, bare.seed, bare.rounds, bare.is_finished) == ("bare", "prowd", 0, 1, True)
    assert (bare.widths, bare.mix) == ({}, {})
    assert bare.latest("trained") == {"int8": 0.1, "float32": 0.75}
    assert bare.average(bare.latest("trained")) == pytest.approx((0.1 + 0.75) / 2), "each counts the same"
    odd = {"name": 3, "seed": "x", "rounds": "many", "clients": "int99:3", "method": ["a"]}
    found = read_record(write(tmp_path / "odd", odd, [line(1), line(2)]))
    assert (found.name, found.seed, found.rounds, found.widths) == ("3", 0, 2, {})


def test_runs_are_found_in_order_two_levels_down_and_no_further(tmp_path: Path) -> None:
    for name in ("compare-b/fedavg-seed0", "compare-a/prowd-seed0", "compare-a/fedavg-seed0", "single", "far/too/deep"):
        finished(tmp_path / name)
    (tmp_path / "compare-a" / "table.md").write_text("", "utf-8")
    assert names(tmp_path) == [
        "compare-a/fedavg-seed0", "compare-a/prowd-seed0", "compare-b/fedavg-seed0", "single",
    ]  # fmt: skip
    assert names(tmp_path / "compare-a") == ["fedavg-seed0", "prowd-seed0"]
    assert names(tmp_path / "single") == ["."]


def test_a_run_of_this_version_is_read(tmp_path: Path) -> None:
    path = run_tiny(tmp_path / "run", rounds=2, evaluate_every=5).path
    found = read_record(path)
    assert found.is_finished
    assert list(found.remarks) == []
    assert (found.name, found.method, found.seed, found.rounds) == ("tiny", "fedavg", 0, 2)
    assert found.mix == {"int8": 2, "float32": 2}
    written, said = rounds(path), summary(path)
    assert set(written[0]["bytes"]) == ROUND_KEYS["bytes"]
    for read, kept in zip(found.lines, written, strict=True):
        assert read.traffic.clients == {int(n): tuple(counts) for n, counts in kept["bytes"]["clients"].items()}
        assert set(read.traffic.clients) == set(found.widths)
        assert read.traffic.up == kept["bytes"]["up"]
        assert read.accuracy.trained == kept["accuracy"]["trained"]
    assert found.latest("trained") == pytest.approx(said["accuracy"]["trained"])
    assert found.average(found.latest("trained")) == pytest.approx(said["average_accuracy"]["trained"])
    assert [session["round"] for session in found.sessions] == [0]
    assert names(tmp_path) == ["run"]
