"""``make chaos`` itself: a few faults of it, and that it sees what is wrong."""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from prowd.runs.run import RunResult
from tests.chaos import disks
from tests.chaos.__main__ import main
from tests.chaos.ledger import Ledger, one_line
from tests.chaos.plan import FLOWER, LOCAL, plan
from tests.chaos.quiet import Quiet
from tests.runs import config_file, run_tiny

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
SETTINGS: dict[str, Any] = {"clients": "int8:2", "rounds": 2}


@pytest.fixture
def ledger() -> Ledger:
    return Ledger({"prowd run": 3}, time.monotonic() + 60)


@pytest.fixture
def run(tmp_path: Path) -> RunResult:
    return run_tiny(tmp_path / "run", **SETTINGS)


def judge(path: Path, ledger: Ledger) -> list[str]:
    Quiet(path.parent).judge(path, str(config_file(path.parent)), SETTINGS, ledger)
    return ledger.wrong


def test_some_faults_are_survived(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(disks, "give_up_powers", lambda: None)
    arguments = "--faults 3 --lanes 1 --no-flower --seed 2 --minutes 10"
    monkeypatch.setattr(sys, "argv", ["chaos", *arguments.split(), "--only", "kill worker", "--only", "kill server"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().out
    assert ended.value.code == 0, said
    assert "3 of 3 faults" in said
    assert "0 wrong" in said


def test_the_same_seed_plans_the_same_faults() -> None:
    first, again, other = ([*itertools.islice(plan(seed, "prowd run 0", LOCAL), 50)] for seed in (1, 1, 2))
    assert first == again != other
    assert {fault.kind for fault in itertools.islice(plan(1, "Flower", FLOWER), 300)} == set(FLOWER)


def test_a_run_as_the_quiet_one_is_well(run: RunResult, ledger: Ledger) -> None:
    assert judge(run.path, ledger) == []
    assert ledger.runs == 1


def test_other_weights_are_wrong(run: RunResult, ledger: Ledger) -> None:
    file = run.path / "summary.json"
    file.write_text(file.read_text().replace(run.summary["weights_sha256"], "0" * 64))
    (problem,) = judge(run.path, ledger)
    assert "weights 000" in problem
    assert ledger.runs == 0


def test_other_rounds_are_wrong(run: RunResult, ledger: Ledger) -> None:
    file = run.path / "rounds.jsonl"
    file.write_text(file.read_text().replace('"loss"', '"lost"'))
    (problem,) = judge(run.path, ledger)
    assert "rounds.jsonl differs" in problem


def test_what_is_left_behind_is_wrong(run: RunResult, ledger: Ledger) -> None:
    shutil.copy(run.path / "config.toml", run.path / "checkpoints" / ".round.tmp")
    (problem,) = judge(run.path, ledger)
    assert "left behind: checkpoints/.round.tmp" in problem


def test_an_error_is_one_line() -> None:
    assert one_line("WARNING: a worker died\nerror: the disk is full\n") is None
    assert one_line("error: one\nerror: two\n") == "2 lines"
    assert one_line("") == "0 lines"
    assert one_line("Killed\n") == "a line that does not begin with 'error: '"
    assert one_line('error: it failed:\nTraceback (most recent call last):\n  File "x"\n') == "a traceback"
