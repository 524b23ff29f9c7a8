"""A comparison in a directory where some of its runs are already there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prowd.comparison import Plan, make_plan
from prowd.config.schema import load_config
from prowd.errors import RunError
from tests.runs import arrays, config_file

OWN = """
from typing import ClassVar
from prowd.methods import FedAvg

class Mine(FedAvg):
    name: ClassVar[str] = "mine"
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return config_file(tmp_path)


def plan(source: Path, *methods: str, seeds: tuple[int, ...] = (0,), out: Path | None = None, **settings: Any) -> Plan:
    return make_plan(source, settings, methods, seeds, out=out)


def begin(found: Plan) -> None:
    """Leave of every run what is there once it has begun."""
    for run in found.runs:
        run.path.mkdir(parents=True)
        (run.path / "config.toml").write_text(run.config.toml(), "utf-8")


@pytest.mark.parametrize(("field", "value"), [("rounds", 4), ("clients", "int8:2"), ("weighting", "uniform")])
def test_a_run_made_with_other_settings_is_refused(field: str, value: object, source: Path, tmp_path: Path) -> None:
    begin(plan(source, "fedavg", out=tmp_path / "out"))
    with pytest.raises(RunError, match=f"fedavg-seed0 was made with {field} = "):
        make_plan(source, {field: value}, ["local", "fedavg"], [0, 1], out=tmp_path / "out")


def test_other_arrays_do_not_take_the_place_of_those_a_run_was_made_with(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = make_plan(source, {}, ["fedavg"], [0], arrays=arrays(), out=out)
    before = (out / "data.npz").read_bytes()
    begin(found)
    with pytest.raises(RunError, match=r"fedavg-seed0 was made with data_sha256 = "):
        make_plan(source, {}, ["fedavg"], [0], arrays=arrays(1), out=out)
    assert (out / "data.npz").read_bytes() == before
    make_plan(source, {}, ["fedavg"], [0], arrays=arrays(), out=out)


def test_runs_that_are_there_are_part_of_the_plan(source: Path, tmp_path: Path) -> None:
    begin(plan(source, "fedavg", out=tmp_path / "out"))
    assert len(plan(source, "fedavg", "local", seeds=(0, 1), out=tmp_path / "out").runs) == 4


def test_a_run_begun_by_another_version_is_told_of(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = plan(source, "fedavg", out=tmp_path / "out")
    begin(found)
    file = found.runs[0].path / "config.toml"
    file.write_text(file.read_text("utf-8").replace(f'"{found.config.version}"', '"0.0.1"', 1), "utf-8")
    assert load_config(file).version == "0.0.1"
    plan(source, "fedavg", out=tmp_path / "out")
    (message,) = (record.getMessage() for record in caplog.records)
    assert "0.0.1" in message


def test_a_method_whose_file_has_changed_is_not_taken_for_made(source: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN, "utf-8")
    found = plan(source, f"{own}:Mine", out=tmp_path / "out")
    begin(found)
    own.write_text(OWN + "# the same, but who knows", "utf-8")
    plan(source, f"{own}:Mine", out=tmp_path / "out")  # nothing was made yet
    (found.runs[0].path / "rounds.jsonl").write_text("{}", "utf-8")
    with pytest.raises(RunError, match=r"own.py has changed since .*mine-seed0"):
        plan(source, f"{own}:Mine", out=tmp_path / "out")
