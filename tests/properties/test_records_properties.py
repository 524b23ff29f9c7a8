"""Whoever only looks at runs is told what is wrong with them in words, whatever is in their files."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from prowd.errors import RunError
from prowd.runs.read import Record, find_records, read_plan, read_record
from prowd.runs.snapshots import client_files, server_files
from tests.properties.test_fuzzing import SPLICES, Splice, spliced
from tests.unit.runs.records import CONFIG, PLAN, SESSIONS, SUMMARY, line

RELAXED = settings(deadline=None, max_examples=60)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@functools.cache
def sound() -> dict[str, bytes]:
    """The files of a run, and of a comparison that it is all of."""
    return {
        "config.toml": tomli_w.dumps(CONFIG).encode(),
        "rounds.jsonl": "".join(json.dumps(line(n)) + "\n" for n in (1, 2, 3)).encode(),
        "summary.json": json.dumps(SUMMARY).encode(),
        "provenance.json": json.dumps({"sessions": SESSIONS}).encode(),
        "comparison.json": json.dumps(PLAN).encode(),
    }


FILES = st.sampled_from(list(sound()))


@contextmanager
def run_with(name: str, data: bytes) -> Iterator[Path]:
    """A run in which one file is another."""
    with tempfile.TemporaryDirectory() as folder:
        for file, content in {**sound(), name: data}.items():
            (Path(folder) / file).write_bytes(content)
        yield Path(folder)


def look(path: Path) -> Record | None:
    """All that there is to be seen of a run; nothing where that is said in words."""
    plan = read_plan(path)
    assert plan is None or all(isinstance(seed, int) for _, seed in plan.runs.values())
    assert (server_files(path), client_files(path)) == ({}, {})
    try:
        found = read_record(path)
    except RunError:
        with pytest.raises(RunError, match=r"config\.toml cannot be read: "):
            find_records(path)
        return None
    assert [record.path for record in find_records(path)[0]] == [path]
    assert [one.round for one in found.lines] == list(range(1, len(found.lines) + 1))
    assert found.is_finished <= (len(found.lines) == found.rounds)
    assert isinstance(found.name + found.method, str)
    assert found.seed is not None
    assert sum(found.mix.values()) == len(found.widths)
    for when in ("received", "trained"):
        assert (found.average(found.latest(when)) is None) == (not found.latest(when))
    assert min(found.moved("up"), found.moved("down")) >= 0
    assert all(isinstance(session, dict) for session in found.sessions)
    assert not any("\n" in remark for remark in found.remarks)
    return found


def test_a_sound_run_is_seen_whole() -> None:
    with run_with("config.toml", sound()["config.toml"]) as path:
        found = look(path)
        assert found is not None
        assert found.is_finished
        assert not found.remarks


@RELAXED
@given(FILES, st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_in_a_file(name: str, data: bytes) -> None:
    with run_with(name, data) as path:
        assert (look(path) is not None) or name == "config.toml"


@RELAXED
@given(FILES, SPLICES)
def test_a_file_that_was_spliced(name: str, splices: list[Splice]) -> None:
    with run_with(name, spliced(sound()[name], splices)) as path:
        assert (look(path) is not None) or name == "config.toml"


@RELAXED
@given(st.sampled_from(["rounds.jsonl", "summary.json", "provenance.json", "comparison.json"]), JSON)
def test_any_json_in_a_file(name: str, value: Any) -> None:
    with run_with(name, json.dumps(value).encode()) as path:
        assert look(path) is not None


@RELAXED
@given(st.sampled_from(["accuracy", "loss", "bytes", "clients", "notes", "seconds", "round"]), JSON)
def test_any_json_in_a_line(key: str, value: Any) -> None:
    lines = [line(1), {**line(2), key: value}, line(3)]
    with run_with("rounds.jsonl", "".join(json.dumps(one) + "\n" for one in lines).encode()) as path:
        found = look(path)
        assert found is not None
        assert found.lines[0].round == 1


@RELAXED
@given(
    st.sampled_from(["name", "method", "seed", "rounds", "clients"]), st.integers() | st.text(max_size=9) | st.floats()
)
def test_any_value_of_a_setting(key: str, value: Any) -> None:
    with run_with("config.toml", tomli_w.dumps({**CONFIG, key: value}).encode()) as path:
        assert look(path) is not None
