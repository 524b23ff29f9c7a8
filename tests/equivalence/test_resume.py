"""A run that was stopped, however roughly, goes on to the bits of one that was not."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import prowd
from prowd.errors import ConfigError
from prowd.runs.directory import RunDir
from tests.runs import call, config_file, expected, finish, outcome, rounds, run_tiny, start, wait_for_rounds

METHODS = ("fedavg", "local")
SHORT: dict[str, Any] = {"rounds": 3, "clients": "int8:2, float32:1", "cohort": 2, "steps": 1, "seed": 3}
SHORT |= {"snapshots": "0, 2"}
LONG: dict[str, Any] = {"rounds": 40, "clients": "int8:2, int6:1", "cohort": 2, "seed": 4}  # a few seconds


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("done", [1, 2])
def test_a_run_made_longer_equals_a_long_one(method: str, done: int, tmp_path: Path) -> None:
    settings = {**SHORT, "method": method}
    first = run_tiny(tmp_path / "run", **{**settings, "rounds": done})
    assert len(first.rounds) == done
    result = prowd.run(resume=first.path, rounds=3, workers=1)
    assert outcome(first.path) == expected(**settings)
    assert [line["round"] for line in result.rounds] == [1, 2, 3]


def test_a_finished_run_resumes_to_what_it_is(tmp_path: Path) -> None:
    result = run_tiny(tmp_path / "run", **SHORT)
    again = prowd.run(resume=result.path, workers=1)
    assert again.rounds == result.rounds
    assert outcome(result.path) == expected(**SHORT)


class PowerCut(BaseException):
    """What the disk says after the power has gone."""


class Disk:
    """Counts what is done to the disk, and does nothing more from a chosen moment on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done, self.last = 0, float("inf")
        self._guard(monkeypatch, os, "fsync", lambda _descriptor: True)
        self._guard(monkeypatch, Path, "replace", lambda *_: True)
        ours = (".bin", ".json", ".safetensors", ".tmp")
        self._guard(monkeypatch, Path, "unlink", lambda path: path.suffix in ours)

    def _guard(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, counts: Callable[..., bool]) -> None:
        original = getattr(owner, name)

        def guarded(*args: Any, **kwargs: Any) -> Any:
            if counts(*args):
                if self.done >= self.last:
                    raise PowerCut
                self.done += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, guarded)


def cut_power_in(round_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    write = RunDir.append

    def append(self: RunDir, line: Mapping[str, Any]) -> None:
        if line["round"] == round_:
            raise PowerCut
        write(self, line)

    monkeypatch.setattr(RunDir, "append", append)


@pytest.mark.parametrize("method", METHODS)
def test_a_power_cut_at_any_write_changes_nothing(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**SHORT, "method": method}
    whole = expected(**settings)
    disk = Disk(monkeypatch)
    run_tiny(tmp_path / "whole", **settings)
    writes, resumed = disk.done, set()
    assert writes > 30
    for moment in range(writes):
        path = tmp_path / f"run-{moment}"
        disk.done, disk.last = 0, moment
        with pytest.raises(PowerCut):
            run_tiny(path, **settings)
        disk.last = float("inf")
        if (path / "config.toml").exists():
            resumed.add(len(rounds(path)) if (path / "rounds.jsonl").exists() else 0)
            prowd.run(resume=path, workers=1)
            assert outcome(path) == whole, f"after {moment} writes"
    assert resumed == {0, 1, 2, 3}, "the power went in every round"


def test_clients_remember_as_far_back_as_the_older_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**SHORT, "method": "local", "cohort": "all", "rounds": 6}
    with monkeypatch.context() as patch:
        cut_power_in(5, patch)
        with pytest.raises(PowerCut):
            run_tiny(tmp_path / "run", **settings)
    newest = tmp_path / "run" / "checkpoints" / "round-000004.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    prowd.run(resume=tmp_path / "run", workers=1)
    assert outcome(tmp_path / "run") == expected(**settings)


def test_a_run_whose_rates_fall_resumes_to_what_it_is_but_is_not_made_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SHORT, "decay": "cosine"}
    assert expected(**settings) != expected(**SHORT)
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        cut_power_in(2, patch)
        with pytest.raises(PowerCut):
            run_tiny(path, **settings)
    with pytest.raises(ConfigError, match="rounds: 4, but the learning rates fall in the course of 3; accepted: 3, or"):
        prowd.run(resume=path, rounds=4, workers=1)
    prowd.run(resume=path, rounds=3, workers=1)
    assert outcome(path) == expected(**settings)


@pytest.mark.parametrize(("method", "before", "after"), [("fedavg", 1, 2), ("local", 2, 1)])
def test_kill_9_at_any_moment_changes_nothing(method: str, before: int, after: int, tmp_path: Path) -> None:
    settings = {**LONG, "method": method}
    source, out = config_file(tmp_path, **settings), tmp_path / "run"
    process = start("run", source, "--out", out, "--workers", str(before), cwd=tmp_path)
    wait_for_rounds(out, random.randint(2, 8), process)
    time.sleep(random.uniform(0, 0.2))
    os.kill(process.pid, signal.SIGKILL)
    finish(process)  # ends only when no worker is left
    assert process.returncode == -signal.SIGKILL, "it was still running"
    assert not (out / "summary.json").exists()
    assert (out / "rounds.jsonl").read_bytes().count(b"\n") < LONG["rounds"]
    resumed = call("run", "--resume", out, "--workers", str(after), cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed after round" in resumed.stdout
    assert outcome(out) == expected(**settings)
