"""Observers of a run: the one that writes every round down, and those of whoever else wants to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from prowd.config.schema import RunConfig
from prowd.errors import RunError, disk_fault
from prowd.federation.engine import Federation, Observer
from prowd.federation.report import RoundReport
from prowd.methods import LiftsInStages, ServerState
from prowd.methods.common import is_low
from prowd.runs.directory import RunDir
from prowd.runs.snapshots import Snapshots
from prowd.wire import Update

__all__ = ["Recorder", "RunObserver"]


class RunObserver(Observer):
    """An observer of a whole run, from its beginning to its end. This one does nothing."""

    def began(self, config: RunConfig, federation: Federation, path: Path, done: int) -> None:
        """The first round, or the first after a resume, is about to begin."""

    def remarks(self, report: RoundReport) -> Mapping[str, Any]:
        """What is to be written down with a round in addition to its report."""
        return {}

    def close(self) -> None:
        """The run is over, however it ended."""


@dataclass(frozen=True)
class Recorder(Observer):
    """Writes every round down, then notifies the other observers in their order."""

    rundir: RunDir
    federation: Federation
    snapshots: Snapshots
    observers: Sequence[RunObserver] = ()

    def began(self, config: RunConfig, state: ServerState, provenance: Mapping[str, Any]) -> None:
        """Write down by what the run is made from here on, and how its weights begin."""
        named = {"method": self.federation.method.name, "round": state.round}
        try:
            if state.round < self.federation.rounds:
                self.rundir.add_session({**provenance, **named})
        except OSError as error:
            raise RunError(disk_fault(error, self.rundir.path)) from error
        if state.round == 0:
            self.aggregated(state, ())
        for observer in self.observers:
            observer.began(config, self.federation, self.rundir.path, state.round)

    def replied(self, round_: int, done: int, asked: int) -> None:
        """Notify the others."""
        for observer in self.observers:
            observer.replied(round_, done, asked)

    def aggregated(self, state: ServerState, updates: Sequence[Update]) -> None:
        """Keep samples of the new weights, and of how the first low-bit client's were lifted."""
        if not self.snapshots.wants(state.round):
            return
        scene, method = self.federation.scene, self.federation.method
        low = [update for update in updates if is_low(scene, update.width)][:1]
        stages: Sequence[Mapping[str, Tensor]] = ()
        if low and isinstance(method, LiftsInStages):
            stages = method.lift_in_stages(scene, state, low[0])
        self.snapshots.keep_server(state.round, state.model, stages, low[0].client if stages else -1)

    def finished(self, report: RoundReport, state: ServerState) -> None:
        """Write the round and its checkpoint."""
        remarks = {key: value for observer in self.observers for key, value in observer.remarks(report).items()}
        try:
            self.rundir.append({**report.line(), **remarks})
            self.rundir.checkpoint(state)
        except OSError as error:
            raise RunError(f"round {report.round} cannot be saved: {disk_fault(error, self.rundir.path)}") from error
        for observer in self.observers:
            observer.finished(report, state)
