"""Who is there: which Flower node is which client, by its own word, and that word is held to."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from prowd.device.scene import ClientSpec
from prowd.errors import RunError, WireError, harmless
from prowd.flower.logs import event
from prowd.flower.post import SilenceError, ask, content_of, poll
from prowd.flower.records import HELLO, Brief, read_introduction

__all__ = ["PATIENCE", "Roll"]

log = logging.getLogger(__name__)
PATIENCE = 60.0  # seconds for an answer to hello, which a busy node may take


@dataclass
class Roll:
    """Calls the roll: asks nodes that it has not met who they are.

    ``known`` are the clients that a run has agreed with, if it has begun: whoever says something else is not let in.
    ``owners`` are the nodes to which numbers belong; one that belongs to nobody is that of the first who says it.
    A node's own number is Flower's, and stands for the key with which it was registered.
    """

    grid: Grid
    brief: Brief
    clients: int
    known: Mapping[int, ClientSpec] = field(default_factory=dict)
    owners: Mapping[int, int] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)
    """The node of each client."""
    specs: dict[int, ClientSpec] = field(default_factory=dict)
    turned_away: dict[int, str] = field(default_factory=dict)
    """Nodes that were not let in, and why."""

    def call(self, seconds: float) -> None:
        """Ask whoever is there and has not been let in, and wait at most so long for the answers."""
        met = set(self.nodes.values())
        strangers = [node for node in ask(self.grid.get_node_ids) if node not in met]
        messages = {node: Message(self.brief.hello(), node, HELLO, ttl=seconds) for node in strangers}
        for node, reply in poll(self.grid, messages, seconds):
            try:
                self._let_in(node, *read_introduction(content_of(reply)))
            except WireError as error:
                self._turn_away(node, f"it does not answer: {error}" if isinstance(error, SilenceError) else str(error))

    def wait_for(self, least: int, seconds: float) -> None:
        """Call until so many clients are there, or raise with who is missing."""
        end = time.monotonic() + seconds
        while len(self.nodes) < least and (left := end - time.monotonic()) > 0:
            self.call(min(left, PATIENCE))
            if len(self.nodes) < least:
                time.sleep(min(1.0, max(end - time.monotonic(), 0)))
        if len(self.nodes) < least:
            missing = ", ".join(str(client) for client in range(self.clients) if client not in self.nodes)
            reasons = "".join(f"; node {node}: {reason}" for node, reason in self.turned_away.items())
            found = f"{len(self.nodes)} of the {least} devices that are needed introduced themselves in {seconds:g} s"
            raise RunError(f"{found}; missing: {missing}{reasons}")

    def _let_in(self, node: int, spec: ClientSpec, version: str) -> None:
        if spec.id >= self.clients:
            raise WireError(f"client is {spec.id}; accepted: 0 to {self.clients - 1}")
        if self.owners.get(spec.id, node) != node:
            raise WireError(f"client {spec.id} belongs to node {self.owners[spec.id]}; accepted: a number of its own")
        if spec.id in self.nodes:
            raise WireError(f"client {spec.id} is node {self.nodes[spec.id]} already; accepted: a number of its own")
        agreed = self.known.get(spec.id, spec)
        if spec != agreed:
            found, accepted = (f"{s.width} with {s.num_examples} examples" for s in (spec, agreed))
            raise WireError(f"client {spec.id} is {found}; accepted: {accepted}, as it said when the run began")
        self.nodes[spec.id], self.specs[spec.id] = node, spec
        self.turned_away.pop(node, None)
        facts = {
            "client": spec.id,
            "width": str(spec.width),
            "examples": spec.num_examples,
            "version": harmless(version),
        }
        event(log, "joined", {"node": str(node), **facts})

    def _turn_away(self, node: int, reason: str) -> None:
        reason = harmless(reason)
        if self.turned_away.get(node) != reason:
            self.turned_away[node] = reason
            event(log, "turned away", {"node": str(node), "reason": reason}, logging.WARNING)
