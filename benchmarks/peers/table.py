"""What a contest came to: a table to read, and the same as JSON. Figures of peers are ratios against prowd."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from benchmarks.peers import work
from benchmarks.peers.contest import CONTESTANTS, PROWD, QUIET, Contest, Job
from benchmarks.peers.environments import requirements
from benchmarks.peers.measure import Measured

__all__ = ["as_json", "as_text"]

WIDTH = 17
Column = Mapping[str, float]


def quiet(runs: Sequence[Measured]) -> list[Measured]:
    """The runs that nobody disturbed, or all where there is none."""
    return [run for run in runs if run.others <= QUIET] or list(runs)


def warm(runs: Sequence[Measured]) -> float:
    """Least seconds of a round after the first: what the machine does when nothing disturbs it."""
    return min(seconds for run in quiet(runs) for seconds in run.rounds[1:])


def whole(runs: Sequence[Measured]) -> float:
    """Least seconds from start to exit."""
    return min(run.whole for run in quiet(runs))


def processor(runs: Sequence[Measured]) -> float:
    """Least seconds of processor time of a whole command: what others do hardly changes it."""
    return min(run.processor for run in runs)


def rounds_to(run: Measured) -> int:
    """Rounds until the mixed federation is accurate enough."""
    return 1 + next(index for index, accuracy in enumerate(run.accuracy) if accuracy >= work.ENOUGH)


def reached(runs: Sequence[Measured]) -> float:
    """Least seconds of all rounds until then."""
    return min(sum(run.rounds[: rounds_to(run)]) for run in quiet(runs))


def columns(contest: Contest) -> dict[tuple[str, str], Column]:
    """Each measure of each job, by the names of the contestants that have it."""
    found: dict[tuple[str, str], Column] = {}
    for job, by_name in contest.runs.items():
        taken = {name: runs for name, runs in by_name.items() if runs}
        if job.mixed:
            found[job.title, "to accuracy"] = {name: reached(runs) for name, runs in taken.items()}
        found[job.title, "warm round"] = {name: warm(runs) for name, runs in taken.items()}
        found[job.title, "whole command"] = {name: whole(runs) for name, runs in taken.items()}
        found[job.title, "processor time"] = {name: processor(runs) for name, runs in taken.items()}
    if contest.peaks:
        found["", "peak memory"] = {name: peak / 2**20 for name, peak in contest.peaks.items()}
    return found


def as_text(contest: Contest) -> str:
    """The table, who is fastest, and whether all did the same."""
    found = columns(contest)
    names = [name for name in CONTESTANTS if any(name in column for column in found.values())]
    lines = [
        " " * 22 + "".join(f"{job:>{WIDTH}}" for job, _ in found),
        " " * 22 + "".join(f"{measure:>{WIDTH}}" for _, measure in found),
    ]
    for name in names:
        cells = [_cell(name, measure, column) for (_, measure), column in found.items()]
        lines.append(f"{CONTESTANTS[name].title:22}" + "".join(f"{cell:>{WIDTH}}" for cell in cells))
    closing = [_verdict(found), *_disturbed(contest), *(_effects(job, runs) for job, runs in contest.runs.items())]
    return "\n".join([*lines, "", *closing])


def _cell(name: str, measure: str, column: Column) -> str:
    if name not in column:
        return "-"
    text = f"{column[name]:.0f} MiB" if measure == "peak memory" else f"{column[name]:.2f} s"
    ratio = "" if name == PROWD.name or PROWD.name not in column else f" ×{column[name] / column[PROWD.name]:.2f}"
    return text + (ratio or " " * 6)


def _verdict(found: Mapping[tuple[str, str], Column]) -> str:
    ahead = [
        f"{CONTESTANTS[name].title} ({measure}, {job})"
        for (job, measure), column in found.items()
        if measure not in ("peak memory", "processor time")
        for name, value in column.items()
        if value < column.get(PROWD.name, 0.0)
    ]
    if ahead:
        return f"faster than prowd: {', '.join(ahead)}"
    return "prowd is the fastest in every warm round and every whole command"


def _disturbed(contest: Contest) -> list[str]:
    found = [
        f"{name} with {job.title} ({min(run.others for run in runs):.0%})"
        for job, by_name in contest.runs.items()
        for name, runs in by_name.items()
        if runs and all(run.others > QUIET for run in runs)
    ]
    return [f"not to be relied on, for others had part of the processor: {', '.join(found)}"] if found else []


def _effects(job: Job, runs: Mapping[str, Sequence[Measured]]) -> str:
    """What the work came to, which says that all did it."""
    if job.mixed:
        return "\n".join(_reached(name, job, found[-1]) for name, found in runs.items() if found)
    losses = ", ".join(f"{name} {found[-1].loss:.3f}" for name, found in runs.items() if found)
    steps = work.CLIENTS * job.steps * job.rounds
    return f"mean local loss of round {job.rounds} with {job.steps} steps: {losses}; {steps:,} steps counted in each"


def _reached(name: str, job: Job, run: Measured) -> str:
    accuracy = (
        f"{work.ENOUGH:.0%} accuracy after {rounds_to(run)} of {job.rounds} rounds, {run.accuracy[-1]:.1%} at the end"
    )
    return f"mixed, {name}: {accuracy}; a round {run.up[-1]:,} bytes up, {run.down[-1]:,} down"


def as_json(contest: Contest) -> dict[str, Any]:
    """Everything measured, and the ratios of the table."""
    ratios = {
        f"{measure}, {job}" if job else measure: {
            name: value / column[PROWD.name] for name, value in column.items() if PROWD.name in column
        }
        for (job, measure), column in columns(contest).items()
    }
    return {
        "work": {"clients": work.CLIENTS, "examples": work.EXAMPLES, "batch": work.BATCH, "side": work.SIDE},
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "requirements": {name: requirements(c.needs) for name, c in CONTESTANTS.items() if c.needs},
        "ratios": ratios,
        "jobs": [{**asdict(job), "contestants": _figures(runs)} for job, runs in contest.runs.items()],
        "peak_bytes": contest.peaks,
        "problems": contest.problems,
    }


def _figures(by_name: Mapping[str, Sequence[Measured]]) -> dict[str, Any]:
    return {
        name: {
            "least_warm": warm(runs),
            "median_warm": median(seconds for run in runs for seconds in run.rounds[1:]),
            "least_whole": whole(runs),
            "runs": [asdict(run) for run in runs],
        }
        for name, runs in by_name.items()
        if runs
    }
