"""What can go wrong with devices, all in one run of real processes: nothing crashes, nothing wrong is averaged in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'prowd[flower]'")

from prowd.federation import engine
from prowd.federation.client import Clients
from prowd.federation.transport import Reply
from prowd.flower.control import Control
from prowd.flower.demo import run_config, wait_for_nodes
from prowd.flower.processes import LocalFederation, Values, local_federation
from prowd.runs.build import assemble, prepare
from prowd.runs.directory import weights_hash
from prowd.wire import Parcel, decode_task

from .federations import hostile_app, lines_of, outcome, until

pytestmark = pytest.mark.slow

CLIENTS = ("int8", "int8", "float32")
VICTIM, LOW, HIGH = range(3)
FAULTS: dict[int, str] = {
    LOW: "garbage straggle shapes bits old fail",
    HIGH: "nan none none truncated huge twice",
}
"""What a client does in rounds 1 to 6. The victim is killed in round 2, and back before round 4 begins."""
EXPECTED: dict[tuple[int, int], tuple[str, str]] = {
    (1, LOW): ("refused", r"byte 0: magic is .*; accepted: b'PRWD'"),
    (1, HIGH): ("refused", r"tensor '.*', payload at byte \d+: .*nan"),
    (2, VICTIM): ("lost", r"node \d+: "),
    (2, LOW): ("lost", r"node \d+: no reply in"),
    (3, LOW): ("refused", r"shape of '.*' is .*; accepted: "),
    (4, LOW): ("refused", r"width of '.*' is int16; accepted: int2"),
    (4, HIGH): ("refused", r"message of \d+ bytes; accepted: the \d+ its header declares"),
    (5, LOW): ("refused", "round is 4; accepted: 5"),
    (5, HIGH): ("refused", r"message of \d+ bytes; accepted: the 1152921504\d+ its header declares"),
    (6, LOW): ("lost", r"node \d+: failed: .*out of paper"),
}
DEADLINE = 60.0
SETTINGS: dict[str, Any] = {
    "clients": "int8:2, float32:1", "method": "fedavg", "rounds": 6, "steps": 2, "test_examples": 40,
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
        assert re.search(reason, found), f"round {round_}, client {client}: {found}"
    assert [statuses(line)[VICTIM] for line in lines[3:]] == ["ok", "ok", "ok"], "who was killed is back"
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
    used = {
        line["round"]: {client for client, status in statuses(line).items() if status == "ok"}
        for line in lines_of(path)
    }
    config, dataset = prepare(path / "config.toml", {})
    assembly = assemble(config, dataset)
    federation, clients = assembly.federation, assembly.clients(path / "replayed")
    state = federation.method.init(federation.scene)
    return engine.run(federation, state, Only(clients, used), engine.Observer()).model


@dataclass(frozen=True)
class Only:
    """Of each round's clients only some answer."""

    clients: Clients
    used: Mapping[int, set[int]]
    remote: ClassVar[bool] = False

    def exchange(self, parcels: Mapping[int, Parcel]) -> Iterator[tuple[int, Reply]]:
        for client, parcel in parcels.items():
            if client in self.used[decode_task(parcel.join()).round]:
                yield client, self.clients[client].handle(parcel.join())

    def close(self) -> None:
        pass
