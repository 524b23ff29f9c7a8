"""What one round reports: a line of rounds.jsonl."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from prowd.device.scene import ClientSpec

__all__ = ["Absence", "RoundReport", "mean_by_width", "sum_by_width"]


@dataclass(frozen=True)
class Absence:
    """A client whose work is missing from a round, and why."""

    client: int
    width: str
    reason: str
    attempt: int = 0
    """The vain attempt at a round that it was missing from; 0: the round itself."""

    def text(self, round_: int) -> str:
        """In words."""
        when = f"round {round_}, attempt {self.attempt}" if self.attempt else f"round {round_}"
        return f"{when}: client {self.client} ({self.width}) left out: {self.reason}"

    def line(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"client": self.client, "width": self.width, "reason": self.reason} | (
            {"attempt": self.attempt} if self.attempt else {}
        )


@dataclass(frozen=True)
class RoundReport:
    """Measurements of a round, per width; an accuracy that was not measured is absent."""

    round: int
    received: Mapping[str, float]
    trained: Mapping[str, float]
    loss: Mapping[str, float]
    bytes_up: Mapping[str, int]
    bytes_down: Mapping[str, int]
    asked: int
    up_by_client: Mapping[int, int] = field(default_factory=dict)
    down_by_client: Mapping[int, int] = field(default_factory=dict)
    lost: Sequence[Absence] = field(default_factory=tuple)
    refused: Sequence[Absence] = field(default_factory=tuple)
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the method noted down to explain the round."""
    seconds: float = 0.0

    def left_out(self) -> list[str]:
        """Whose work is missing, and why, in words."""
        return [absence.text(self.round) for absence in (*self.lost, *self.refused)]

    def line(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        by_client = {
            str(client): [self.up_by_client.get(client, 0), down] for client, down in self.down_by_client.items()
        }
        return {
            "round": self.round,
            "accuracy": {"received": dict(self.received), "trained": dict(self.trained)},
            "loss": dict(self.loss),
            "bytes": {"up": dict(self.bytes_up), "down": dict(self.bytes_down), "clients": by_client},
            "clients": {
                "asked": self.asked,
                "lost": [absence.line() for absence in self.lost],
                "refused": [absence.line() for absence in self.refused],
            },
            "notes": dict(self.notes),
            "seconds": round(self.seconds, 3),
        }


def _by_width(values: Iterable[tuple[ClientSpec, float]]) -> dict[str, list[float]]:
    """The clients' values for each width, low widths first."""
    groups: dict[str, list[float]] = {}
    for client, value in sorted(values, key=lambda pair: (pair[0].width, pair[0].id)):
        groups.setdefault(str(client.width), []).append(value)
    return groups


def mean_by_width(values: Iterable[tuple[ClientSpec, float]]) -> dict[str, float]:
    """Mean of the clients' values for each width."""
    return {width: fmean(found) for width, found in _by_width(values).items()}


def sum_by_width(values: Iterable[tuple[ClientSpec, int]]) -> dict[str, int]:
    """Sum of the clients' values for each width."""
    return {width: int(sum(found)) for width, found in _by_width(values).items()}
