"""What somebody who watches sees of a run, or of the runs of a comparison, at one time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Literal

from prowd.records import PlanRecord, Record

__all__ = ["ENDED", "Picture", "Reading", "Sight", "State"]

State = Literal["running", "no news", "unreadable", "failed", "finished", "waiting"]
ENDED = ("finished", "failed", "unreadable")

BEING_WRITTEN = 5.0  # seconds for which a last line without an end is one that is being written, not a damaged one
RECENT = 5  # rounds from which the time that is left is guessed
PATIENCE = 30.0  # seconds without news of a run that are nothing unusual, and
PATIENT_ROUNDS = 4  # so many times its longest recent round
FIRST_ROUND = 600.0  # seconds that a first round may take
MOST_ROUNDS = 10**7  # more are not meant


@dataclass(frozen=True)
class Reading:
    """What was read of a run at one time."""

    record: Record
    changed: float
    """When its files were last written, by the clock on the wall."""
    is_cut: bool
    """Whether rounds.jsonl ends within a line, or was written to while it was read."""

    @cached_property
    def trained(self) -> dict[str, float]:
        """The last accuracy after training."""
        return self.record.latest("trained")

    @cached_property
    def recent(self) -> list[float]:
        """Seconds that the last rounds took."""
        found = [line.seconds for line in self.record.lines[-RECENT:]]
        return [seconds for seconds in found if 0 <= seconds < 1e9]

    @property
    def patience(self) -> float:
        """Seconds without news that are nothing unusual."""
        if not self.record.lines:
            return FIRST_ROUND
        return max(PATIENCE, PATIENT_ROUNDS * max(self.recent, default=0.0))

    @property
    def damage(self) -> Sequence[str]:
        """What of the run cannot be read."""
        return self.record.damage


@dataclass(frozen=True)
class Sight:
    """One run as it is seen now."""

    name: str
    method: str
    """Empty where it is not known, as the seed is None."""
    seed: int | None
    state: State
    reading: Reading | None = None
    reason: str = ""
    """Why it failed or cannot be read."""
    silence: float = 0.0
    """Seconds since it was last heard of."""
    is_planned: bool = True

    @property
    def made(self) -> int:
        """Rounds that are made."""
        return len(self.reading.record.lines) if self.reading else 0

    @property
    def rounds(self) -> int:
        """Rounds that are to be made; 0 where that is not known."""
        return min(self.reading.record.rounds, MOST_ROUNDS) if self.reading else 0

    @property
    def pace(self) -> float | None:
        """Seconds that a round takes; None before the first."""
        return fmean(self.reading.recent) if self.reading and self.reading.recent else None

    @property
    def left(self) -> float | None:
        """Seconds until it is finished."""
        if self.state != "running" or self.pace is None:
            return None
        return max(0.0, self.pace * (self.rounds - self.made) - min(self.silence, self.pace))

    @property
    def remarks(self) -> Sequence[str]:
        """What is damaged; a line that is just being written is not."""
        if self.reading is None or (self.reading.is_cut and self.silence < BEING_WRITTEN):
            return ()
        return self.reading.damage


@dataclass(frozen=True)
class Picture:
    """All that is seen of a directory at one time: a run, or the runs of a comparison, planned ones first."""

    folder: Path
    runs: Sequence[Sight]
    plan: PlanRecord | None
    is_single: bool
    jobs: int
    """Runs that go on at once."""
    remarks: Sequence[str] = ()

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come. A run beside the plan that nobody works on is not waited for."""
        awaited = [run for run in self.runs if run.is_planned or self.plan is None]
        ended = all(run.state in ENDED for run in awaited)
        return bool(self.runs) and ended and not any(run.state == "running" for run in self.runs)

    @property
    def rounds(self) -> int:
        """Rounds of a run that has not begun: as many as the others have."""
        return max((run.rounds for run in self.runs), default=0)

    def left(self) -> float | None:
        """Seconds until the last run ends, as many going on at once as now; at least what the longest takes.

        A run goes on at its own pace, one that has not begun at that of its method, a new method at that of all.
        """
        paces: dict[str, list[float]] = {}
        for run in self.runs:
            if run.pace is not None:
                paces.setdefault(run.method, []).append(run.pace)
        if not paces or not self.jobs:
            return None
        usual = fmean([pace for found in paces.values() for pace in found])
        rest = [0.0]
        for run in self.runs:
            pace = run.pace if run.pace is not None else fmean(paces.get(run.method, [usual]))
            if run.left is not None:
                rest.append(run.left)
            elif run.state not in ENDED and (run.is_planned or self.plan is None):
                rest.append(pace * ((run.rounds or self.rounds) - run.made))
        return max(sum(rest) / self.jobs, *rest)
