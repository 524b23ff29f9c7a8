"""How messages reach clients and come back.

A transport moves bytes and knows nothing of methods. Clients that do not answer are simply absent from its replies,
or, where it knows why, answered for by a Silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from prowd.federation.client import Clients
from prowd.wire import Parcel

__all__ = ["InProcess", "Refusal", "Reply", "Silence", "Transport"]


@dataclass(frozen=True)
class Silence:
    """In the place of a reply that does not come: why."""

    reason: str


@dataclass(frozen=True)
class Refusal:
    """In the place of a reply that came and is not even a message: what is wrong with it."""

    reason: str


Reply = bytes | Silence | Refusal


class Transport(Protocol):
    """Delivers tasks and brings back updates, in any order."""

    @property
    def remote(self) -> bool:
        """Whether clients compute elsewhere, so that the server is idle while they do."""

    def exchange(self, parcels: Mapping[int, Parcel]) -> Iterator[tuple[int, Reply]]:
        """Send each client its parcel; yield (client, reply) as replies come in."""

    def close(self) -> None:
        """Let go of whatever was started."""


@dataclass(frozen=True)
class InProcess:
    """All clients in this process, one after the other."""

    clients: Clients
    remote: ClassVar[bool] = False

    def exchange(self, parcels: Mapping[int, Parcel]) -> Iterator[tuple[int, bytes]]:
        """Answer for each client in turn."""
        for client, parcel in parcels.items():
            yield client, self.clients[client].handle(parcel.join())

    def close(self) -> None:
        """Nothing was started."""
