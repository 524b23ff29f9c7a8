"""Boards at the end of lines that can be bent, without a process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prowd.link import Stream
from tests.board import Board

__all__ = ["Bend", "Clock", "Line", "straight"]

Bend = Callable[[bytes], Iterator[bytes]]


def straight(data: bytes) -> Iterator[bytes]:
    yield data


@dataclass
class Clock:
    """Time that passes only while somebody waits."""

    now: float = 0.0

    def monotonic(self) -> float:
        self.now += 1e-6
        return self.now


@dataclass
class Line(Stream):
    """A board, and a line that may bend what goes over it."""

    board: Board
    clock: Clock | None = None
    """None: time passes as it does."""
    down: Bend = straight
    up: Bend = straight
    rate: float = 0.0
    coming: list[bytes] = field(default_factory=list)
    power_cut: Callable[[int], bool] = lambda _: False
    sent: int = 0

    def send(self, data: bytes, seconds: float) -> None:
        self.sent += 1
        if self.power_cut(self.sent):
            self.coming += self.up(self.board.boot())
        for part in self.down(data):
            for answer in self.board.feed(part):
                self.coming += self.up(answer)

    def receive(self, seconds: float) -> bytes:
        if self.coming:
            return self.coming.pop(0)
        if self.clock:
            self.clock.now += max(0.0, seconds)
        elif seconds > 0:
            time.sleep(seconds)
        return b""

    def close(self, seconds: float = 0.0) -> str:
        return ""
