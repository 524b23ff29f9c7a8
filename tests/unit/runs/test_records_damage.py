"""Runs and plans that are damaged: what can be read is read, and the rest is remarked upon."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from prowd.errors import RunError
from prowd.runs.read import find_records, read_plan, read_record
from tests.unit.runs.records import PLAN, SUMMARY, finished, line, names, without, write


@pytest.mark.parametrize("text", [b"", b"\xff", b"{", b"[]", b"null", b"7", b"[" * 100_000, b'{"round": 2}'])
def test_rounds_end_where_damage_begins(text: bytes, tmp_path: Path) -> None:
    path = write(tmp_path, lines=[line(1)], summary=SUMMARY)
    with (path / "rounds.jsonl").open("ab") as file:
        file.write(text + b"\n" + json.dumps(line(3)).encode() + b"\n")
    found = read_record(path)
    assert [one.round for one in found.lines] == [1]
    assert not found.is_finished
    damage, _ = found.remarks
    assert damage.startswith("line 2 of rounds.jsonl is damaged (")
    assert "\n" not in damage


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"round": 0}, "round"),
        ({"round": "two"}, "round"),
        ({"accuracy": None}, "accuracy"),
        ({"accuracy": {"trained": {"int8": "good"}}}, "accuracy.trained.int8"),
        ({"bytes": {"up": {"int8": -1}, "down": {}}}, "bytes.up.int8"),
        ({"bytes": {"up": {"int8": 1.5}, "down": {}}}, "bytes.up.int8"),
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
    assert found.remarks[0].startswith(f"line {len(right) + 1} of rounds.jsonl is of round {wrong}")


def test_a_last_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, lines=[line(1), line(2)])
    text = (path / "rounds.jsonl").read_bytes()
    for end in range(len(text) - 200, len(text) - 2, 7):
        (path / "rounds.jsonl").write_bytes(text[:end])
        assert [one.round for one in read_record(path).lines] == [1]
    (path / "rounds.jsonl").write_bytes(text[:-1])
    assert len(read_record(path).lines) == 2, "whole but for its end"


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5000, b"[]", b"null", b'"done"'])
def test_a_summary_that_is_damaged_is_left_out(text: bytes, tmp_path: Path) -> None:
    path = finished(tmp_path)
    (path / "summary.json").write_bytes(text)
    found = read_record(path)
    assert found.summary is None
    assert not found.is_finished
    assert found.remarks[0].startswith("summary.json ")
    assert found.method == "prowd", "as its settings say"


def test_folders_in_the_place_of_files_are_remarked_upon(tmp_path: Path) -> None:
    path = write(tmp_path)
    for name in ("rounds.jsonl", "summary.json", "provenance.json"):
        (path / name).mkdir()
    remarks = read_record(path).remarks
    assert [remark.partition(":")[0] for remark in remarks] == [
        "rounds.jsonl cannot be read", "summary.json cannot be read", "no round is finished yet",
    ]  # fmt: skip


@pytest.mark.parametrize("text", [None, b"rounds = ", b"\xff\xfe", b"a = " + b"[" * 100_000, b"a = " + b"1" * 5000])
def test_a_run_whose_settings_cannot_be_read_is_an_error(text: bytes | None, tmp_path: Path) -> None:
    path = finished(tmp_path)
    (path / "config.toml").unlink()
    if text is not None:
        (path / "config.toml").write_bytes(text)
    with pytest.raises(RunError, match=rf"^{path / 'config.toml'} cannot be read: "):
        read_record(path)


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
    with pytest.raises(RunError, match=f"^{tmp_path} holds no run"):
        find_records(tmp_path)


@pytest.mark.parametrize("name", ["missing", "file", "x" * 300, "a\0b"])
def test_what_is_no_folder_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(RunError, match="is not a directory"):
        find_records(tmp_path / name)


def test_a_folder_that_is_locked_is_passed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mine", "theirs"):
        finished(tmp_path / name)
    stat = os.stat

    def locked(path: Any, **how: Any) -> os.stat_result:
        if Path(path).parent.name == "theirs":
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **how)

    monkeypatch.setattr(os, "stat", locked)
    assert names(tmp_path) == ["mine"]


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
        *(b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5000, None, [], 3, {}),
        *(without(PLAN, "runs"), without(PLAN, "baseline")),
        *({**PLAN, key: value} for key, values in UNSOUND.items() for value in values),
    ],
    ids=lambda plan: str(plan)[:60],
)
def test_a_plan_without_sense_is_none(plan: object, tmp_path: Path) -> None:
    assert read_plan(tmp_path) is None, "nor one that is not there"
    (tmp_path / "comparison.json").write_bytes(plan if isinstance(plan, bytes) else json.dumps(plan).encode())
    assert read_plan(tmp_path) is None
