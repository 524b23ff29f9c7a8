"""Resuming a run from the command line: what goes on, what is refused, and that nothing is lost."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from prowd.files import atomic_write
from prowd.runs.directory import RunDir
from tests.runs import (
    TINY,
    call,
    config_file,
    data_file,
    expected,
    finish,
    outcome,
    refused,
    rounds,
    run_tiny,
    sets,
    start,
    wait_for_rounds,
)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run; tests work on copies of it."""
    folder = tmp_path_factory.mktemp("stopped")
    run_tiny(folder / "run", clients="int8:2", rounds=4)
    return folder


@pytest.fixture
def copy(stopped: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(stopped / "run", tmp_path / "run"))


def truncate(run: Path, *numbers: int) -> None:
    for number in numbers:
        path = run / "checkpoints" / f"round-{number:06d}.safetensors"
        path.write_bytes(path.read_bytes()[:100])


def contents(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_directory_that_holds_a_run_is_left_unharmed(copy: Path) -> None:
    before = contents(copy)
    message = refused("run", "quick", "--out", copy, cwd=copy.parent)
    assert str(copy) in message
    assert "--resume" in message
    assert contents(copy) == before


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_only_a_run_can_be_resumed(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert f"{name} is not a run directory" in refused("run", "--resume", name, cwd=tmp_path)


def test_a_resumed_run_keeps_its_settings(copy: Path) -> None:
    before = contents(copy)
    assert "seed" in refused("run", "--resume", copy, "-s", "seed=3", cwd=copy.parent)
    assert "4 are done" in refused("run", "--resume", copy, "-s", "rounds=3", cwd=copy.parent)
    assert contents(copy) == before


def test_a_truncated_checkpoint_is_passed_over(copy: Path) -> None:
    truncate(copy, 4)
    (copy / "summary.json").unlink()
    done = call("run", "--resume", copy, "--workers", "1", cwd=copy.parent)
    assert done.returncode == 0, done.stderr
    assert "round-000004.safetensors is truncated" in done.stderr
    assert "resumed after round 3" in done.stdout
    assert outcome(copy) == expected(clients="int8:2", rounds=4)


def test_truncated_checkpoints_are_an_error(copy: Path) -> None:
    truncate(copy, 3, 4)
    done = call("run", "--resume", copy, cwd=copy.parent)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: no checkpoint of ")
    assert "round-000003.safetensors" in last
    assert len(rounds(copy)) == 4


def test_a_damaged_configuration_is_an_error(copy: Path) -> None:
    config = copy / "config.toml"
    config.write_bytes(config.read_bytes()[:30] + b"\n=")
    assert "config.toml is not valid TOML" in refused("run", "--resume", copy, cwd=copy.parent)


def test_a_run_in_use_cannot_be_resumed(copy: Path) -> None:
    held = RunDir.open(copy)
    try:
        assert "in use by another process" in refused("run", "--resume", copy, cwd=copy.parent)
    finally:
        held.release()


def test_a_full_disk_is_one_line_that_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, settings = config_file(tmp_path, clients="int8:2", rounds=3), {"clients": "int8:2", "rounds": 3}

    def full(path: Path, data: bytes) -> None:
        if path.name.startswith("round-000002"):
            raise OSError(28, "No space left on device")
        atomic_write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr("prowd.runs.directory.atomic_write", full)
        message = refused("run", source, "--out", "run", "--workers", "1", cwd=tmp_path)
    assert "round 2 cannot be saved to run: the disk is full, make room: [Errno 28]" in message
    found = re.search(r"finished rounds are saved; then continue with: prowd (run --resume run)$", message)
    assert found is not None, message
    done = call(*found[1].split(), "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert outcome(tmp_path / "run") == expected(**settings)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupted_run_tells_how_to_go_on(name: str, tmp_path: Path) -> None:
    settings = {"clients": "int8:3", "rounds": 80, "seed": 7}  # long enough to be met under way
    source = config_file(tmp_path, **settings)
    process = start("run", source, "--out", "run", "--workers", "2", cwd=tmp_path)
    wait_for_rounds(tmp_path / "run", 3, process)
    if name == "SIGINT":
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    else:
        process.send_signal(signal.SIGTERM)
    out, err = finish(process)  # ends only when no worker is left
    assert process.returncode == 130
    assert err == ""
    found = re.search(r"Continue with: prowd (run --resume .+)", out)
    assert found is not None
    assert not (tmp_path / "run" / "summary.json").exists()
    assert 3 <= len(rounds(tmp_path / "run")) < 80
    resumed = call(*found[1].split(), "--workers", "1", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert outcome(tmp_path / "run") == expected(**settings)


def test_own_data_by_a_relative_name_are_found_from_elsewhere(tmp_path: Path) -> None:
    data_file(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    settings = {**TINY, "clients": "int8:2", "rounds": 1}
    done = call("run", "quick", *sets(**settings, data="tiny.npz"), "--out", "run", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    more = call("run", "--resume", "../run", "-s", "rounds=2", "--workers", "1", cwd=tmp_path / "elsewhere")
    assert more.returncode == 0, more.stderr
    assert outcome(tmp_path / "run") == expected(**{**settings, "rounds": 2})
