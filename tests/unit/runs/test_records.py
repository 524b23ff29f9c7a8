"""Runs as they are found on a disk: whole, under way, of an older version, and damaged in every one of their files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from prowd.errors import RunError
from prowd.runs.read import Absent, find_records, read_plan, read_record
from tests.runs import ROUND_KEYS, rounds, run_tiny, summary

CONFIG: dict[str, Any] = {
    "name": "mine",
    "method": "prowd",
    "seed": 4,
    "rounds": 3,
    "clients": "float32:2, int8:1",
    "snapshots": "auto",
    "float32": {"lr": 0.1},
}
SUMMARY: dict[str, Any] = {"method": "prowd", "rounds": 3, "weights_sha256": "c0ffee"}
SESSIONS = [{"version": "0.1.0", "command": "prowd run mine.toml", "round": 0}, {"version": "0.2.0", "round": 2}]


def line(round_: int, **changes: Any) -> dict[str, Any]:
    """A round as it is written down."""
    return {
        "round": round_,
        "accuracy": {"received": {"int8": 0.25, "float32": 0.5}, "trained": {"int8": round_ / 10, "float32": 0.75}},
        "loss": {"int8": 1.5, "float32": 0.5},
        "bytes": {
            "up": {"int8": 10, "float32": 200},
            "down": {"int8": 40, "float32": 200},
            "clients": {"0": [100, 100], "1": [100, 100], "2": [10, 40]},
        },
        "clients": {"asked": 3, "lost": [], "refused": []},
        "notes": {"zeros": {"conv.weight": 0.5}},
        "seconds": 2.5,
        **changes,
    }


def without(given: Mapping[str, Any], *path: str) -> dict[str, Any]:
    """A table without one of its keys, which may be in an inner table."""
    key, *rest = path
    if rest:
        return {**given, key: without(given[key], *rest)}
    return {name: value for name, value in given.items() if name != key}


def write(
    path: Path,
    config: Mapping[str, Any] | None = None,
    lines: Iterable[Mapping[str, Any]] = (),
    summary: Mapping[str, Any] | None = None,
    sessions: Iterable[Mapping[str, Any]] | None = None,
) -> Path:
    """A run directory, as far as it has come."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.toml").write_text(tomli_w.dumps(CONFIG if config is None else config), "utf-8")
    texts = [json.dumps(one) + "\n" for one in lines]
    if texts:
        (path / "rounds.jsonl").write_text("".join(texts), "utf-8")
    if summary is not None:
        (path / "summary.json").write_text(json.dumps(summary), "utf-8")
    if sessions is not None:
        (path / "provenance.json").write_text(json.dumps({"sessions": list(sessions)}), "utf-8")
    return path


def finished(path: Path, **config: Any) -> Path:
    return write(path, {**CONFIG, **config}, map(line, (1, 2, 3)), SUMMARY, SESSIONS)


# What is found


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


def test_an_unfinished_run_says_how_far_it_is(tmp_path: Path) -> None:
    found = read_record(write(tmp_path, lines=[line(1), line(2)], sessions=SESSIONS))
    assert not found.is_finished
    assert found.summary is None
    assert (len(found.lines), found.rounds) == (2, 3)
    assert list(found.remarks) == ["2 of 3 rounds are made"]


def test_a_run_that_is_made_longer_is_unfinished_though_it_has_a_summary(tmp_path: Path) -> None:
    found = read_record(write(tmp_path, {**CONFIG, "rounds": 5}, map(line, (1, 2, 3, 4)), SUMMARY))
    assert not found.is_finished
    assert list(found.remarks) == ["4 of 5 rounds are made"]


def test_all_rounds_without_a_summary_are_not_the_end(tmp_path: Path) -> None:
    found = read_record(write(tmp_path, lines=map(line, (1, 2, 3))))
    assert not found.is_finished
    assert list(found.remarks) == ["3 of 3 rounds are made"]


def test_a_run_that_has_just_begun_is_empty(tmp_path: Path) -> None:
    found = read_record(write(tmp_path))
    assert not found.is_finished
    assert (list(found.lines), list(found.sessions)) == ([], [])
    assert list(found.remarks) == ["no round is finished yet"]
    assert (found.moved("up"), found.latest("trained"), found.rounds) == (0, {}, 3)


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
    assert found.clients.lost == [Absent(client=2, width="int8", reason="no reply")]
    assert found.clients.refused == [
        Absent(client=0, width="float32", reason="too long", attempt=2), Absent(client=1, width="float32"),
    ]  # fmt: skip


def test_losses_that_diverged_are_read(tmp_path: Path) -> None:
    found = read_record(write(tmp_path, lines=[line(1, loss={"int8": math.nan, "float32": math.inf})]))
    assert math.isnan(found.lines[0].loss["int8"])
    assert math.isinf(found.lines[0].loss["float32"])


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


# Damage


@pytest.mark.parametrize("text", [b"", b"\xff", b"{", b"[]", b"null", b"7", b"[" * 100_000, b'{"round": 2}'])
def test_rounds_end_where_damage_begins(text: bytes, tmp_path: Path) -> None:
    path = write(tmp_path, lines=[line(1)], summary=SUMMARY)
    with (path / "rounds.jsonl").open("ab") as file:
        file.write(text + b"\n" + json.dumps(line(3)).encode() + b"\n")
    found = read_record(path)
    assert [one.round for one in found.lines] == [1]
    assert not found.is_finished
    damage, progress = found.remarks
    assert damage.startswith("line 2 of rounds.jsonl is damaged (")
    assert damage.endswith("); the rest is left out")
    assert "\n" not in damage
    assert progress == "1 of 3 rounds are made"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"round": 0}, "round"),
        ({"round": "two"}, "round"),
        ({"accuracy": None}, "accuracy"),
        ({"accuracy": {"trained": {"int8": "good"}}}, "accuracy.trained.int8"),
        ({"bytes": {"up": {"int8": -1}, "down": {}}}, "bytes.up.int8"),
        ({"bytes": {"up": {"int8": 1.5}, "down": {}}}, "bytes.up.int8"),
        ({"bytes": {"up": {"int8": 10**400}, "down": {}}}, "bytes.up.int8"),
        ({"clients": {"asked": 10**4000}}, "clients.asked"),
        ({"bytes": {"up": {}}}, "bytes.down"),
        ({"bytes": {"up": {}, "down": {}, "clients": {"x": [1, 2]}}}, "bytes.clients.x"),
        ({"bytes": {"up": {}, "down": {}, "clients": {"0": [1]}}}, "bytes.clients.0"),
        ({"clients": {"lost": [{"width": "int8"}]}}, "clients.lost.0.client"),
        ({"seconds": "long"}, "seconds"),
    ],
)
def test_a_line_without_sense_is_remarked_upon_with_the_place(
    change: dict[str, Any], place: str, tmp_path: Path
) -> None:
    found = read_record(write(tmp_path, lines=[line(1), line(2, **change), line(3)]))
    assert len(found.lines) == 1
    assert found.remarks[0].startswith(f"line 2 of rounds.jsonl is damaged ({place}")


@pytest.mark.parametrize("numbers", [(2, 3), (1, 1, 2), (1, 3), (1, 2, 1), (1, 10**30)])
def test_rounds_out_of_order_are_left_out(numbers: tuple[int, ...], tmp_path: Path) -> None:
    found = read_record(write(tmp_path, lines=map(line, numbers)))
    right = [n for at, n in enumerate(numbers, 1) if list(numbers[:at]) == list(range(1, at + 1))]
    assert [one.round for one in found.lines] == right
    wrong = numbers[len(right)]
    assert found.remarks[0] == f"line {len(right) + 1} of rounds.jsonl is of round {wrong}; the rest is left out"


def test_a_last_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, lines=[line(1), line(2)])
    text = (path / "rounds.jsonl").read_bytes()
    for end in range(len(text) - 200, len(text) - 2, 7):
        (path / "rounds.jsonl").write_bytes(text[:end])
        assert [one.round for one in read_record(path).lines] == [1]
    (path / "rounds.jsonl").write_bytes(text[:-1])
    assert len(read_record(path).lines) == 2, "whole but for its end"


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5000])
def test_a_summary_that_is_damaged_is_left_out(text: bytes, tmp_path: Path) -> None:
    path = finished(tmp_path)
    (path / "summary.json").write_bytes(text)
    found = read_record(path)
    assert found.summary is None
    assert not found.is_finished
    assert found.remarks[0].startswith("summary.json cannot be read: ")
    assert list(found.remarks[1:]) == ["3 of 3 rounds are made"]
    assert found.method == "prowd", "as its settings say"


@pytest.mark.parametrize("text", [b"[]", b"null", b"3", b'"done"'])
def test_a_summary_that_is_no_table_is_left_out(text: bytes, tmp_path: Path) -> None:
    path = finished(tmp_path)
    (path / "summary.json").write_bytes(text)
    assert list(read_record(path).remarks) == ["summary.json is no table", "3 of 3 rounds are made"]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b'{"sessions": 3}', b'{"sessions": [3]}'])
def test_a_provenance_that_is_damaged_is_left_out(text: bytes, tmp_path: Path) -> None:
    path = finished(tmp_path)
    (path / "provenance.json").write_bytes(text)
    found = read_record(path)
    assert list(found.sessions) == []
    assert found.is_finished


def test_folders_in_the_place_of_files_are_remarked_upon(tmp_path: Path) -> None:
    path = write(tmp_path)
    for name in ("rounds.jsonl", "summary.json", "provenance.json"):
        (path / name).mkdir()
    remarks = read_record(path).remarks
    assert [remark.partition(":")[0] for remark in remarks] == [
        "rounds.jsonl cannot be read", "summary.json cannot be read", "no round is finished yet",
    ]  # fmt: skip


@pytest.mark.parametrize("text", [b"rounds = ", b"\xff\xfe", b"a = " + b"[" * 100_000, b"a = " + b"1" * 5000])
def test_a_run_whose_settings_cannot_be_read_is_an_error(text: bytes, tmp_path: Path) -> None:
    path = finished(tmp_path)
    (path / "config.toml").write_bytes(text)
    with pytest.raises(RunError, match=rf"^{path / 'config.toml'} cannot be read: "):
        read_record(path)


def test_a_run_without_settings_is_none(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=rf"^{tmp_path / 'config.toml'} cannot be read: "):
        read_record(tmp_path)


# Where runs are


def names(folder: Path) -> list[str]:
    return [str(record.path.relative_to(folder)) for record in find_records(folder)[0]]


def test_a_run_is_found_in_its_own_folder(tmp_path: Path) -> None:
    finished(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    assert names(tmp_path) == ["."]


def test_the_runs_of_a_comparison_are_found_in_order(tmp_path: Path) -> None:
    for name in ("prowd-seed1", "fedavg-seed0", "prowd-seed0"):
        finished(tmp_path / name)
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "table.md").write_text("", "utf-8")
    assert names(tmp_path) == ["fedavg-seed0", "prowd-seed0", "prowd-seed1"]


def test_runs_are_found_two_levels_down_and_no_further(tmp_path: Path) -> None:
    for name in ("compare-b/fedavg-seed0", "compare-a/fedavg-seed0", "single", "far/too/deep"):
        finished(tmp_path / name)
    assert names(tmp_path) == ["compare-a/fedavg-seed0", "compare-b/fedavg-seed0", "single"]


def test_what_cannot_be_read_is_told_beside_the_rest(tmp_path: Path) -> None:
    finished(tmp_path / "good")
    (finished(tmp_path / "bad") / "config.toml").write_text("rounds = ", "utf-8")
    records, problems = find_records(tmp_path)
    assert [record.path.name for record in records] == ["good"]
    (problem,) = problems
    assert problem.startswith(f"{tmp_path / 'bad' / 'config.toml'} cannot be read: ")


def test_nothing_but_damage_is_an_error(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (finished(tmp_path / name) / "config.toml").write_text("rounds = ", "utf-8")
    with pytest.raises(RunError, match=r"a/config\.toml cannot be read: .*; .*b/config\.toml cannot be read: "):
        find_records(tmp_path)


def test_a_folder_without_runs_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "runs" / "later").mkdir(parents=True)
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(
        RunError, match=rf"^{tmp_path} holds no run: no config.toml in it or in its folders; accepted: "
    ):
        find_records(tmp_path)


@pytest.mark.parametrize("name", ["missing", "file", "x" * 300, "a\0b"])
def test_what_is_no_folder_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(RunError) as caught:
        find_records(tmp_path / name)
    accepted = "accepted: that of a run or of a comparison"
    assert str(caught.value) == f"{tmp_path / name} is not a directory; {accepted}"


def test_a_folder_that_is_locked_is_passed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mine", "theirs"):
        finished(tmp_path / name)
    is_file = Path.is_file

    def locked(self: Path) -> bool:
        if self.parent.name == "theirs":
            raise PermissionError(13, "Permission denied", str(self))
        return is_file(self)

    monkeypatch.setattr(Path, "is_file", locked)
    assert names(tmp_path) == ["mine"]


# Plans


PLAN = {
    "name": "mine",
    "baseline": "fedavg",
    "runs": [
        {"folder": "fedavg-seed0", "method": "fedavg", "seed": 0},
        {"folder": "prowd-seed0", "method": "prowd", "seed": 0},
    ],
    "failures": {"prowd-seed0": "the fit diverged"},
}


def test_a_plan_says_what_is_to_be_made(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text(json.dumps(PLAN), "utf-8")
    found = read_plan(tmp_path)
    assert found is not None
    assert found.runs == {"fedavg-seed0": ("fedavg", 0), "prowd-seed0": ("prowd", 0)}
    assert found.baseline == "fedavg"
    assert found.failures == {"prowd-seed0": "the fit diverged"}
    (tmp_path / "comparison.json").write_text(json.dumps(without(PLAN, "failures")), "utf-8")
    lucky = read_plan(tmp_path)
    assert lucky is not None
    assert lucky.failures == {}


SEEDS: list[Any] = ["c", None, [], math.inf, math.nan]
UNSOUND: dict[str, list[Any]] = {
    "runs": [3, [3], [{}], {"a": 1}, *([{"folder": "a", "method": "b", "seed": seed}] for seed in SEEDS)],
    "failures": [None, [], "all"],
}


@pytest.mark.parametrize(
    "plan",
    [
        *(None, [], 3, {}, without(PLAN, "runs"), without(PLAN, "baseline")),
        *({**PLAN, key: value} for key, values in UNSOUND.items() for value in values),
    ],
    ids=str,
)
def test_a_plan_without_sense_is_none(plan: object, tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text(json.dumps(plan), "utf-8")
    assert read_plan(tmp_path) is None


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5000])
def test_a_plan_that_is_damaged_is_none(data: bytes, tmp_path: Path) -> None:
    assert read_plan(tmp_path) is None, "nor one that is not there"
    (tmp_path / "comparison.json").write_bytes(data)
    assert read_plan(tmp_path) is None


# And what a run really writes


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
