"""How a comparison goes on after it was interrupted, killed or failed, and how scripts use it."""

from __future__ import annotations

import csv
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import prowd
from prowd.config.schema import load_config
from prowd.runs.read import read_plan
from tests.runs import (
    TIMEOUT,
    TINY,
    ask,
    config_file,
    data_file,
    environment,
    expected,
    finish,
    outcome,
    rounds,
    start,
    wait_for_rounds,
    wait_until,
)

OWN = """
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from prowd.methods import FedAvg

@dataclass(frozen=True)
class Mine(FedAvg):
    name: ClassVar[str] = "mine"

    def aggregate(self, scene, state, updates):
        here = Path(__file__).parent
        while state.round == 1 and (here / "wait").exists():
            (here / "waiting").touch()
            time.sleep(0.01)
        if state.round == 1 and (here / "fail").exists():
            raise ArithmeticError("this is not how it adds up")
        return super().aggregate(scene, state, updates)
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """FedAvg, which in its second round waits or fails as long as there is a file of that name beside it."""
    (tmp_path / "own.py").write_text(OWN, "utf-8")
    return tmp_path / "own.py"


def methods_of(out: Path) -> list[str]:
    """The methods of a comparison's table."""
    with (out / "table.csv").open(encoding="utf-8", newline="") as file:
        return [row["method"] for row in csv.DictReader(file)]


def test_an_interrupted_comparison_tells_how_to_go_on(own: Path, tmp_path: Path) -> None:
    (tmp_path / "wait").touch()
    arguments = ["--methods", "own.py:Mine", "--seeds", "0,1", "--workers", "2", "--out", "my runs"]
    process = start("compare", config_file(tmp_path), *arguments, cwd=tmp_path)
    runs = [tmp_path / "my runs" / f"mine-seed{seed}" for seed in (0, 1)]
    for run in runs:
        wait_for_rounds(run, 1, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the runs too
    out, err = finish(process)  # ends only when no process is left
    assert process.returncode == 130
    assert err == ""
    assert [len(rounds(run)) for run in runs] == [1, 1]
    found = re.search(r"stopped; .*Continue with: prowd compare (.+)", out)
    assert found is not None
    (tmp_path / "wait").unlink()
    again = ask("compare", *shlex.split(found[1]), cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert [outcome(run) for run in runs] == [expected(method="fedavg", seed=seed) for seed in (0, 1)]


def test_a_comparison_that_was_killed_goes_on(own: Path, tmp_path: Path) -> None:
    (tmp_path / "wait").touch()
    source, run = config_file(tmp_path), tmp_path / "runs" / "mine-seed0"
    arguments = ["--methods", f"{own}:Mine", "--seeds", "0", "--workers", "2"]
    process = start("compare", source, *arguments, "--out", run.parent, cwd=tmp_path)
    wait_for_rounds(run, 1, process)
    wait_until((tmp_path / "waiting").exists, "the second round")
    process.kill()
    finish(process)  # ends only when the run, which still waits, and its workers have noticed
    assert len(rounds(run)) == 1
    assert not (run.parent / "table.md").exists()
    (tmp_path / "wait").unlink()
    found = prowd.compare(source, methods=[f"{own}:Mine"], seeds=[0], out=run.parent, workers=1)
    assert not found.failures
    assert outcome(run) == expected(method="fedavg", seed=0)


def test_a_run_that_fails_leaves_the_others_standing(own: Path, tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    source, out = config_file(tmp_path), tmp_path / "out"
    arguments = ["--methods", f"{own}:Mine,fedavg", "--seeds", "0", "--workers", "1", "--out", str(out)]

    def compare() -> subprocess.CompletedProcess[str]:
        return ask("compare", source, *arguments, cwd=tmp_path)

    failed = compare()
    assert failed.returncode == 1
    reason = "ArithmeticError: this is not how it adds up"
    assert f"mine-seed0: {reason}" in failed.stdout + failed.stderr
    assert methods_of(out) == ["fedavg"]
    assert outcome(out / "fedavg-seed0") == expected(method="fedavg", seed=0)
    lines = (out / "mine-seed0" / "rounds.jsonl").read_text("utf-8")
    assert lines.count("\n") == 1
    planned = read_plan(out)
    assert planned is not None
    assert planned.runs == {"mine-seed0": ("mine", 0), "fedavg-seed0": ("fedavg", 0)}
    assert {name: text.splitlines()[-1] for name, text in planned.failures.items()} == {"mine-seed0": reason}
    own.write_text(OWN.replace('"fail"', '"nothing"'), "utf-8")
    changed = compare()
    assert changed.returncode == 1
    assert "own.py has changed" in changed.stdout + changed.stderr, "a round was made with the code as it was"
    own.write_text(OWN, "utf-8")
    (tmp_path / "fail").unlink()
    mended = compare()
    assert mended.returncode == 0, mended.stderr
    assert methods_of(out) == ["mine", "fedavg"]
    assert (out / "mine-seed0" / "rounds.jsonl").read_text("utf-8").startswith(lines), "its seconds too: it went on"
    planned = read_plan(out)
    assert planned is not None
    assert planned.failures == {}
    assert outcome(out / "mine-seed0") == expected(method="fedavg", seed=0)


def script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text, "utf-8")
    return subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def test_a_script_compares_on_arrays_with_three_workers(tmp_path: Path) -> None:
    data_file(tmp_path)
    text = f"""
import numpy as np
import prowd

if __name__ == "__main__":
    with np.load("tiny.npz") as file:
        data = dict(file)
    found = prowd.compare(methods=["fedavg", "local"], seeds=[1], workers=3, data=data, out="out", **{TINY})
    assert not found.failures
    assert [(row.method, row.seeds) for row in found.rows] == [("fedavg", 1), ("local", 1)]
"""
    done = script(tmp_path, text)
    assert (done.returncode, done.stderr) == (0, "")
    for method in ("fedavg", "local"):
        assert outcome(tmp_path / "out" / f"{method}-seed1") == expected(method=method, seed=1)
    assert load_config(tmp_path / "out" / "local-seed1" / "config.toml").data == str(tmp_path / "out" / "data.npz")


def test_a_script_without_the_guard_is_told_so(tmp_path: Path) -> None:
    source = str(config_file(tmp_path))
    text = f"""
import prowd

found = prowd.compare({source!r}, methods=["fedavg"], seeds=[0], out="out")
print(found.rows, found.failures)
"""
    done = script(tmp_path, text)
    assert done.returncode == 1
    assert 'if __name__ == "__main__":' in done.stderr
    assert not (tmp_path / "out").exists()
