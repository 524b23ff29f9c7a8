"""A whole federation on one machine, as separate processes that know each other by keys only."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prowd.config.schema import load_config
from prowd.config.tables import flat
from prowd.errors import ConfigError, RunError
from prowd.flower.control import Control
from prowd.flower.processes import LocalFederation, Values, local_federation
from prowd.flower.settings import write_app
from prowd.numbers.bits import Bitwidth, parse_mix
from prowd.runs.read import read_lines
from prowd.runs.run import RunResult, fresh_path
from prowd.views.console import percent

__all__ = ["Demo", "follow", "run_config", "start_nodes", "wait_for_nodes"]

PRESET = "quick"
ONLINE = 90.0  # seconds in which all nodes must be there
Say = Callable[[str], None]


@dataclass(frozen=True)
class Demo:
    """What the demonstration runs: the quick preset with some settings changed."""

    settings: Mapping[str, Any]
    out: Path | None = None

    def run(self, folder: Path, say: Say) -> RunResult:
        """Start everything, run the federation, stop everything; what the processes say is in ``folder``."""
        config = load_config(PRESET, self.settings)
        widths, path = parse_mix(config.clients), (self.out or fresh_path(config)).resolve()
        say("starting the SuperLink, with TLS and node authentication")
        with local_federation(folder) as federation:
            say(f"starting {len(widths)} SuperNodes, each with a key of its own: {config.clients}")
            owners = start_nodes(federation, widths, config.data)
            app = write_app(folder / "app")
            with federation.control() as control:
                wait_for_nodes(federation, control, len(widths))
                say("the devices are online; the run begins")
                run = control.start(
                    app, run_config(self.settings, out=str(path), owners=owners, deadline=120.0, attempts=1)
                )
                follow(federation, control, run, Teller(path, config.rounds, say))
        summary = json.loads((path / "summary.json").read_text("utf-8"))
        lines, _ = read_lines(path / "rounds.jsonl")
        return RunResult(path, [line.line() for line in lines], summary, {})


class Teller:
    """Says the results of each round, once."""

    def __init__(self, path: Path, rounds: int, say: Say) -> None:
        self.path, self.rounds, self.say, self.told = path, rounds, say, 0

    def __call__(self) -> None:
        """Say what is new."""
        lines, _ = read_lines(self.path / "rounds.jsonl")
        for line in lines[self.told :]:
            self.told += 1
            devices = sum(device["status"] == "ok" for device in line.devices)
            self.say(f"round {line.round}/{self.rounds}  {percent(line.accuracy.trained)}  {devices} devices")


def run_config(settings: Mapping[str, Any], **server: str | float) -> Values:
    """What the server is told, as with ``flwr run --run-config``."""
    pairs = [f"{key}={json.dumps(value)}" for key, value in flat(settings).items()]
    for pair in pairs:
        if ";" in pair:
            raise ConfigError(f"{pair} has a semicolon in it, which parts settings; accepted: a value without")
    return {"preset": PRESET, "settings": "; ".join(pairs), **server}


def start_nodes(federation: LocalFederation, widths: Sequence[Bitwidth], data: str) -> str:
    """Register and start a node for each width; node N is client N. Returns the setting that says so."""
    owners: list[int] = []
    for client, width in enumerate(widths):
        name = f"node-{client}"
        owners.append(federation.add_node(name))
        state = str(federation.folder / "state" / name)
        federation.start_node(name, {"client": client, "width": str(width), "data": data, "state": state})
    return ", ".join(map(str, owners))


def wait_for_nodes(federation: LocalFederation, control: Control, count: int) -> None:
    """Wait until so many nodes are online."""
    end = time.monotonic() + ONLINE
    while (online := sum(status == "online" for status in control.nodes().values())) < count:
        federation.check()
        if time.monotonic() > end:
            raise RunError(f"{online} of {count} nodes are online after {ONLINE:g} s; their logs: {federation.folder}")
        time.sleep(0.2)


def follow(
    federation: LocalFederation, control: Control, run: int, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Wait until a Flower run is over, and raise where it failed."""
    while (status := control.status(run)).stage != "finished":
        federation.check()
        meanwhile()
        time.sleep(0.3)
    meanwhile()
    if status.outcome != "completed":
        raise RunError(f"the run ended as {status.outcome}: {status.details}")
