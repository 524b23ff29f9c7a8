"""The runs of a comparison as evidence: ours, from results/, and the paper's printed numbers in the same form."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prowd.comparison import Outcome
from prowd.numbers.bits import Bitwidth
from prowd.views.report.paper import AVERAGE, GAP, load

__all__ = ["Evidence", "Figure", "by_bits", "outcome_of", "printed", "read_evidence", "read_rows"]

RUNS, PROVENANCE = "runs.csv", "provenance.csv"
NEAR_A_LEVEL = "near a level"
LAST = "weights_sha256"

Figure = Callable[[Outcome], float]


@dataclass(frozen=True)
class Evidence:
    """The runs of one comparison: what each method came to with each seed."""

    name: str
    outcomes: Mapping[str, Mapping[int, Outcome]]
    peaks: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Percent of the Float32 clients' last convolution near a ternary level, in the last round, by method and seed."""

    @property
    def widths(self) -> list[str]:
        """The widths that every run has measured, low ones first."""
        found = [set(run.trained) for runs in self.outcomes.values() for run in runs.values()]
        return sorted(set.intersection(*found), key=by_bits) if found else []

    def paired(self, one: str, other: str, figure: Figure) -> list[float]:
        """The figure of one method minus that of another, seed by seed."""
        mine, theirs = self.outcomes.get(one, {}), self.outcomes.get(other, {})
        return [figure(mine[seed]) - figure(theirs[seed]) for seed in mine if seed in theirs]


def by_bits(width: str) -> int:
    """For sorting."""
    return Bitwidth.parse(width).bits


def read_evidence(folder: Path) -> Evidence:
    """Read one comparison under results/."""
    outcomes: dict[str, dict[int, Outcome]] = {}
    peaks: dict[str, dict[int, float]] = {}
    for row in read_rows(folder / RUNS):
        method, seed = row["method"], int(row["seed"])
        outcomes.setdefault(method, {})[seed] = outcome_of(row)
        if near := row.get(f"float32 {NEAR_A_LEVEL}"):
            peaks.setdefault(method, {})[seed] = float(near)
    return Evidence(folder.name, outcomes, peaks)


def read_rows(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file; none if there is no such file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def outcome_of(row: Mapping[str, str]) -> Outcome:
    """A line of runs.csv."""

    def measured(state: str) -> dict[str, float]:
        found = {name.removesuffix(f" {state}"): text for name, text in row.items() if name.endswith(f" {state}")}
        return {width: float(text) for width, text in found.items() if text and width != "average"}

    return Outcome(
        method=row["method"],
        seed=int(row["seed"]),
        trained=measured("trained"),
        received=measured("received"),
        average=float(row["average trained"]),
        average_received=float(row["average received"]),
        bytes_up=float(row["bytes up a round"]),
        bytes_down=float(row["bytes down a round"]),
        weights_sha256=row["weights_sha256"],
    )


def printed(name: str) -> Evidence:
    """What the paper prints for the federation of a preset, as if it were one run of each method."""
    preset = name.removesuffix("-cpu")
    outcomes: dict[str, dict[int, Outcome]] = {}
    for table in load():  # the ablations are in Table 3, the rest of it in Table 1 as well
        if table.name in (preset, preset.replace("table1", "table3")):
            for method, row in table.methods.items():
                widths = {width: cell.mean for width, cell in row.items() if width not in (GAP, AVERAGE)}
                found = Outcome(method, 0, widths, {}, row[AVERAGE].mean, 0.0, 0.0, 0.0, "")
                outcomes.setdefault(method, {0: found})
    return Evidence(name, outcomes)
