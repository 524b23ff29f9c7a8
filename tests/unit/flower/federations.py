"""Federations over a grid of nodes in this process, and what the same run comes to without Flower."""

from __future__ import annotations

import functools
import json
import logging
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import tomli_w
from flwr.supercore.task_identity import TaskIdentity

from prowd import data
from prowd.config.schema import RunConfig
from prowd.federation import engine
from prowd.federation.transport import InProcess, Reply
from prowd.flower import post, roll, server_app, transport
from prowd.flower.node import read_run
from prowd.flower.settings import ServerSettings
from prowd.runs.build import assemble, make_architecture, prepare
from prowd.runs.run import RunResult, Session
from prowd.wire import Parcel, decode_task
from tests.unit.flower.fakes import FIRST, Clock, FakeGrid

TINY: dict[str, Any] = {
    "clients": "int8:2, float32:2",
    "rounds": 2,
    "steps": 2,
    "batch": 8,
    "width": 0.25,
    "buffer": 6,
    "test_examples": 20,
}
"""Settings that make a round on the digits a matter of milliseconds."""

WIDTHS = ("int8", "int8", "float32", "float32")


def jumping(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Nobody sleeps, data sets are loaded once, and this is a process of Flower's."""
    made = Clock()
    for module in (post, roll, transport, engine):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(data, "load", load)
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    return made


@contextmanager
def logging_as_before() -> Iterator[None]:
    logger = logging.getLogger("prowd")
    before = list(logger.handlers), logger.level, logger.propagate
    try:
        yield
    finally:
        logger.handlers[:], logger.level, logger.propagate = before


load = functools.cache(data.load)


def make_grid(clock: Clock, state: Path, widths: Iterable[str] = WIDTHS, *, thrifty: bool = False) -> FakeGrid:
    """A node for each width, with its share of the digits."""
    nodes = {
        FIRST + n: {"client": n, "width": width, "data": "digits", "state": str(state / str(n))}
        for n, width in enumerate(widths)
    }
    return FakeGrid(clock, nodes, thrifty=thrifty)


def server(out: Path | None = None, run: Mapping[str, Any] | None = None, **given: Any) -> ServerSettings:
    """The settings of a server that begins a run in ``out``; those of the run are in ``run``."""
    pairs = "; ".join(f"{key}={json.dumps(value)}" for key, value in ({**TINY, **(run or {})}).items())
    beginning = {"out": str(out), "settings": pairs} if out else {}
    return ServerSettings.read({"deadline": 60.0, "pause": 5.0, "join": 30.0, **beginning, **given})


def run(grid: Any, out: Path, settings: Mapping[str, Any] | None = None, **given: Any) -> RunResult:
    """Begin a run and run it to its end."""
    with logging_as_before():
        return server_app.serve(grid, server(out, settings, **given))


def resume(grid: Any, path: Path, **given: Any) -> RunResult:
    """Go on with a run."""
    with logging_as_before():
        return server_app.serve(grid, server(resume=str(path), **given))


@dataclass(frozen=True)
class Without:
    """All clients in this process, except some in some rounds."""

    inner: InProcess
    absent: frozenset[tuple[int, int]]
    remote: ClassVar[bool] = False

    def exchange(self, parcels: Mapping[int, Parcel]) -> Iterator[tuple[int, Reply]]:
        present = {
            client: parcel
            for client, parcel in parcels.items()
            if (client, decode_task(parcel.join()).round) not in self.absent
        }
        return self.inner.exchange(present)

    def close(self) -> None: ...


@functools.cache
def expected(*absent: tuple[int, int], **settings: Any) -> str:
    """The hash of the weights that the same run comes to in one process, without some (client, round)."""
    with tempfile.TemporaryDirectory() as folder:
        session = Session.start("quick", {**TINY, **settings}, out=Path(folder) / "run")
        clients = assemble(session.config, session.dataset).clients(session.rundir.memories)
        return weights(session.run(transport=Without(InProcess(clients), frozenset(absent))))


def weights(result: RunResult) -> str:
    """The hash of the weights that a run came to."""
    found: str = result.summary["weights_sha256"]
    return found


def devices(line: Mapping[str, Any]) -> dict[int, tuple[str, str]]:
    """What a line of rounds.jsonl says of each client: its status and the reason."""
    return {entry["client"]: (entry["status"], entry.get("reason", "")) for entry in line["devices"]}


def absences(line: Mapping[str, Any], kind: str) -> dict[int, str]:
    """Those that are lost or refused, and the reason."""
    return {absence["client"]: absence["reason"] for absence in line["clients"][kind]}


# What nodes are told

RUN = "0123456789abcdef"


@functools.cache
def text_of(method: str = "fedavg") -> str:
    """The settings of a tiny run on the digits, as devices are told them."""
    config, dataset = prepare("quick", {**TINY, "method": method})
    return server_app.told(config, make_architecture(config, dataset))


def config_with(**changes: Any) -> RunConfig:
    return read_run(tomli_w.dumps({**tomllib.loads(text_of()), **changes}))


@functools.cache
def plain() -> RunConfig:
    return read_run(text_of())


def says(**changes: Any) -> dict[str, Any]:
    """What an operator says of a node."""
    return {"client": 1, "width": "int8", "data": "digits", **changes}
