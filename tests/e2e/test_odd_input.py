"""Input and files that are wrong in ways that are easy to forget: each is answered clearly and nothing is lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import prowd
from prowd.errors import ConfigError
from tests.runs import PROWD, TINY, arrays, ask, config_file, data_file, environment, run_tiny


@pytest.mark.parametrize("settings", [{"test_examples": 1000}, {"input_size": 100}])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_wrong_is_found_before_the_directory_is_made(
    settings: dict[str, Any], workers: int, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError):
        prowd.run(out=tmp_path / "run", data=arrays(), workers=workers, **{**TINY, **settings})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("workers", [-1, 0])
def test_workers_are_checked(workers: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^workers: "):
        prowd.run(out=tmp_path / "run", data=arrays(), workers=workers, **TINY)
    assert not (tmp_path / "run").exists()


def test_any_setting_can_be_given_by_name(tmp_path: Path) -> None:
    file = data_file(tmp_path)
    settings: dict[str, Any] = {**TINY, "rounds": 1, "data": str(file), "model": "digits"}
    assert len(prowd.run(out=tmp_path / "run", workers=1, **settings).rounds) == 1


@pytest.mark.parametrize("name", ["[/y]", "a[bold]b"])
def test_brackets_in_a_path_are_just_brackets(name: str, tmp_path: Path) -> None:
    done = ask("run", config_file(tmp_path, clients="int8:1", rounds=1), "--workers", "1", "--out", name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"results in {name}" in done.stdout


def test_a_long_path_stays_on_its_line(tmp_path: Path) -> None:
    name = "long-" * 30
    env = {key: value for key, value in environment().items() if key != "COLUMNS"}
    done = subprocess.run(
        [PROWD, "run", config_file(tmp_path, clients="int8:1", rounds=1), "--workers", "1", "--out", name],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert f"results in {name}\n" in done.stdout


def test_a_script_without_the_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import prowd\nprowd.run('quick', rounds=1, steps=1, clients='int8:2', workers=2)\n", "utf-8")
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert "__main__" in done.stderr.splitlines()[-1]
    assert len(list((tmp_path / "runs").iterdir())) <= 1


@pytest.mark.parametrize("line", [b"12\n", b"{}\n", b"\xff\xfe\n"])
def test_a_damaged_last_line_is_dropped_whatever_it_is(line: bytes, tmp_path: Path) -> None:
    path = run_tiny(tmp_path / "run").path
    with (path / "rounds.jsonl").open("ab") as file:
        file.write(line)
    assert len(prowd.run(resume=path, workers=1).rounds) == 3


def test_rounds_are_not_thrown_away_with_the_checkpoints(tmp_path: Path) -> None:
    path = run_tiny(tmp_path / "run").path
    before = (path / "rounds.jsonl").read_bytes()
    shutil.rmtree(path / "checkpoints")
    with pytest.raises(prowd.ProwdError):
        prowd.run(resume=path, workers=1)
    assert (path / "rounds.jsonl").read_bytes() == before


def test_another_file_among_the_checkpoints_does_no_harm(tmp_path: Path) -> None:
    path = run_tiny(tmp_path / "run").path
    (path / "checkpoints" / "round-best.json").write_text("{}", "utf-8")
    assert len(prowd.run(resume=path, workers=1).rounds) == 3


def test_a_tensor_that_requires_grad_is_data_like_any_other(tmp_path: Path) -> None:
    given = {name: torch.from_numpy(array) for name, array in arrays().items()}
    for name in ("x_train", "x_test"):
        given[name] = (given[name] / 127.5 - 1).requires_grad_()
    assert prowd.run(out=tmp_path / "run", data=given, workers=1, **TINY).rounds


ORPHAN = """
import os, threading, time, sys
from prowd.federation import pool
from prowd.wire import Parcel
from tests.unit.federation.test_pool import make_stage
if __name__ == "__main__":
    made = pool.ProcessPool(1, make_stage)
    next(made.exchange({0: Parcel(b"echo|", b"")}))
    threading.Thread(target=lambda: (time.sleep(1), os._exit(9)), daemon=True).start()
    pool.wait = lambda *_: time.sleep(60)
    next(made.exchange({0: Parcel(b"echo|", b"")}))
"""


def test_a_worker_whose_reply_nobody_read_ends_quietly(tmp_path: Path) -> None:
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN, "utf-8")
    env = {**environment(), "PYTHONPATH": str(Path(prowd.__file__).parents[2])}
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 9
    assert "Traceback" not in done.stderr
