"""What a tracker is: an observer that sends every round elsewhere, as scalars, however often the run is stopped."""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from prowd.config.schema import RunConfig
from prowd.errors import ProwdError, RunError
from prowd.federation.engine import Federation
from prowd.federation.report import RoundReport
from prowd.files import atomic_write
from prowd.methods import ServerState
from prowd.runs.observe import RunObserver
from prowd.runs.read import read_lines
from prowd.views.trackers.scalars import Scalars

__all__ = ["Tracker"]

log = logging.getLogger(__name__)
STATE = "tracking.json"  # in a run's directory: what each tracker knows the run by, and how many rounds it has


class Tracker(RunObserver, ABC):
    """A tracker is three functions: ``start``, ``send`` and ``end``.

    Where it cannot begin, the run does not begin either. Where it fails later, the run goes on without it: what is
    missing can be sent when the run is over, by ``prowd run --resume RUN --track NAME``.
    """

    name: ClassVar[str]
    """What --track calls it, and the extra that it needs."""
    errors: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    """What its library raises when it cannot write or reach what it should."""

    scalars: Scalars
    clock: float

    def __init__(self, home: Path | None = None) -> None:
        self.home = home
        """The directory of the comparison that the run belongs to; without one, files go into the run's own."""
        self.path = Path()
        self.rounds = 0
        """How many rounds the run is to have."""
        self.sent = 0
        """The last round that was sent."""
        self.is_lost = False

    @abstractmethod
    def start(self, config: RunConfig) -> int:
        """Begin, or go on with, the run in ``self.path``; returns the last round that is there already."""

    @abstractmethod
    def send(self, round_: int, when: float, values: Mapping[str, float]) -> None:
        """Send the scalars of a round, which ended at a time in seconds since 1970."""

    @abstractmethod
    def end(self, *, complete: bool) -> None:
        """No more rounds will come; they are all there if the run is complete."""

    def began(self, config: RunConfig, federation: Federation, path: Path, done: int) -> None:
        """Send the configuration and the rounds so far."""
        self.follow(config, path)

    def follow(self, config: RunConfig, path: Path) -> None:
        """Send what a run's directory holds and the tracker has not."""
        self.path, self.rounds = path, config.rounds
        lines, _ = read_lines(path / "rounds.jsonl")
        self.scalars = Scalars(config.clients)
        self.clock = time.time() - sum(line.seconds for line in lines)
        try:
            self.sent = self.start(config)
            for line in lines:
                self._add(line)
        except self.errors as error:
            raise RunError(self._lost(error)) from error

    def finished(self, report: RoundReport, state: ServerState) -> None:
        """Send the round, at once, for whoever looks on."""
        if self.is_lost:
            return
        try:
            self._add(report)
        except self.errors as error:
            self.is_lost = True
            log.warning("%s; the run goes on without it", self._lost(error))

    def close(self) -> None:
        """End what was begun."""
        try:
            self.end(complete=self.sent == self.rounds)
        except self.errors as error:
            log.warning("%s", self._lost(error))

    def is_up_to_date(self, path: Path) -> bool:
        """Whether the tracker has all rounds that a run's directory holds."""
        lines, _ = read_lines(path / "rounds.jsonl")
        return int(self.recall(path).get("rounds", 0)) >= len(lines)

    def recall(self, path: Path) -> dict[str, Any]:
        """What this tracker has written down in a run's directory."""
        found = _read_state(path).get(self.name, {})
        return found if isinstance(found, dict) else {}

    def remember(self, **facts: Any) -> None:
        """Write down in the run's directory what the tracker is to know when it goes on."""
        state = {**_read_state(self.path), self.name: {**self.recall(self.path), **facts}}
        atomic_write(self.path / STATE, (json.dumps(state, indent=2) + "\n").encode())

    def _add(self, line: RoundReport) -> None:
        """A round, at the time at which it would have ended had the run never been stopped."""
        self.clock += line.seconds
        values = self.scalars.of(line)
        if line.round > self.sent:
            self.send(line.round, self.clock, values)
            self.sent = line.round

    def _lost(self, error: Exception) -> str:
        said = (str(error).strip() or repr(error)).splitlines()[0]
        again = f"prowd run --resume {self.path} --track {self.name}"
        return f"{self.name} cannot be written for {self.path}: {said}; to send what is missing: {again}"


def _read_state(path: Path) -> dict[str, Any]:
    try:
        found = json.loads((path / STATE).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ProwdError(f"{path / STATE} cannot be read: {error}; without it, trackers begin anew") from error
    return found if isinstance(found, dict) else {}
