"""What can go wrong with devices, all in one run of real processes: nothing crashes, nothing wrong is averaged in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from prowd.federation import engine
from prowd.federation.transport import InProcess
from prowd.flower.control import Control
from prowd.flower.demo import run_config, wait_for_nodes
from prowd.flower.processes import LocalFederation, Values, local_federation
from prowd.runs.build import assemble, prepare
from prowd.runs.directory import weights_hash
from tests.unit.flower.federations import Without

from .federations import hostile_app, lines_of, outcome, until

pytestmark = pytest.mark.slow

CLIENTS = ("int8", "int8", "float32")
VICTIM, LOW, HIGH = range(3)
FAULTS: dict[int, str] = {
    LOW: "garbage straggle old fail",
    HIGH: "nan none none twice",
}
"""What a client does in rounds 1 to 4. The victim is killed in round 2, and back before round 4 begins."""
EXPECTED: dict[tuple[int, int], tuple[str, str]] = {
    (1, LOW): ("refused", "magic"),
    (1, HIGH): ("refused", "nan"),
    (2, VICTIM): ("lost", "node "),
    (2, LOW): ("lost", "no reply in"),
    (3, LOW): ("refused", "round is 2"),
    (4, LOW): ("lost", "out of paper"),
}
DEADLINE = 60.0
SETTINGS: dict[str, Any] = {
    "clients": "int8:2, float32:1", "method": "fedavg", "rounds": 4, "steps": 2, "test_examples": 40,
}  # fmt: skip


def test_a_federation_survives_its_devices(tmp_path: Path) -> None:
    path, app = tmp_path / "run", hostile_app(tmp_path / "app")
    with local_federation(tmp_path) as federation:
        for client in range(3):
            federation.add_node(f"node-{client}")
            start(federation, client)
        with federation.control() as control:
            wait_for_nodes(federation, control, 3)
            run = control.start(app, run_config(SETTINGS, out=str(path), deadline=DEADLINE, quorum=1, attempts=1))
            until((tmp_path / f"client-{VICTIM}-round-2").exists, federation)
            federation.kill(f"node-{VICTIM}")
            bring_back(federation, control)
            (tmp_path / "back").touch()
            assert outcome(federation, control, run) == ("completed", "")
    lines = lines_of(path)
    assert {place: how for place, how in absences(lines).items() if place != (3, VICTIM)} == {
        place: how for place, (how, _) in EXPECTED.items()
    }
    for (round_, client), (how, reason) in EXPECTED.items():
        (found,) = [a["reason"] for a in lines[round_ - 1]["clients"][how] if a["client"] == client]
        assert reason in found, f"round {round_}, client {client}: {found}"
    assert statuses(lines[3])[VICTIM] == "ok", "who was killed is back"
    assert weights_hash(replayed(path)) in (path / "summary.json").read_text()


def start(federation: LocalFederation, client: int) -> None:
    values: Values = {
        "client": client, "width": CLIENTS[client], "data": "digits", "faults": FAULTS.get(client, ""),
        "folder": str(federation.folder), "state": str(federation.folder / f"state-{client}"),
    }  # fmt: skip
    federation.start_node(f"node-{client}", values)


def bring_back(federation: LocalFederation, control: Control) -> None:
    """Start the victim again once Flower has noticed that it was gone: until then it refuses the key."""
    until(lambda: online(control) == 2, federation)
    start(federation, VICTIM)
    until(lambda: online(control) == 3, federation)


def online(control: Control) -> int:
    return sum(status == "online" for status in control.nodes().values())


def absences(lines: list[dict[str, Any]]) -> dict[tuple[int, int], str]:
    return {
        (line["round"], absence["client"]): how
        for line in lines
        for how in ("lost", "refused")
        for absence in line["clients"][how]
    }


def statuses(line: Mapping[str, Any]) -> dict[int, str]:
    return {device["client"]: device["status"] for device in line["devices"]}


def replayed(path: Path) -> Mapping[str, Any]:
    """The weights of a run in this process in which only those take part whose updates were used."""
    lines = lines_of(path)
    absent = {(client, line["round"]) for line in lines for client, how in statuses(line).items() if how != "ok"}
    config, dataset = prepare(path / "config.toml", {})
    assembly = assemble(config, dataset)
    federation, clients = assembly.federation, assembly.clients(path / "replayed")
    state = federation.method.init(federation.scene)
    return engine.run(federation, state, Without(InProcess(clients), frozenset(absent)), engine.Observer()).model
