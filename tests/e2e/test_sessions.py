"""The sessions of a run that is stopped and goes on: each is written down with its code and its command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import prowd
from prowd import __version__
from prowd.runs import provenance as room
from prowd.runs.directory import RunDir
from prowd.runs.read import read_sessions
from tests.runs import outcome, run_tiny


def sessions(path: Path) -> list[dict[str, Any]]:
    return read_sessions(path / "provenance.json")


def test_every_resume_is_a_session_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run_tiny(tmp_path / "run", rounds=1).path
    first = sessions(path)
    monkeypatch.setattr(sys, "argv", ["prowd", "run", "--resume", "here"])
    monkeypatch.setattr(room, "__version__", "9.9")
    prowd.run(resume=path, rounds=3, workers=1)
    prowd.run(resume=path, workers=1)
    found = sessions(path)
    assert found[:1] == first
    assert [session["round"] for session in found] == [0, 1], "one that makes no round is none"
    assert [session["version"] for session in found] == [__version__, "9.9"]
    assert found[1]["command"] == "prowd run --resume here"


def test_a_run_without_a_single_round_begins_again_at_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(self: RunDir, line: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunDir, "append", stopped)
        with pytest.raises(KeyboardInterrupt):
            run_tiny(tmp_path / "run", rounds=1)
    prowd.run(resume=tmp_path / "run", workers=1)
    assert [session["round"] for session in sessions(tmp_path / "run")] == [0, 0]


def test_damage_does_not_stop_a_resume(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = run_tiny(tmp_path / "run", rounds=1).path
    (path / "provenance.json").write_bytes(b'{"sessions": [{"rou')
    prowd.run(resume=path, rounds=2, workers=1)
    assert [session["round"] for session in sessions(path)] == [1]
    assert f"{path / 'provenance.json'} is damaged: " in caplog.text
    run_tiny(tmp_path / "whole", rounds=2)
    assert outcome(path) == outcome(tmp_path / "whole")
