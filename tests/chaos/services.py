"""The processes of a federation on Flower, started again whenever they have ended, as systemd does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from prowd.errors import RunError
from prowd.flower.control import RunStatus
from prowd.flower.demo import wait_for_nodes
from prowd.flower.processes import LocalFederation, Values
from prowd.numbers.bits import Bitwidth
from tests.chaos.programs import Member, living

__all__ = ["CLIENT_APP", "EXECUTOR", "LINK", "SERVER_APP", "Services"]

LINK, EXECUTOR = "superlink", "superexec"
SERVER_APP, CLIENT_APP = "flwr-serverapp", "flwr-clientapp"


class Services:
    """A SuperLink and its executor, which run, and a SuperNode for each width, whose memory is in a folder."""

    def __init__(self, federation: LocalFederation, app: Path, widths: Sequence[Bitwidth], folder: Path) -> None:
        self.federation, self.app = federation, app
        self.nodes: dict[str, Values] = {}
        for client, width in enumerate(widths):
            name, state = f"node-{client}", str(folder / f"state-{client}")
            self.nodes[name] = {"client": client, "width": str(width), "data": "digits", "state": state}
            federation.add_node(name)
            self._begin(name)
        with federation.control() as control:
            wait_for_nodes(federation, control, len(self.nodes))

    def tend(self) -> None:
        """Start again whatever has ended or was killed."""
        for name in self.federation.ended:
            self.federation.kill(name)  # and whatever is left of it
        for name in (LINK, EXECUTOR, *self.nodes):
            if name not in self.federation.processes:
                self._begin(name)

    def start(self, values: Values, patience: float) -> int:
        """Start a run of Flower's, as soon as the SuperLink takes it."""
        end = time.monotonic() + patience
        while True:
            self.tend()
            try:
                with self.federation.control() as control:
                    return control.start(self.app, values)
            except (httpx.HTTPError, RunError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)

    def status(self, run: int) -> RunStatus | None:
        """Where a run stands, if the SuperLink answers."""
        try:
            with self.federation.control() as control:
                return control.status(run)
        except (httpx.HTTPError, KeyError):
            return None

    def apps(self, name: str) -> list[Member]:
        """Processes of an app, which are in the group of the one that started them."""
        groups = {process.pid for process in self.federation.processes.values()}
        return [found for found in living() if name in found.command and found.group in groups]

    def _begin(self, name: str) -> None:
        if name == LINK:
            self.federation.start_link()
        elif name == EXECUTOR:
            self.federation.start_executor()
        else:
            self.federation.start_node(name, self.nodes[name])
