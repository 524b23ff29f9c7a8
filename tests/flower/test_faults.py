"""What can go wrong with devices and servers, all in one federation of real processes.

Nothing crashes, nothing wrong is averaged in. The folder of a first run cannot be written. In the second a thief says
first that it is client 0, the disk is full in round 1, and devices misbehave. The server of the last asks for too much.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from prowd.cli import main
from prowd.config.schema import load_config
from prowd.data.shares import Shares
from prowd.federation import engine
from prowd.federation.transport import InProcess
from prowd.flower.control import Control
from prowd.flower.demo import run_config, wait_for_nodes
from prowd.flower.processes import LocalFederation, Values, local_federation
from prowd.nets import Conv, Flatten, Linear
from prowd.runs.build import Assembly, assemble, prepare
from prowd.runs.directory import weights_hash
from prowd.runs.roster import Roster
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
PATIENT = {"deadline": 60.0, "quorum": 1, "attempts": 1}
SETTINGS: dict[str, Any] = {
    "clients": "int8:2, float32:1", "method": "fedavg", "rounds": 4, "steps": 2, "test_examples": 40,
}  # fmt: skip


def test_a_federation_survives_its_devices(tmp_path: Path) -> None:
    path, app = tmp_path / "run", hostile_app(tmp_path / "app")
    with local_federation(tmp_path) as federation:
        owners = [str(federation.add_node(f"node-{client}")) for client in range(3)]
        federation.add_node("thief")
        start(federation, VICTIM, name="thief", memory=500, steps=2**62)
        start(federation, LOW, steps=10)
        start(federation, HIGH)
        with federation.control() as control:
            wait_for_nodes(federation, control, 3)
            a_folder_cannot_be_written(federation, control, app)
            run = control.start(app, run_config(SETTINGS, out=str(path), owners=", ".join(owners), **PATIENT))
            until(lambda: answer_of(federation, "thief") == "welcome", federation)
            write_data(tmp_path / "mine.npz")
            start(federation, VICTIM, data=str(tmp_path / "mine.npz"))
            the_disk_is_full(federation, control, run, path)
            run = control.start(app, run_config({}, resume=str(path), **PATIENT))
            until((tmp_path / f"client-{VICTIM}-round-2").exists, federation)
            federation.kill(f"node-{VICTIM}")
            bring_back(federation, control)
            (tmp_path / "back").touch()
            assert outcome(federation, control, run) == ("completed", "")
            a_server_asks_for_too_much(federation, control, app)
    lines = lines_of(path)
    assert {place: how for place, how in absences(lines).items() if place != (3, VICTIM)} == {
        place: how for place, (how, _) in EXPECTED.items()
    }
    for (round_, client), (how, reason) in EXPECTED.items():
        (found,) = [a["reason"] for a in lines[round_ - 1]["clients"][how] if a["client"] == client]
        assert reason in found, f"round {round_}, client {client}: {found}"
    assert statuses(lines[0])[VICTIM] == "ok", "its owner has the number, though a thief was there before"
    assert {device["node"] for line in lines for device in line["devices"]} == set(owners)
    assert statuses(lines[3])[VICTIM] == "ok", "who was killed is back"
    shows_reasons_as_text(path)
    summary, (made, measured) = json.loads((path / "summary.json").read_text()), replayed(path)
    assert summary["weights_sha256"] == weights_hash(made), "of those whose updates were used, and no others"
    assert summary["accuracy"]["server"] == measured, "the final model, measured by the server"


def start(federation: LocalFederation, client: int, name: str = "", **own: str | int) -> None:
    name = name or f"node-{client}"
    values: Values = {
        "client": client, "width": CLIENTS[client], "data": "digits", "faults": FAULTS.get(client, ""),
        "folder": str(federation.folder), "state": str(federation.folder / name), **own,
    }  # fmt: skip
    federation.start_node(name, values)


def write_data(file: Path) -> None:
    """The victim's share, but for one class."""
    assembly = without_zeros(assemble(*prepare("quick", SETTINGS)))
    data, rows = assembly.dataset, assembly.partition.clients[VICTIM]
    arrays = {
        "x_train": data.x_train[rows].numpy(), "y_train": data.y_train[rows].numpy(),
        "x_test": data.x_test.numpy(), "y_test": data.y_test.numpy(),
    }  # fmt: skip
    np.savez(file, allow_pickle=False, **arrays)


def without_zeros(assembly: Assembly) -> Assembly:
    rows, labels = [*assembly.partition.clients], assembly.dataset.y_train
    rows[VICTIM] = rows[VICTIM][labels[rows[VICTIM]] != 0]
    return assembly._replace(partition=replace(assembly.partition, clients=Shares.of(rows)))


def the_disk_is_full(federation: LocalFederation, control: Control, run: int, path: Path) -> None:
    """The first round cannot be written: one line says so, and how to go on."""
    until((federation.folder / f"client-{HIGH}-round-1").exists, federation)
    (path / "rounds.jsonl").symlink_to("/dev/full")
    how, details = outcome(federation, control, run)
    (path / "rounds.jsonl").unlink()
    assert how == "failed"
    assert "the disk is full" in details
    assert str(path) in details
    assert "\n" not in details.strip()


def a_folder_cannot_be_written(federation: LocalFederation, control: Control, app: Path) -> None:
    """Without owners the thief has the number that it says; but for the folder the run would begin with it."""
    how, details = outcome(federation, control, control.start(app, run_config(SETTINGS, out="/sys/run", **PATIENT)))
    assert how == "failed"
    assert "output directory /sys/run cannot be written: it is read-only" in details
    assert "\n" not in details.strip()
    assert answer_of(federation, "thief") == "welcome"
    answer_file(federation, "thief").unlink()


def a_server_asks_for_too_much(federation: LocalFederation, control: Control, app: Path) -> None:
    """Devices say what their limits are, and none of them joins."""
    wide = (Conv("a", 1, 4, padding=(3000, 3000)), Flatten(), Linear("b", 4 * 6006**2, 10, relu=False))
    config = load_config("quick", {**SETTINGS, "steps": 2**62}).model_copy(update={"model": "custom", "layers": wide})
    (federation.folder / "greedy.toml").write_text(config.toml())
    control.start(app, {"preset": str(federation.folder / "greedy.toml")})
    until(lambda: f"steps: {2**62}; accepted: up to 10," in answer_of(federation, f"node-{LOW}"), federation)
    until(lambda: "accepted: up to 500 MB" in answer_of(federation, "thief"), federation)


def answer_of(federation: LocalFederation, name: str) -> str:
    """What a device has last said to a server's hello."""
    file = answer_file(federation, name)
    return file.read_text() if file.exists() else ""


def answer_file(federation: LocalFederation, name: str) -> Path:
    return federation.folder / f"{name}-hello.txt"


def shows_reasons_as_text(path: Path) -> None:
    """What a device says is no markup, and steers no terminal."""
    said = CliRunner().invoke(main, ["flower", "status", str(path)], env={"COLUMNS": "400"})
    assert said.exit_code == 0, said.exception
    assert r"out of paper [/red] \x1b[2J\r\n[bold]" in said.output
    assert all(letter.isprintable() or letter == "\n" for letter in said.output)


def bring_back(federation: LocalFederation, control: Control) -> None:
    """Start the victim again once Flower has noticed that it was gone: until then it refuses the key."""
    until(lambda: online(control) == 3, federation)
    start(federation, VICTIM, data=str(federation.folder / "mine.npz"))
    until(lambda: online(control) == 4, federation)


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


def replayed(path: Path) -> tuple[Mapping[str, Any], Mapping[str, float]]:
    """The model of a run in this process in which only those take part whose updates were used, and its accuracy."""
    lines = lines_of(path)
    absent = {(client, line["round"]) for line in lines for client, how in statuses(line).items() if how != "ok"}
    config, dataset = prepare(path / "config.toml", {})
    devices = Roster.decode((path / "devices.json").read_bytes(), path).clients
    assembly = without_zeros(assemble(config, dataset, devices))
    federation, clients = assembly.federation, assembly.clients(path / "replayed")
    transport = Without(InProcess(clients), frozenset(absent))
    state = engine.run(federation, federation.method.init(federation.scene), transport, engine.Observer())
    return state.model, engine.measure(federation, state)
