"""Runs as they are found on a disk: whole or under way, of this version or an older one, sound or damaged.

Whoever only looks at runs reads them here. What cannot be read is left out and remarked upon; a directory of which
nothing can be read is an error.
"""

from __future__ import annotations

import json
import logging
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os.path import isdir, isfile
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from prowd.config.tables import check_depth
from prowd.errors import ConfigError, RunError
from prowd.federation.report import RoundReport
from prowd.numbers.bits import Bitwidth, parse_mix
from prowd.runs.summary import latest, weighted_mean

__all__ = [
    "PlanRecord",
    "Record",
    "find_records",
    "read_lines",
    "read_plan",
    "read_record",
    "read_sessions",
    "read_summary",
    "run_folders",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """One run: its settings as they are in config.toml, its rounds so far, its summary once it is finished."""

    path: Path
    config: Mapping[str, Any]
    lines: Sequence[RoundReport]
    summary: Mapping[str, Any] | None
    sessions: Sequence[Mapping[str, Any]]
    damage: Sequence[str] = field(default_factory=tuple)
    """What cannot be read, in words."""

    @property
    def name(self) -> str:
        """The name of the configuration."""
        return str(self.config.get("name", self.path.name))

    @property
    def method(self) -> str:
        """The name of the method; of one in a file of its own, as an older version left it, the name of its class."""
        named = (self.summary or {}).get("method") or next((s["method"] for s in self.sessions if "method" in s), None)
        return str(named or str(self.config.get("method", "fedavg")).rpartition(":")[2])

    @property
    def seed(self) -> int:
        """The seed."""
        found = self.config.get("seed", 0)
        return found if isinstance(found, int) else 0

    @property
    def rounds(self) -> int:
        """Rounds that the run is to have; at least those that it has."""
        found = self.config.get("rounds", 0)
        return max(found if isinstance(found, int) else 0, len(self.lines))

    @property
    def is_finished(self) -> bool:
        """Whether all rounds are made and summed up."""
        summed_up = None if self.summary is None else self.summary.get("rounds", len(self.lines))
        return summed_up == len(self.lines) == self.rounds

    @property
    def remarks(self) -> list[str]:
        """What is missing or damaged, in words."""
        made = f"{len(self.lines)} of {self.rounds} rounds are made" if self.lines else "no round is finished yet"
        return [*self.damage, *([] if self.is_finished else [made])]

    @cached_property
    def widths(self) -> Mapping[int, str]:
        """The width of each client."""
        try:
            return dict(enumerate(map(str, parse_mix(str(self.config.get("clients", ""))))))
        except ConfigError:
            return {}

    @cached_property
    def mix(self) -> Mapping[str, int]:
        """Clients of each width, low widths first."""
        counts = Counter(self.widths.values())
        return {width: counts[width] for width in sorted(counts, key=Bitwidth.parse)}

    def latest(self, when: str) -> dict[str, float]:
        """The last measured accuracy of each width, "received" or "trained"."""
        found = latest(self.lines, when)
        return {width: found[width] for width in self.mix or found if width in found}

    def average(self, accuracies: Mapping[str, float]) -> float | None:
        """Mean over all clients whose width was measured."""
        return weighted_mean({width: self.mix.get(width, 1) for width in accuracies}, accuracies)

    def moved(self, way: str) -> int:
        """Bytes of all clients so far, "up" or "down"."""
        return sum(sum(getattr(line.traffic, way).values()) for line in self.lines)


@dataclass(frozen=True)
class PlanRecord:
    """What comparison.json says: the runs that are to be made, the baseline, and which runs failed."""

    runs: Mapping[str, tuple[str, int]]
    baseline: str
    failures: Mapping[str, str]


def read_plan(folder: Path) -> PlanRecord | None:
    """The plan of a comparison; None where there is none that can be read."""
    try:
        found = json.loads((folder / "comparison.json").read_text("utf-8"))
        runs = {str(run["folder"]): (str(run["method"]), int(run["seed"])) for run in found["runs"]}
        failures = {str(name): str(reason) for name, reason in found.get("failures", {}).items()}
        return PlanRecord(runs, str(found["baseline"]), failures)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def find_records(folder: Path) -> tuple[list[Record], list[str]]:
    """The run that a folder is, or all runs one or two levels down, and what is to be said of unreadable ones."""
    if not isdir(folder):  # noqa: PTH112 - of a folder that is locked it says no, where Path.is_dir raises
        raise RunError(f"{folder} is not a directory; accepted: that of a run or of a comparison")
    paths = run_folders(folder)
    if not paths:
        accepted = "a directory made by prowd run or prowd compare"
        raise RunError(f"{folder} holds no run: no config.toml in it or in its folders; accepted: {accepted}")
    records: list[Record] = []
    problems: list[str] = []
    for path in paths:
        try:
            records.append(read_record(path))
        except RunError as error:
            problems.append(str(error))
    if not records:
        raise RunError("; ".join(problems))
    return records, problems


def run_folders(folder: Path, levels: int = 2) -> list[Path]:
    """The folder itself if it is a run, or else the runs in it, so many levels down; within a run there are none."""
    if isfile(folder / "config.toml"):  # noqa: PTH113 - as above
        return [folder]
    inner = sorted(folder.glob("*")) if levels else []
    return [path for place in inner for path in run_folders(place, levels - 1)]


def read_record(path: Path) -> Record:
    """Read one run directory."""
    try:
        config = tomllib.loads((path / "config.toml").read_text("utf-8"))
        check_depth(config)
    except (OSError, ValueError, RecursionError, ConfigError) as error:
        raise RunError(f"{path / 'config.toml'} cannot be read: {error}") from error
    lines, damage = read_lines(path / "rounds.jsonl")
    summary = read_summary(path / "summary.json", damage)
    return Record(path, config, lines, summary, read_sessions(path / "provenance.json"), damage)


def read_lines(path: Path) -> tuple[list[RoundReport], list[str]]:
    """The rounds of a rounds.jsonl up to the first line that is damaged, and what is damaged, in words.

    What follows a damaged line is left out, because it may be of another past.
    """
    lines: list[RoundReport] = []
    try:
        texts = path.read_bytes().splitlines()
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"rounds.jsonl cannot be read: {error}"]
    for number, text in enumerate(texts, 1):
        try:
            line = RoundReport.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))[:80].encode("unicode_escape").decode()  # whatever is in it
            place = key or "the line"
            return lines, [f"line {number} of rounds.jsonl is damaged ({place}: {first['msg']}); the rest is left out"]
        if line.round != number:
            return lines, [f"line {number} of rounds.jsonl is of round {line.round}; the rest is left out"]
        lines.append(line)
    return lines, []


def read_sessions(path: Path) -> list[dict[str, Any]]:
    """What a provenance.json says of the sessions that made a run; none where it is not there or damaged."""
    try:
        found = json.loads(path.read_text("utf-8"))["sessions"]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("%s is damaged: %r", path, error)
        return []
    return [session for session in found if isinstance(session, dict)] if isinstance(found, list) else []


def read_summary(path: Path, damage: list[str]) -> dict[str, Any] | None:
    """What a summary.json says; None where it is not there or damaged, which is added to ``damage``."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        damage.append(f"summary.json cannot be read: {error}")
        return None
    if not isinstance(found, dict):
        damage.append("summary.json is no table")
        return None
    return found
