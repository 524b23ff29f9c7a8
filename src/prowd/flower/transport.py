"""Tasks to Flower nodes, and their updates back."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from flwr.app import Message

from prowd.errors import WireError, harmless
from prowd.federation.transport import Refusal, Reply, Silence
from prowd.flower.logs import event
from prowd.flower.post import Letter, SilenceError, content_of, poll
from prowd.flower.records import TRAIN, unpack_update
from prowd.flower.roll import PATIENCE, Roll
from prowd.wire import Parcel

__all__ = ["FlowerTransport", "Visit"]

log = logging.getLogger(__name__)


class Visit(NamedTuple):
    """A client's part in a round, as seen from the wire: how long it took, and the bytes of its reply."""

    seconds: float
    up: int


@dataclass
class FlowerTransport:
    """A transport whose clients are Flower nodes; a round waits for them until its deadline and no longer.

    Messages live as long as the deadline, so that a node which comes back does not work through rounds that are over.
    """

    roll: Roll
    deadline: float
    limit: int
    remote: bool = True
    visits: dict[int, Visit] = field(default_factory=dict)
    """The clients that answered in the last exchange."""
    sent: dict[int, int] = field(default_factory=dict)
    """Bytes that each client was sent in it."""

    def exchange(self, parcels: Mapping[int, Parcel]) -> Iterator[tuple[int, Reply]]:
        """Send the tasks; whoever has not answered at the deadline is silent."""
        self.visits.clear()
        self.sent = {client: len(parcel) for client, parcel in parcels.items()}
        began = time.monotonic()
        if any(client not in self.roll.nodes for client in parcels):
            self.roll.call(min(self.deadline / 2, PATIENCE))
        clients = {self.roll.nodes[client]: client for client in parcels if client in self.roll.nodes}
        left = max(self.deadline - (time.monotonic() - began), 1.0)
        messages = {
            node: Message(self.roll.brief.task(parcels[client]), node, TRAIN, ttl=left)
            for node, client in clients.items()
        }
        for node, letter in poll(self.roll.grid, messages, left):
            client = clients.pop(node)
            seconds = round(time.monotonic() - began, 3)
            reply = self._read(node, letter)
            if not isinstance(reply, Silence):
                self.visits[client] = Visit(seconds, len(reply) if isinstance(reply, bytes) else 0)
            facts = {"bytes": len(reply)} if isinstance(reply, bytes) else {"reason": harmless(reply.reason)}
            event(log, "replied", {"node": str(node), "client": client, "seconds": seconds, **facts})
            yield client, reply
        for node, client in clients.items():
            yield client, Silence(f"node {node}: no reply in {self.deadline:g} s")
        for client in parcels:
            if client not in self.roll.nodes:
                yield client, Silence("its node has not come back since the run was resumed")

    def close(self) -> None:
        """The nodes are not ours to stop."""

    def _read(self, node: int, letter: Letter) -> Reply:
        try:
            return unpack_update(content_of(letter), self.limit)
        except SilenceError as error:
            return Silence(f"node {node}: {error}")
        except WireError as error:
            return Refusal(f"node {node}: {error}")
