"""The devices of a federation as they introduced themselves: who they are, and to what they are held from then on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from prowd.device.scene import ClientSpec
from prowd.errors import ConfigError, RunError
from prowd.numbers.bits import Bitwidth

__all__ = ["Roster", "mix_of"]

FORMAT = 1


@dataclass(frozen=True)
class Roster:
    """A run's devices in client order, a name that no other run has, and whose each number is."""

    run: str
    clients: tuple[ClientSpec, ...]
    owners: Mapping[int, int] = field(default_factory=dict)
    """The registration, which is of one key, of each client; none where a run was begun before they were kept."""

    def encode(self) -> bytes:
        """The roster as JSON."""
        devices = [
            {"client": c.id, "width": str(c.width), "examples": c.num_examples}
            | ({"node": str(self.owners[c.id])} if c.id in self.owners else {})
            for c in self.clients
        ]
        return json.dumps({"format": FORMAT, "run": self.run, "devices": devices}, indent=2).encode()

    @classmethod
    def decode(cls, data: bytes, where: object) -> Roster:
        """Read a roster, or say what is wrong with it."""
        try:
            values = json.loads(data)
            if values["format"] != FORMAT:
                raise RunError(f"{where}: format {values['format']!r}; accepted: {FORMAT}")
            run, clients = values["run"], tuple(_client(device) for device in values["devices"])
            numbered = clients and [client.id for client in clients] == list(range(len(clients)))
            if not numbered or not isinstance(run, str):
                raise RunError(f"{where}: devices are not numbered from 0 up, or the run has no name; it was damaged")
            owners = {device["client"]: int(device["node"]) for device in values["devices"] if "node" in device}
            return cls(run, clients, owners)
        except (ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
            raise RunError(f"{where} cannot be read: {error!r}") from error


def mix_of(widths: Iterable[Bitwidth]) -> str:
    """Widths in client order as the setting ``clients`` writes them."""
    return ", ".join(f"{width}:{len(list(same))}" for width, same in groupby(widths))


def _client(device: dict[str, Any]) -> ClientSpec:
    client, width, examples = device["client"], device["width"], device["examples"]
    if not (type(client) is int and isinstance(width, str) and type(examples) is int and examples > 0):
        raise ValueError(f"a device is {device}")
    return ClientSpec(client, Bitwidth.parse(width), examples)
