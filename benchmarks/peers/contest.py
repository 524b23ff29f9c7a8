"""Who takes part, and the measurements of all of them, taken in turn."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers import work
from benchmarks.peers.environments import ROOT, prepare
from benchmarks.peers.measure import Measured, PeerError, measure

__all__ = ["CONTESTANTS", "JOBS", "PROWD", "QUIET", "Contest", "Contestant", "Job"]

SILENT = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
QUIET = 0.05  # the most that other processes may have of the processor while somebody is timed
ALIKE = 1.25  # the most by which a loss may differ from prowd's, as a ratio


@dataclass(frozen=True)
class Contestant:
    """A program that does the work; ``threads`` is what each of its processes that trains may use, two in all."""

    name: str
    title: str
    module: str
    threads: int
    mixes: bool = False
    """Whether it takes part in the mixed federation."""
    needs: tuple[str, ...] = ()
    """What its own environment holds besides torch and numpy; nothing: the environment of prowd."""


@dataclass(frozen=True)
class Job:
    """So many local steps in each of so many rounds, measured so often; by Float32 clients, or by half of them Int8."""

    steps: int
    rounds: int
    repeats: int
    mixed: bool = False

    @property
    def title(self) -> str:
        """In words."""
        return f"{'mixed, ' if self.mixed else ''}{self.steps} steps"


PROWD = Contestant("prowd", "prowd, 2 workers", "prowd_app", 1, mixes=True)
CONTESTANTS = {
    contestant.name: contestant
    for contestant in (
        PROWD,
        Contestant("bare", "bare loop, 2 threads", "bare_app", 2),
        Contestant("bare1", "bare loop, 1 thread", "bare_app", 1),
        Contestant("flower", "Flower, 2 Ray actors", "flower_app", 1, True, ("flwr[simulation]==1.41.0",)),
        Contestant("pfl", "pfl, 2 threads", "pfl_app", 2, False, ("pfl[pytorch]==0.6.0",)),
    )
}
JOBS = {"20": Job(20, 5, 2), "200": Job(200, 3, 1), "mixed": Job(50, 10, 2, mixed=True)}
WATCHED = Job(20, 2, 1)


@dataclass
class Contest:
    """What was measured: runs by job and contestant, peaks of memory, and what went wrong with whom."""

    retakes: int = 1
    """How often a run that others disturbed is taken again."""
    runs: dict[Job, dict[str, list[Measured]]] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def hold(self, contestants: Sequence[Contestant], jobs: Sequence[Job], cache: Path) -> None:
        """Install, watch the memory of everyone once, which warms up caches too, then take times in turn."""
        pythons: dict[str, Path] = {}
        for contestant in contestants:
            try:
                needs = contestant.needs
                pythons[contestant.name] = prepare(contestant.name, needs, cache) if needs else Path(sys.executable)
                peak = _run(contestant, WATCHED, pythons[contestant.name], memory=True).peak
            except PeerError as failure:
                self._drop(contestant, failure)
            else:
                self.peaks |= {contestant.name: peak} if peak else {}
        for job in jobs:
            able = [contestant for contestant in contestants if contestant.mixes or not job.mixed]
            self.runs[job] = {contestant.name: [] for contestant in able if contestant.name in pythons}
            for _ in range(job.repeats):
                for contestant in able:
                    if contestant.name not in self.problems:
                        self._time(contestant, job, pythons[contestant.name])

    def _time(self, contestant: Contestant, job: Job, python: Path) -> None:
        runs = self.runs[job]
        for _ in range(1 + self.retakes):
            try:
                measured = _run(contestant, job, python)
                _check(measured, job, runs[PROWD.name] or [measured])
            except PeerError as failure:
                self._drop(contestant, failure)
                return
            runs[contestant.name].append(measured)
            if measured.others <= QUIET:
                return

    def _drop(self, contestant: Contestant, failure: PeerError) -> None:
        if contestant == PROWD:
            raise failure
        self.problems[contestant.name] = str(failure)
        print(f"{contestant.title} is left out: {failure}", file=sys.stderr, flush=True)


def _run(contestant: Contestant, job: Job, python: Path, *, memory: bool = False) -> Measured:
    what = f"{job.rounds} rounds, {job.title}" + (", watching memory" if memory else "")
    print(f"{contestant.title}: {what} ... ", end="", file=sys.stderr, flush=True)
    command = [str(python), "-m", f"benchmarks.peers.{contestant.module}", "--steps", str(job.steps)]
    command += ["--rounds", str(job.rounds), "--threads", str(contestant.threads)]
    command += ["--mixed"] if job.mixed else []
    measured = measure(command, _environment(contestant), memory=memory)
    disturbed = measured.others > QUIET and not memory  # who watches memory is one of the others
    busy = f", while others had {measured.others:.0%} of the processor" if disturbed else ""
    print(f"{measured.whole:.1f} s{busy}", file=sys.stderr, flush=True)
    return measured


def _environment(contestant: Contestant) -> Mapping[str, str]:
    """Ours, with the budget of threads; byte code is kept, as it is for whoever runs a program twice."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, **SILENT, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(contestant.threads)}


def _check(measured: Measured, job: Job, reference: Sequence[Measured]) -> None:
    """See that the work was done: every local step, and to the same effect as in prowd."""
    steps, loss = work.CLIENTS * job.steps * job.rounds, reference[0].loss
    if (measured.steps, len(measured.rounds)) != (steps, job.rounds):
        found = f"{measured.steps} local steps in {len(measured.rounds)} rounds"
        raise PeerError(f"it took {found}; accepted: {steps} in {job.rounds}")
    if job.mixed and max(measured.accuracy, default=0.0) < work.ENOUGH:
        found = ", ".join(f"{accuracy:.3f}" for accuracy in measured.accuracy)
        raise PeerError(f"its accuracy after each round is {found}; accepted: {work.ENOUGH} in one of them")
    if not job.mixed and not 1 / ALIKE < measured.loss / loss < ALIKE:
        raise PeerError(f"its loss is {measured.loss:.3f}; accepted: within a factor {ALIKE} of prowd's {loss:.3f}")
