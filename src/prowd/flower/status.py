"""What the devices of a run did, read from its directory, while it runs or after."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prowd.errors import RunError, harmless
from prowd.federation.report import RoundReport
from prowd.runs.read import read_lines
from prowd.runs.roster import Roster

__all__ = ["DeviceStatus", "read_status"]


@dataclass
class DeviceStatus:
    """A device over all rounds so far."""

    client: int
    width: str
    node: str = ""
    asked: int = 0
    used: int = 0
    lost: int = 0
    refused: int = 0
    seconds: float = 0.0
    up: int = 0
    down: int = 0
    trouble: str = ""

    def add(self, round_: int, entry: dict[str, Any]) -> None:
        """Count a round."""
        status = str(entry["status"])
        self.asked += 1
        self.used += status == "ok"
        self.lost += status == "lost"
        self.refused += status == "refused"
        self.seconds += float(entry.get("seconds", 0.0))
        self.up += int(entry.get("up", 0))
        self.down += int(entry.get("down", 0))
        self.node = harmless(str(entry.get("node") or self.node))
        if "reason" in entry:
            self.trouble = f"round {round_}: {harmless(str(entry['reason']))}"


def read_status(path: Path) -> tuple[list[DeviceStatus], list[RoundReport]]:
    """The devices of a run on Flower, and its rounds."""
    roster = path / "devices.json"
    if not roster.is_file():
        raise RunError(f"{path} has no devices.json; accepted: the directory of a run on Flower")
    clients = Roster.decode(roster.read_bytes(), roster).clients
    devices = {client.id: DeviceStatus(client.id, str(client.width)) for client in clients}
    lines, _ = read_lines(path / "rounds.jsonl")
    for line in lines:
        try:
            for entry in line.devices:
                devices[entry["client"]].add(line.round, entry)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(
                f"{path / 'rounds.jsonl'}: the devices of round {line.round} are damaged: {error!r}"
            ) from error
    return list(devices.values()), lines
