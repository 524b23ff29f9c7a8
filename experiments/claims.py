"""The paper's claims, one by one, each a difference that should be above zero; and what single choices change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from experiments.reading import Evidence, Figure, by_bits, printed
from prowd.comparison import Estimate, Outcome, estimate
from prowd.comparison.formats import interval

__all__ = ["BASELINES", "Claim", "changes", "claims", "goal", "to_markdown", "together"]

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
ALONE = ("prowd-deq", "prowd-swa")
PARTS = (*((part, "fedavg") for part in ALONE), *(("prowd", part) for part in ALONE))
OURS = "prowd-plus"
MORE = 1.01  # as many bytes, but for the length of a name
HOLDS, FAILS, OPEN, FEW = "holds", "does not hold", "not decided", "too few runs"


@dataclass(frozen=True)
class Claim:
    """Something that is so if a difference is above zero."""

    name: str
    what: str
    differences: Sequence[float]
    words: tuple[str, str] = (HOLDS, FAILS)
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
            return FEW
        if not found.excludes_zero:
            return OPEN
        return self.words[0] if found.mean > 0 else self.words[1]


def claims(evidence: Evidence) -> list[Claim]:
    """What the paper says that this comparison can decide, with the methods that it has so far."""
    there = evidence.outcomes
    made = [_average(evidence, "prowd", other) for other in BASELINES]
    made += [_average(evidence, one, other) for one, other in PARTS]
    if "float32" in evidence.widths:
        made += _mixed(evidence)
    made += [_of_width(evidence, "prowd", "fedavg", width) for width in evidence.widths]
    measured = [method for method, runs in there.items() if all(run.received for run in runs.values())]
    made += [_as_received(evidence, one, "fedavg") for one in ("prowd", *ALONE) if {one, "fedavg"} <= set(measured)]
    return [claim for claim in made if claim.differences]


def _mixed(evidence: Evidence) -> list[Claim]:
    """Claims about integer and Float32 clients in one federation, against federations of one width each."""
    grouped, name, (low, *_, high) = "fedgroupedavg", evidence.name, evidence.widths
    peaks, apart = evidence.peaks.get("fedavg", {}), evidence.peaks.get(grouped, {})
    freed, lost = (evidence.paired(grouped, "fedavg", _at(width)) for width in (high, low))
    near = [peaks[seed] - apart[seed] for seed in peaks if seed in apart]
    both = [one - other for one, other in zip(freed, lost, strict=True)]
    return [
        Claim(name, "size of the gap, FedGroupedAvg − ProWD", evidence.paired(grouped, "prowd", _gap)),
        Claim(name, f"{high} under FedGroupedAvg − under FedAvg", freed),
        Claim(name, f"the same of {high} − of {low}", both),
        Claim(name, f"{high} weights near a ternary level, FedAvg − FedGroupedAvg", near),
    ]


def goal(evidence: Evidence, rivals: Mapping[str, Mapping[int, Outcome]]) -> list[Claim]:
    """What our own method is held to: to be above the runs of every rival at every width, at no more bytes than theirs.

    Of a rival without runs there is a claim as well, which nothing decides.
    """
    ours = evidence.outcomes.get(OURS, {})
    both = replace(evidence, outcomes={**rivals, OURS: ours})
    made = [(label, _of_width(both, OURS, label, width)) for label in rivals for width in evidence.widths]
    return [replace(claim, what=f"{claim.what}{_sent(rivals[label], ours)}") for label, claim in made]


def _sent(theirs: Mapping[int, Outcome], ours: Mapping[int, Outcome]) -> str:
    """A remark on a rival that sends more."""
    up, mine = (fmean(run.bytes_up for run in runs.values()) if runs else 0.0 for runs in (theirs, ours))
    return f" (sends {100 * (up / mine - 1):.0f} % more)" if mine and up > MORE * mine else ""


def together(found: Sequence[Claim]) -> str:
    """The verdict on all of some claims at once."""
    verdicts = [claim.verdict for claim in found]
    return next((verdict for verdict in (FAILS, FEW, OPEN) if verdict in verdicts), HOLDS)


def changes(before: Evidence, after: Evidence, rivals: Sequence[str] = ()) -> list[Claim]:
    """What a comparison's methods come to against themselves in another, and against ``rivals`` there, by seed."""
    made: list[Claim] = []
    for method, runs in after.outcomes.items():
        for other in dict.fromkeys((method, *rivals)):
            if (others := before.outcomes.get(other)) is None:
                continue
            what = f"{method}, with − without" if other == method else f"{method} − {other}"
            for width in sorted(set(after.widths) & set(before.widths), key=by_bits):
                differences = [
                    runs[seed].trained[width] - others[seed].trained[width] for seed in runs if seed in others
                ]
                made.append(Claim(after.name, f"{width} of {what}", differences, ("better", "worse")))
    return made


def _average(evidence: Evidence, one: str, other: str) -> Claim:
    return Claim(evidence.name, f"average of {one} − {other}", evidence.paired(one, other, lambda run: run.average))


def _as_received(evidence: Evidence, one: str, other: str) -> Claim:
    """The same of the models that clients got, before they trained them: the paper does not say which it measures."""
    differences = evidence.paired(one, other, lambda run: run.average_received)
    return Claim(evidence.name, f"average of {one} − {other}, as received", differences)


def _of_width(evidence: Evidence, one: str, other: str, width: str) -> Claim:
    return Claim(evidence.name, f"{width} of {one} − {other}", evidence.paired(one, other, _at(width)))


def _at(width: str) -> Figure:
    return lambda run: run.trained[width]


def _gap(run: Outcome) -> float:
    """How far apart the highest and the lowest width are, whichever is ahead."""
    widths = sorted(run.trained, key=by_bits)
    return abs(run.trained[widths[-1]] - run.trained[widths[0]])


def to_markdown(found: Iterable[Claim]) -> str:
    """A row for each claim."""
    lines = ["| comparison | difference | seeds | paper | ours | |", "|---|---|---:|---:|---:|---|"]
    paper: dict[str, dict[str, Claim]] = {}
    for claim in found:
        if claim.name not in paper:
            paper[claim.name] = {theirs.what: theirs for theirs in claims(printed(claim.name))}
        theirs = paper[claim.name].get(claim.what)
        shown = [_shown(theirs.found if theirs else None), _shown(claim.found), claim.verdict]
        lines.append(f"| {claim.name} | {claim.what} | {len(claim.differences)} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _shown(found: Estimate | None) -> str:
    return "" if found is None else interval(found, signed=True)
