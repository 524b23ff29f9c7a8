"""The Flower app of the server: meets the devices, then runs Algorithm 1 as everywhere, over Flower's messages."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from prowd.config.schema import RANDOM, RunConfig
from prowd.errors import ConfigError
from prowd.federation.engine import Federation
from prowd.federation.report import RoundReport
from prowd.flower.logs import event, log_to, log_to_stderr
from prowd.flower.records import Brief
from prowd.flower.roll import Roll
from prowd.flower.settings import ServerSettings
from prowd.flower.transport import FlowerTransport
from prowd.methods import METHODS, Local, ServerState
from prowd.nets import Architecture
from prowd.numbers.bits import parse_mix
from prowd.runs.build import make_architecture, prepare
from prowd.runs.directory import check_free
from prowd.runs.observe import RunObserver
from prowd.runs.roster import Roster
from prowd.runs.run import RunResult, Session, fresh_path
from prowd.views.console import result_table

__all__ = ["app", "serve"]

log = logging.getLogger(__name__)

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run a federation; a fault ends the Flower run as failed, with its reason, and the checkpoint stays."""
    log_to_stderr()
    result = serve(grid, ServerSettings.read(context.run_config))
    Console(width=100).print(result_table(result))


def serve(grid: Grid, settings: ServerSettings) -> RunResult:
    """Begin a run, or go on with one, and run it to its end."""
    session, roll = resume(grid, settings) if settings.resume else begin(grid, settings)
    transport = FlowerTransport(roll, settings.deadline, settings.limit)
    handler = log_to(session.rundir.path / "server.jsonl")
    try:
        began = {"run": roll.brief.run, "path": str(session.rundir.path), "round": session.state.round + 1}
        event(log, "began", began)
        federation = patient(session.federation, settings)
        result = replace(session, federation=federation).run(None, Diary(transport), transport=transport)
        event(log, "finished", {"weights_sha256": result.summary["weights_sha256"]})
        return result
    except BaseException as error:
        event(log, "stopped", {"reason": str(error) or type(error).__name__}, logging.ERROR)
        raise
    finally:
        session.rundir.release()
        logging.getLogger("prowd").removeHandler(handler)
        handler.close()


def begin(grid: Grid, settings: ServerSettings) -> tuple[Session, Roll]:
    """A new run: its devices say who they are before it begins."""
    if settings.path:
        check_free(settings.path)
    config, dataset = prepare(settings.preset, settings.overrides())
    _check_told(config)
    clients = len(parse_mix(config.clients))
    quorum_of(clients if config.cohort == "all" else config.cohort, settings)
    brief = Brief(secrets.token_hex(8), told(config, make_architecture(config, dataset)))
    roll = Roll(grid, brief, clients, owners=settings.nodes(clients) or {})
    if not roll.owners:
        event(log, "owners are not given", {"numbers": "belong to whoever comes first"}, logging.WARNING)
    roll.wait_for(clients, settings.join)
    roster = Roster(brief.run, tuple(roll.specs[client] for client in sorted(roll.specs)), roll.nodes)
    session = Session.begin(config, dataset, settings.path or fresh_path(config), roster)
    roll.brief = Brief(brief.run, told(session.config, session.federation.scene.architecture))
    return session, roll


def resume(grid: Grid, settings: ServerSettings) -> tuple[Session, Roll]:
    """A run that was stopped or killed: whoever is there of its devices goes on with it."""
    path = settings.path or Path()
    session = Session.resume(path, settings.overrides(), devices=True)
    try:
        roster = session.rundir.roster()
        if roster is None:
            raise ConfigError(f"run-config: resume is {path}; accepted: a run of devices")
        brief = Brief(roster.run, told(session.config, session.federation.scene.architecture))
        known = {client.id: client for client in roster.clients}
        given = settings.nodes(len(known))
        if given is not None:
            session.rundir.write_roster(replace(roster, owners=given))
        roll = Roll(grid, brief, len(known), known, roster.owners if given is None else given)
        roll.wait_for(patient(session.federation, settings).quorum, settings.join)
    except BaseException:
        session.rundir.release()
        raise
    return session, roll


def patient(federation: Federation, settings: ServerSettings) -> Federation:
    """The federation with a server that waits and tries again."""
    quorum = quorum_of(federation.cohort, settings)
    return replace(federation, quorum=quorum, attempts=settings.attempts, pause=settings.pause)


def quorum_of(cohort: int, settings: ServerSettings) -> int:
    """Updates without which a round does not count."""
    if settings.quorum > cohort:
        raise ConfigError(f"run-config: quorum is {settings.quorum}; accepted: 0 to {cohort}, the clients of a round")
    return settings.quorum or cohort // 2 + 1


def told(config: RunConfig, architecture: Architecture) -> str:
    """The settings as devices are told them: the network layer by layer, nothing of this machine."""
    return config.model_copy(
        update={
            "model": "custom", "layers": architecture.layers, "init": RANDOM, "init_sha256": "", "device": "cpu",
            "kernel": "auto", "links": {},
        }
    ).toml()  # fmt: skip


def _check_told(config: RunConfig) -> None:
    if config.links:
        raise ConfigError("links: of a device its operator tells its node; accepted: none, and link in its node-config")
    if config.method not in METHODS:
        raise ConfigError(f"method: {config.method} is not built in; accepted on devices: {', '.join(METHODS)}")
    if config.method == Local.name and config.init != RANDOM:
        raise ConfigError(f"init: {config.init}, but {Local.name} sends devices no weights; accepted: {RANDOM}")


class Diary(RunObserver):
    """Writes down what each device did in a round."""

    def __init__(self, transport: FlowerTransport) -> None:
        self.transport = transport

    def remarks(self, report: RoundReport) -> Mapping[str, Any]:
        """The devices of a round: their nodes, how long they took, what became of their updates."""
        last = [[a for a in found if not a.attempt] for found in (report.clients.lost, report.clients.refused)]
        lost, refused = ({a.client: a.reason for a in absences} for absences in last)
        visits, nodes = self.transport.visits, self.transport.roll.nodes
        devices: list[dict[str, Any]] = []
        for client, down in self.transport.sent.items():
            status = "lost" if client not in visits else "refused" if client in refused else "ok"
            device = {"client": client, "node": str(nodes.get(client, "")), "status": status, "down": down}
            if client in visits:
                device |= {"up": visits[client].up, "seconds": visits[client].seconds}
            reason = lost.get(client) if status == "lost" else refused.get(client)
            devices.append(device | ({"reason": reason} if reason else {}))
        return {"devices": devices}

    def finished(self, report: RoundReport, state: ServerState) -> None:
        """Log the round's results."""
        traffic = {"bytes_up": sum(report.traffic.up.values()), "bytes_down": sum(report.traffic.down.values())}
        missing = {"lost": len(report.clients.lost), "refused": len(report.clients.refused)}
        outcome = {
            "round": report.round,
            "accuracy": dict(report.accuracy.trained),
            "seconds": report.seconds,
        }
        event(log, "round", {**outcome, **traffic, **missing})
