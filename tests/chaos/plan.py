"""What is to go wrong and when: all of it follows from a seed, one sequence for each lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

__all__ = ["FLOWER", "LOCAL", "LOCALLY", "ON_FLOWER", "Fault", "plan"]

LOCALLY, ON_FLOWER = "prowd run", "Flower"

LOCAL: Mapping[str, int] = {
    "kill server": 28,
    "kill worker": 28,
    "kill all": 10,
    "stop worker": 10,
    "stop worker for good": 6,
    "stop server": 8,
    "disk full": 14,
    "file limit": 8,
    "read-only folder": 10,
}
"""What can happen to ``prowd run``, and how often next to each other."""

FLOWER: Mapping[str, int] = {
    "kill SuperLink": 6,
    "kill executor": 3,
    "kill server app": 8,
    "kill SuperNode": 6,
    "kill client app": 6,
    "stop SuperLink": 4,
    "stop SuperNode": 4,
    "stop SuperNode for good": 3,
    "disk full, server": 5,
    "disk full, device": 5,
    "read-only folder, device": 3,
}
"""What can happen to a federation on Flower."""


@dataclass(frozen=True)
class Fault:
    """One fault: at which moment of a process's life, and a number for whatever else is to be chosen."""

    kind: str
    early: bool
    """Whether it comes while the process starts, not while it makes rounds."""
    moment: float
    choice: float


def plan(seed: int, lane: str, kinds: Mapping[str, int]) -> Iterator[Fault]:
    """The faults of a lane, without end."""
    random = Random(f"{seed} {lane}")
    while True:
        (kind,) = random.choices([*kinds], [*kinds.values()])
        yield Fault(kind, random.random() < 0.25, random.random(), random.random())
