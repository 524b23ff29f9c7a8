"""Whole federations over Flower's messages, in one process: to the bit what a simulation comes to."""

from __future__ import annotations

import json
import logging
import tomllib
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from flwr.app import Context, Message, RecordDict

from prowd.errors import RunError
from prowd.flower import server_app
from prowd.flower.records import Brief
from prowd.flower.status import read_status
from prowd.runs.run import Session
from tests.runs import ROUND_KEYS, rounds
from tests.unit.flower.fakes import FIRST, Clock, FakeGrid, Honest, silent
from tests.unit.flower.federations import (
    TINY,
    WIDTHS,
    devices,
    expected,
    logging_as_before,
    make_grid,
    resume,
    run,
    server,
    weights,
)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "fedcomgate", "rounds": 3},
        {"method": "local"},
        {"method": "prowd", "rounds": 1, "options.dequantizer.epochs": 1, "options.dequantizer.depth": 1},
        {"clients": "int4:1, int8:1, float32:2", "cohort": 3, "evaluate_every": 2, "partition": "dirichlet"},
    ],
    ids=lambda settings: settings.get("method", settings.get("clients", "fedavg")),
)
def test_devices_come_to_the_weights_of_a_simulation(settings: dict[str, object], clock: Clock, tmp_path: Path) -> None:
    widths = ("int4", "int8", "float32", "float32") if "clients" in settings else WIDTHS
    result = run(make_grid(clock, tmp_path, widths), tmp_path / "run", settings)
    assert weights(result) == expected(**settings)
    assert [line["round"] for line in result.rounds] == list(range(1, len(result.rounds) + 1))
    for line in result.rounds:
        assert line["clients"]["lost"] == line["clients"]["refused"] == []
        assert set(devices(line).values()) == {("ok", "")}
        assert len(line["devices"]) == settings.get("cohort", 4)


def test_what_is_reported_is_that_of_a_simulation(clock: Clock, tmp_path: Path) -> None:
    run(make_grid(clock, tmp_path), tmp_path / "run")
    Session.start("quick", TINY, out=tmp_path / "simulated").run(workers=1)
    found = rounds(tmp_path / "run")
    assert [{key: line[key] for key in line if key != "devices"} for line in found] == rounds(tmp_path / "simulated")
    assert set(found[0]) == ROUND_KEYS[""] - {"seconds"} | {"devices"}
    assert [(entry["client"], entry["node"], entry["seconds"]) for entry in found[0]["devices"]] == [
        (n, str(FIRST + n), 2.0) for n in range(4)
    ]
    for line in found:
        for way in ("up", "down"):
            assert sum(line["bytes"][way].values()) == sum(entry[way] for entry in line["devices"])


def test_the_server_keeps_samples_of_weights_and_the_devices_none(clock: Clock, tmp_path: Path) -> None:
    settings = {"method": "local", "snapshots": "auto"}  # a method whose devices write to their disks
    run(make_grid(clock, tmp_path), tmp_path / "run", settings)
    found = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.safetensors"))
    assert [path.name for path in found if "checkpoints" not in path.parts] == [
        f"round-{round_:06d}.safetensors" for round_ in range(3)
    ]
    assert {path.parts[0] for path in found} == {"run"}
    assert list(tmp_path.glob("?/*/*/*.bin")), "though they have a disk"


def test_widths_are_those_the_nodes_state(clock: Clock, tmp_path: Path) -> None:
    widths, told = ("float32", "int4", "int8", "int8"), list[str]()

    def listen(message: Message, answer: Honest) -> Message:
        told.append(tomllib.loads(Brief.read(message.content).config)["clients"])
        return answer()

    grid = make_grid(clock, tmp_path, widths)
    grid.tricks = {(FIRST, round_): [listen] for round_ in (0, 1)}
    result = run(grid, tmp_path / "run")
    assert told == [TINY["clients"], "float32:1, int4:1, int8:2"], "and so they are told"
    assert weights(result) == expected(clients="float32:1, int4:1, int8:2")
    assert result.summary["clients"] == "float32:1, int4:1, int8:2"
    assert read_roster(tmp_path / "run")[1]["width"] == "int4"


def read_roster(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((path / "devices.json").read_text("utf-8"))["devices"]
    return found


def test_nodes_in_any_order(grid: FakeGrid, tmp_path: Path) -> None:
    grid.nodes = dict(reversed(grid.nodes.items()))
    grid.slow = {(FIRST + n, round_): 9.0 - 2 * n for n in range(4) for round_ in (1, 2)}
    result = run(grid, tmp_path / "run")
    assert weights(result) == expected()
    assert [entry["seconds"] for entry in result.rounds[0]["devices"]] == [9.0, 7.0, 5.0, 3.0]


def test_a_simulation_of_flower_has_partitions(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path)
    for n in range(4):
        state = grid.nodes[FIRST + n]["state"]
        grid.nodes[FIRST + n] = {"partition-id": n, "num-partitions": 4, "state": state}
    assert weights(run(grid, tmp_path / "run", {"method": "fedcomgate"})) == expected(method="fedcomgate")


def test_more_nodes_than_clients(grid: FakeGrid, tmp_path: Path) -> None:
    grid.nodes[7] = {**grid.nodes[FIRST], "client": 4}
    grid.nodes[8] = {**grid.nodes[FIRST]}
    assert weights(run(grid, tmp_path / "run")) == expected()
    assert {node for node, round_ in grid.asked if round_} == {FIRST + n for n in range(4)}


def test_a_device_whose_data_lacks_classes_takes_part(grid: FakeGrid, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 1, 8, 8), np.uint8)
    labels = np.array([7, 3] * 6)
    mine = {"x_train": images, "y_train": labels, "x_test": images[:4], "y_test": labels[:4]}
    np.savez(tmp_path / "mine.npz", allow_pickle=False, **mine)
    grid.nodes[FIRST + 3]["data"] = str(tmp_path / "mine.npz")
    result = run(grid, tmp_path / "run")
    assert [set(devices(line).values()) for line in result.rounds] == [{("ok", "")}] * 2
    assert read_roster(tmp_path / "run")[3]["examples"] == 12


def test_a_run_writes_down_what_happened(grid: FakeGrid, tmp_path: Path) -> None:
    grid.tricks = {(FIRST + 1, 2): [silent]}
    run(grid, tmp_path / "run")
    found = [json.loads(line) for line in (tmp_path / "run" / "server.jsonl").read_text("utf-8").splitlines()]
    events = [line["event"] for line in found]
    assert (events[0], events[-1]) == ("began", "finished")
    assert events.count("replied") == 7
    assert [line["lost"] for line in found if line["event"] == "round"] == [0, 1]
    assert {"time", "level", "node", "client", "seconds", "bytes"} <= set(found[events.index("replied")])
    statuses, lines = read_status(tmp_path / "run")
    assert len(lines) == 2
    assert [(s.client, s.width, s.node, s.asked, s.used, s.lost, s.refused) for s in statuses] == [
        (n, WIDTHS[n], str(FIRST + n), 2, 2 - (n == 1), int(n == 1), 0) for n in range(4)
    ]
    assert [s.trouble for s in statuses] == ["", "round 2: node 101: no reply in 60 s", "", ""]
    assert [s.seconds for s in statuses] == [4.0, 2.0, 4.0, 4.0]


def test_the_app_itself(clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings, grid = server(tmp_path / "run").model_dump(), cast("Any", make_grid(clock, tmp_path))
    with logging_as_before():
        server_app.main(grid, Context(1, 1, {}, RecordDict(), settings))
    grid.asked.clear()
    assert "fedavg" in capsys.readouterr().out.lower()
    with logging_as_before(), pytest.raises(RunError, match="holds another run"):
        server_app.main(grid, Context(1, 1, {}, RecordDict(), settings))
    assert grid.asked == [], "which is found before anybody is waited for"


def test_what_was_begun_is_let_go_of(grid: FakeGrid, tmp_path: Path) -> None:
    handlers = list(logging.getLogger("prowd").handlers)
    grid.tricks = {(FIRST + n, 2): [silent] for n in range(4)}
    with pytest.raises(RunError, match="no client's update could be used"):
        run(grid, tmp_path / "run", attempts=1)
    assert logging.getLogger("prowd").handlers == handlers
    assert weights(resume(grid, tmp_path / "run")) == expected()
