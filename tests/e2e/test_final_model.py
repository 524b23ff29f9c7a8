"""The model that a run ends with: measured by the server at every width, and the one that the hash is of."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import prowd
from prowd.federation.engine import measure
from prowd.runs.build import assemble, prepare
from prowd.runs.directory import RunDir, weights_hash
from prowd.runs.read import read_record
from prowd.views.console import result_table
from prowd.views.report.cells import final_models
from prowd.views.report.groups import gather
from tests.runs import config_file, run_tiny, summary


@pytest.mark.parametrize("method", ["fedavg", "fedgroupedavg", "fedcomgate", "prowd-plus"])
def test_the_last_model_is_measured_and_its_hash_is_that_of_the_measured_one(method: str, tmp_path: Path) -> None:
    result = run_tiny(tmp_path / "run", method=method, clients="int4:1, int8:1, float32:2", cohort=2)
    found = result.summary["accuracy"]["server"]
    assert list(found) == ["int4", "int8", "float32"], "those that were not asked in the last round, too"
    assert found == result.rounds[-1]["accuracy"]["server"]
    rundir = RunDir.open(tmp_path / "run")
    state = rundir.restore()
    rundir.release()
    assert state is not None
    config, dataset = prepare(config_file(tmp_path, method=method, clients="int4:1, int8:1, float32:2", cohort=2), {})
    assert measure(assemble(config, dataset).federation, state) == found
    assert weights_hash(state.model) == result.summary["weights_sha256"] == weights_hash(result.weights)


def test_what_the_server_measures_is_what_clients_receive_next(tmp_path: Path) -> None:
    lines = run_tiny(tmp_path / "run").rounds
    for line, later in pairwise(lines):
        assert line["accuracy"]["server"] == later["accuracy"]["received"]


@pytest.mark.parametrize(
    ("settings", "widths"),
    [({"method": "local"}, []), ({"float32": {"gains": "local"}}, ["int8"]), ({}, ["int8", "float32"])],
    ids=["nothing is shared", "gains stay on devices", "all is shared"],
)
def test_the_server_measures_what_it_has(settings: dict[str, Any], widths: list[str], tmp_path: Path) -> None:
    result = run_tiny(tmp_path / "run", rounds=1, **settings)
    assert list(result.summary["accuracy"]["server"]) == widths
    assert (result.summary["average_accuracy"]["server"] is None) == (not widths)


def test_only_measured_rounds_are_measured(tmp_path: Path) -> None:
    lines = run_tiny(tmp_path / "run", evaluate_every=9).rounds
    assert [bool(line["accuracy"]["server"]) for line in lines] == [True, False, True]


def test_the_console_and_the_page_show_the_final_model(tmp_path: Path) -> None:
    result: prowd.RunResult = run_tiny(tmp_path / "run")
    with (console := Console(width=120)).capture() as shown:
        console.print(result_table(result))
    groups, _ = gather([tmp_path / "run"])
    table = final_models(groups[0])
    assert "final model" in shown.get()
    for width, accuracy in summary(tmp_path / "run")["accuracy"]["server"].items():
        assert f"{100 * accuracy:.2f}%" in shown.get()
        assert f"{100 * accuracy:.2f}" in table.rows[0], width
    assert table.rows[0][-1] == result.summary["weights_sha256"][:12]
    assert "measured by the server; all other accuracies are what devices say" in table.caption
    assert read_record(tmp_path / "run").latest("server") == summary(tmp_path / "run")["accuracy"]["server"]
