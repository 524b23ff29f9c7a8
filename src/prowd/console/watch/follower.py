"""A directory that others write to, looked at again and again; a run is read only where its files have changed.

Nothing is assumed of what was seen before: a resumed run may have fewer rounds than a moment ago. Nothing is written
and no lock is taken.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from prowd.console.watch.sight import PATIENCE, Picture, Reading, Sight, State
from prowd.errors import RunError
from prowd.records import PlanRecord, find_records, read_plan, read_record, run_folders

__all__ = ["Follower"]

FILES = ("config.toml", "rounds.jsonl", "summary.json", "provenance.json")
PLAN = "comparison.json"
NOT_YET = {"checkpoints", ".lock", "data.npz"}  # what is there before config.toml or comparison.json

Signature = tuple[tuple[int, int, int] | None, ...]


class Follower:
    """Looks at a directory."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self.folder, self.now = folder, now
        self.kept: dict[Path, tuple[Signature, Reading | RunError]] = {}
        self.seen: dict[Path, tuple[Signature, float]] = {}
        self.busy: list[tuple[float, int]] = []
        self.time = -math.inf  # of the look that is being taken

    def look(self) -> Picture:
        """See what is there now; an error where no run is and none seems to be about to begin."""
        self.time = self.now()
        places = run_folders(self.folder)
        if places == [self.folder]:
            reading = self._read(self.folder)
            if isinstance(reading, RunError):
                raise reading
            return Picture(self.folder, [self._sight(self.folder.name, reading, None)], None, is_single=True, jobs=1)
        self._note(self.folder / PLAN, _signature(self.folder, PLAN))  # before the runs, which fail before it says so
        plan = read_plan(self.folder)
        if not places and plan is None and not _is_about_to_begin(self.folder):
            find_records(self.folder)  # says what is wrong
        found = {place.relative_to(self.folder).as_posix(): self._read(place) for place in places}
        problems = [str(reading) for reading in found.values() if isinstance(reading, RunError)]
        if plan is None and problems and len(problems) == len(found):
            raise RunError("; ".join(problems))
        names = dict.fromkeys([*(plan.runs if plan else ()), *found])
        runs = [self._sight(name, found.get(name), plan) for name in names]
        damaged = plan is None and (self.folder / PLAN).is_file()
        remarks = [f"{PLAN} cannot be read; runs that have not begun are not shown"] * damaged
        return Picture(self.folder, runs, plan, is_single=False, jobs=self._jobs(runs), remarks=remarks)

    def _sight(self, name: str, reading: Reading | RunError | None, plan: PlanRecord | None) -> Sight:
        method, seed = plan.runs.get(name, ("", None)) if plan else ("", None)
        is_planned = plan is not None and name in plan.runs
        failure = plan.failures.get(name, "") if plan else ""
        if reading is None:
            return Sight(name, method, seed, "failed" if failure else "waiting", reason=failure)
        if isinstance(reading, RunError):
            return Sight(name, method, seed, "unreadable", reason=str(reading), is_planned=is_planned)
        silence = max(0.0, self.time - reading.changed)
        state: State = "no news" if silence > reading.patience else "running"
        if reading.record.is_finished and (reading.trained or not failure):
            state, failure = "finished", ""
        elif failure and not self._moved_since_the_plan(self.folder / name):
            state = "failed"
        record = reading.record
        return Sight(name, record.method, record.seed, state, reading, failure, silence, is_planned)

    def _jobs(self, runs: Sequence[Sight]) -> int:
        """Runs that go on at once: the most that did lately, for between two runs there is a pause."""
        self.busy = [(when, count) for when, count in self.busy if 0 <= self.time - when < PATIENCE]
        self.busy.append((self.time, sum(run.state == "running" for run in runs)))
        return max(count for _, count in self.busy)

    def _moved_since_the_plan(self, place: Path) -> bool:
        """Whether a run was seen to go on after comparison.json said that it failed: somebody resumed it."""
        return self.seen[place][1] > self.seen[self.folder / PLAN][1]

    def _read(self, place: Path) -> Reading | RunError:
        """Read a run, unless its files are those that were already read."""
        signature = _signature(place, *FILES)
        self._note(place, signature)
        if place not in self.kept or self.kept[place][0] != signature:
            self.kept[place] = signature, self._read_anew(place, signature)
        return self.kept[place][1]

    def _read_anew(self, place: Path, signature: Signature) -> Reading | RunError:
        try:
            record = read_record(place)
        except RunError as error:
            return error
        is_cut = _signature(place, *FILES) != signature or not _ends_whole(place / "rounds.jsonl")
        changed = max(found[0] for found in signature if found) / 1e9 if any(signature) else -math.inf
        return Reading(record, changed, is_cut)

    def _note(self, place: Path, signature: Signature) -> None:
        """Remember when a change was seen; what was there from the beginning has not changed."""
        known = self.seen.get(place)
        if known is None or known[0] != signature:
            self.seen[place] = signature, self.time if known else -math.inf


def _is_about_to_begin(folder: Path) -> bool:
    """Whether a folder is empty, or holds only what is there shortly before the first file of a run."""
    try:
        names = [entry.name for entry in os.scandir(folder)]
    except OSError:
        return False
    return all(name in NOT_YET or (name.startswith(".") and name.endswith(".tmp")) for name in names)


def _signature(place: Path, *names: str) -> Signature:
    """Differs when one of the files was written to or replaced."""
    found: list[tuple[int, int, int] | None] = []
    for name in names:
        try:
            stat = (place / name).stat()
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)


def _ends_whole(path: Path) -> bool:
    """Whether a file's last line has its end; one that is empty or not there has none to miss."""
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return True
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError:
        return True
