"""The runs of a comparison as evidence: ours, from results/, and the paper's printed numbers in the same form."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prowd.comparison import Outcome
from prowd.numbers.bits import Bitwidth
from prowd.runs.read import Record, find_records
from prowd.views.report.paper import AVERAGE, GAP, load

__all__ = ["Evidence", "Figure", "by_bits", "printed", "read_evidence"]

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
    """Read one comparison under results/; a run that did not measure all widths in its last round is not counted."""
    outcomes: dict[str, dict[int, Outcome]] = {}
    for record in find_records(folder)[0]:
        if record.summary is not None and _is_whole(record):
            found = Outcome.of(record.method, record.seed, record.summary)
            outcomes.setdefault(record.method, {})[record.seed] = found
    return Evidence(folder.name, outcomes, _last_peaks(folder / "peaks.csv"))


def _is_whole(record: Record) -> bool:
    """Whether a run is finished, and has measured every width at its end."""
    return record.is_finished and set(record.mix) <= set(record.lines[-1].accuracy.trained)


def _last_peaks(path: Path) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):  # in the order of rounds: the last one stays
                if row["width"] == "float32":
                    found.setdefault(row["method"], {})[int(row["seed"])] = float(row["near"])
    return found


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
