"""The paper's claims, one by one, against the runs under results/."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prowd.bits import Bitwidth
from prowd.comparison import Estimate, Outcome, estimate
from prowd.comparison.formats import interval
from prowd.records import find_records
from prowd.report.paper import AVERAGE, GAP, load

__all__ = ["Claim", "Evidence", "changes", "claims", "printed", "read_evidence", "to_markdown"]

BASELINES = (
    "local",
    "fedavg",
    "fedprox",
    "fedpaq",
    "fedcom",
    "fedcomgate",
    "fedgroupedavg",
    "fedgroupedavg-asymmetric",
)
HIGH, LOW = "float32", "int8"
Figure = Callable[[Outcome], float]


@dataclass(frozen=True)
class Evidence:
    """The runs of one comparison: what each method came to with each seed."""

    name: str
    outcomes: Mapping[str, Mapping[int, Outcome]]
    peaks: Mapping[str, Mapping[int, float]]
    """Percent of the Float32 clients' last convolution near a ternary level, in the last round, by method and seed."""

    def paired(self, one: str, other: str, figure: Figure) -> list[float]:
        """The figure of one method minus that of another, seed by seed."""
        mine, theirs = self.outcomes.get(one, {}), self.outcomes.get(other, {})
        return [figure(mine[seed]) - figure(theirs[seed]) for seed in mine if seed in theirs]


@dataclass(frozen=True)
class Claim:
    """Something that is so if a difference is above zero."""

    name: str
    what: str
    differences: Sequence[float]
    words: tuple[str, str] = ("holds", "does not hold")
    """What to call it when the difference is above zero, and when it is below."""

    @property
    def found(self) -> Estimate | None:
        """The mean difference and its 95 % confidence interval over seeds."""
        return estimate(self.differences) if self.differences else None

    @property
    def verdict(self) -> str:
        """Whether the interval decides that the difference is above zero, or below."""
        found = self.found
        if found is None or found.half is None:
            return "too few runs"
        if not found.excludes_zero:
            return "not decided"
        return self.words[0] if found.mean > 0 else self.words[1]


def read_evidence(folder: Path) -> Evidence:
    """Read one comparison under results/."""
    outcomes: dict[str, dict[int, Outcome]] = {}
    for record in find_records(folder)[0]:
        if record.is_finished and record.summary is not None:
            found = Outcome.of(record.method, record.seed, record.summary)
            outcomes.setdefault(record.method, {})[record.seed] = found
    return Evidence(folder.name, outcomes, _last_peaks(folder / "peaks.csv"))


def printed(name: str) -> Evidence:
    """What the paper prints for the federation of a preset, as if it were one run of each method."""
    preset = name.removesuffix("-cpu")
    outcomes: dict[str, dict[int, Outcome]] = {}
    for table in load():  # the ablations are in Table 3, the rest of it in Table 1 as well
        if table.name in (preset, preset.replace("table1", "table3")):
            for method, row in table.methods.items():
                widths = {width: cell.value for width, cell in row.items() if width not in (GAP, AVERAGE)}
                found = Outcome(method, 0, widths, {}, row[AVERAGE].value, 0.0, 0.0, 0.0, "")
                outcomes.setdefault(method, {0: found})
    return Evidence(name, outcomes, {})


def _last_peaks(path: Path) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):  # in the order of rounds: the last one stays
                if row["width"] == HIGH:
                    found.setdefault(row["method"], {})[int(row["seed"])] = float(row["near"])
    return found


def claims(evidence: Evidence) -> list[Claim]:
    """What the paper says that this comparison can decide."""
    widths = {width for runs in evidence.outcomes.values() for run in runs.values() for width in run.trained}
    made = [_average(evidence, "prowd", other) for other in BASELINES if evidence.paired("prowd", other, _mean)]
    if "prowd-deq" in evidence.outcomes:
        pairs = [("prowd-deq", "fedavg"), ("prowd-swa", "fedavg"), ("prowd", "prowd-deq"), ("prowd", "prowd-swa")]
        made += [_average(evidence, one, other) for one, other in pairs]
    if HIGH in widths and LOW in widths:
        made += _mixed(evidence)
    ordered = sorted(widths, key=_bits)
    made += [_of_width(evidence, "prowd", "fedavg", width) for width in ordered]
    if "prowd-plus" in evidence.outcomes:  # our own, and our own goal
        rivals = [name for name in ("fedavg", "fedpaq", "prowd") if name in evidence.outcomes]
        made += [_of_width(evidence, "prowd-plus", other, width) for other in rivals for width in ordered]
    return made


def changes(before: Evidence, after: Evidence) -> list[Claim]:
    """What the settings of a comparison change in the methods that it shares with another, seed by seed."""
    made: list[Claim] = []
    for method, runs in after.outcomes.items():
        others = before.outcomes.get(method, {})
        seeds = [seed for seed in runs if seed in others]
        for width in sorted({width for run in runs.values() for width in run.trained}, key=_bits):
            differences = [runs[seed].trained[width] - others[seed].trained[width] for seed in seeds]
            made.append(Claim(after.name, f"{width} of {method}, with − without", differences, ("better", "worse")))
    return made


def _mixed(evidence: Evidence) -> list[Claim]:
    """Claims about integer and Float32 clients in one federation."""
    grouped, name = "fedgroupedavg", evidence.name
    peaks, apart = evidence.peaks.get("fedavg", {}), evidence.peaks.get(grouped, {})
    freed = evidence.paired(grouped, "fedavg", _at(HIGH))
    lost = evidence.paired(grouped, "fedavg", _at(LOW))
    both = zip(freed, lost, strict=True)
    return [
        Claim(name, "gap of FedGroupedAvg − gap of ProWD", evidence.paired(grouped, "prowd", _gap)),
        Claim(name, "Float32 under FedGroupedAvg − under FedAvg", freed),
        Claim(name, "what mixing costs Float32 − what it costs Int8", [a - b for a, b in both]),
        Claim(
            name,
            "Float32 weights near a ternary level, FedAvg − FedGroupedAvg",
            [peaks[seed] - apart[seed] for seed in peaks if seed in apart],
        ),
    ]


def _average(evidence: Evidence, one: str, other: str) -> Claim:
    return Claim(evidence.name, f"average of {one} − {other}", evidence.paired(one, other, _mean))


def _of_width(evidence: Evidence, one: str, other: str, width: str) -> Claim:
    return Claim(evidence.name, f"{width} of {one} − {other}", evidence.paired(one, other, _at(width)))


def _mean(outcome: Outcome) -> float:
    return outcome.average


def _at(width: str) -> Figure:
    return lambda outcome: outcome.trained[width]


def _gap(outcome: Outcome) -> float:
    """How far apart the highest and the lowest width are, whichever is ahead."""
    widths = sorted(outcome.trained, key=_bits)
    return abs(outcome.trained[widths[-1]] - outcome.trained[widths[0]])


def _bits(width: str) -> int:
    return Bitwidth.parse(width).bits


def to_markdown(found: Iterable[Claim]) -> str:
    """A row for each claim."""
    lines = ["| comparison | difference | paper | ours | |", "|---|---|---:|---:|---|"]
    paper: dict[str, dict[str, Claim]] = {}
    for claim in found:
        if claim.name not in paper:
            paper[claim.name] = {theirs.what: theirs for theirs in claims(printed(claim.name))}
        theirs = paper[claim.name].get(claim.what)
        shown = [_shown(theirs.found if theirs else None), _shown(claim.found), claim.verdict]
        lines.append(f"| {claim.name} | {claim.what} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _shown(found: Estimate | None) -> str:
    return "" if found is None else interval(found, signed=True)
