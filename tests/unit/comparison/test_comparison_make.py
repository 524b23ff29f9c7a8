"""What a comparison writes of itself: its plan before the runs begin, and its failures after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prowd.comparison import ComparisonObserver, Plan, PlannedRun, make, make_plan, runner
from prowd.errors import RunError
from prowd.runs.read import read_plan
from tests.runs import config_file


def plan(out: Path, *methods: str, seeds: tuple[int, ...] = (0,)) -> Plan:
    return make_plan(config_file(out.parent), {}, methods, seeds, out=out)


def written(found: Plan) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((found.path / "comparison.json").read_text("utf-8"))
    return facts


def test_the_plan_is_written_before_its_runs_begin_and_its_failures_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = plan(tmp_path / "out", "local", "fedavg", seeds=(3, 1))
    seen: list[dict[str, Any]] = []

    def execute(runs: list[PlannedRun], *_: object, **__: object) -> dict[PlannedRun, str]:
        seen.append(written(found))
        assert [run.path.name for run in runs] == [run["folder"] for run in seen[0]["runs"]]
        return {runs[1]: "it rained"}

    monkeypatch.setattr(runner, "execute", execute)
    make(found, 1, ComparisonObserver())
    named = [("local", 3), ("fedavg", 3), ("local", 1), ("fedavg", 1)]
    runs = [{"folder": f"{method}-seed{seed}", "method": method, "seed": seed} for method, seed in named]
    assert seen == [{"name": "tiny", "baseline": "fedavg", "runs": runs, "failures": {}}]
    assert written(found) == {**seen[0], "failures": {"fedavg-seed3": "it rained"}}
    read = read_plan(found.path)
    assert read is not None
    assert read.runs == {run["folder"]: (run["method"], run["seed"]) for run in runs}
    assert (read.baseline, read.failures) == ("fedavg", {"fedavg-seed3": "it rained"})


def test_a_failure_is_forgotten_when_its_run_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = plan(tmp_path / "out", "fedavg")
    failures = [{found.runs[0]: "it rained"}, {}]
    during: list[dict[str, str]] = []

    def execute(*_: object, **__: object) -> dict[PlannedRun, str]:
        during.append(written(found)["failures"])
        return failures.pop(0)

    monkeypatch.setattr(runner, "execute", execute)
    for after in ({"fedavg-seed0": "it rained"}, {}):
        make(found, 1, ComparisonObserver())
        assert written(found)["failures"] == after
    assert during == [{}, {}]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = make_plan(config_file(tmp_path), {}, ["fedavg"], [0], out=tmp_path / "file" / "out")
    with pytest.raises(RunError, match=rf"^{found.path} cannot be written: "):
        make(found, 1, ComparisonObserver())


def test_a_summary_that_lacks_something_is_no_summary(tmp_path: Path) -> None:
    (run,) = plan(tmp_path / "out", "fedavg").runs
    run.path.mkdir(parents=True)
    (run.path / "summary.json").write_text('{"rounds": 3}', "utf-8")
    assert not run.is_finished
