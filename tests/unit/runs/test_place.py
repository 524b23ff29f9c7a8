"""Where a run may begin."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock

from prowd.errors import RunError
from prowd.runs.directory import RunDir
from tests.unit.runs.test_rundir import CONFIG


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious", "utf-8")
    with pytest.raises(RunError, match="not an empty directory"):
        RunDir.create(tmp_path / "file", CONFIG)
    with pytest.raises(RunError, match="cannot be written"):
        RunDir.create(tmp_path / "file" / "run", CONFIG)
    assert (tmp_path / "file").read_text("utf-8") == "precious"


def test_what_is_left_of_a_run_that_was_killed_before_it_began_will_do(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / ".config.toml.0123456789abcdef.tmp").write_text("half", "utf-8")
    with FileLock(tmp_path / ".lock"), pytest.raises(RunError, match="in use by another process"):
        RunDir.create(tmp_path, CONFIG)
    assert not (tmp_path / "config.toml").exists()
    RunDir.create(tmp_path, CONFIG).release()
    assert (tmp_path / "config.toml").read_text("utf-8") == CONFIG


@pytest.mark.parametrize("name", ["rounds.jsonl", "thesis.tex", "clients", "checkpoints/round-000009.json"])
def test_what_is_more_than_a_leftover_is_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / name).write_text("precious", "utf-8")
    with pytest.raises(RunError, match="not an empty directory"):
        RunDir.create(tmp_path, CONFIG)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoints", name.partition("/")[0]}
    assert (tmp_path / name).read_text("utf-8") == "precious"
