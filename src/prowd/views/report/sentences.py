"""What the page says before it shows anything: the federation in a sentence, and the verdict in another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from prowd.comparison import Estimate, Row
from prowd.comparison.formats import interval, kilobytes
from prowd.runs.read import Record
from prowd.views.report.groups import Group

__all__ = ["caution", "count_runs", "describe", "verdict"]


def describe(group: Group) -> str:
    """The federation in a sentence."""
    config, record = group.first.config, group.first
    clients = ", ".join(f"{count} {width}" for width, count in record.mix.items()) or "unknown"
    seeds = sorted({one.seed for one in group.records})
    data = Path(str(config.get("data", "unknown"))).name
    if config.get("validation"):
        data += f" (measured on {config['validation']} training examples set aside)"
    if config.get("validation_clients"):
        data += f" (measured on {config['validation_clients']} people for validation)"
    done = sum(one.is_finished for one in group.records)
    return (
        f"{data}, clients: {clients}; {record.rounds} rounds, {config.get('uplink', 'ternary')} uplink, "
        f"{config.get('partition', 'iid')} partition; {count_runs(len(group.records))} ({done} finished), "
        f"seed{'s' * (len(seeds) != 1)} {', '.join(map(str, seeds))}."
    )


def verdict(group: Group) -> str:
    """What the runs say and no more: the best method against the baseline, or what the only method came to."""
    if not group.rows:
        return "No accuracy has been measured yet."
    if len(group.rows) == 1:
        return f"{_alone(group, group.rows[0])}{_state(group)}."
    paired = _paired(group)
    if not paired:
        return f"No method has a seed in common with {group.baseline}: nothing is decided{_state(group)}."
    method, difference = max(paired, key=lambda pair: pair[1].mean)
    return f"{_against(method, group.baseline, difference, len(paired))}{_state(group)}."


def caution(group: Group) -> str:
    """What a reader may not take from the verdict: the best of several was chosen after the fact."""
    paired = _paired(group)
    difference = max((one for _, one in paired), key=lambda one: one.mean, default=None)
    if difference is None or difference.half is None or len(paired) < 2:
        return ""
    return f"Named is the best of {len(paired)} methods; the 95 % interval makes no allowance for that choice."


def _paired(group: Group) -> list[tuple[str, Estimate]]:
    return [(row.method, row.difference) for row in group.rows if row.difference is not None]


def count_runs(number: int) -> str:
    """So many runs."""
    return f"{number} run{'s' * (number != 1)}"


def _against(method: str, baseline: str, difference: Estimate, among: int) -> str:
    """A method and the baseline. A mean over seeds is above another; whether the method is, the interval says."""
    points = f"{interval(difference, signed=True)} points of accuracy"
    if difference.mean > 0:
        text = f"{method} is above {baseline} by {points}"
    elif difference.mean < 0:
        best = f"No method's mean is above that of {baseline}: {method}, the next, is at {points}"
        text = best if among > 1 else f"{method} is below {baseline} by {points}"
    else:
        text = f"{method} is level with {baseline}, {points}"
    if difference.half is None:
        return f"{text}, with one seed: one seed decides nothing"
    sure = (
        "decided, the interval excludes zero" if difference.excludes_zero else "not decided, the interval includes zero"
    )
    return f"{text} ({difference.count} seeds, paired): {sure}"


def _alone(group: Group, row: Row) -> str:
    """What a method came to: accuracy by width, rounds and bytes."""
    widths = [f"{interval(found)} % at {width}" for width, found in row.widths.items()]
    shown = [*widths, f"{interval(row.average)} % over all clients"] if len(widths) != 1 else widths
    counted: Sequence[Record] = group.counted[row.method]
    rounds = max(len(record.lines) for record in counted)
    moved = fmean(record.moved("up") + record.moved("down") for record in counted)
    sent = f"{moved / 1e6:,.1f} MB" if moved >= 1e6 else kilobytes(moved)
    text = f"{row.method} came to {', '.join(shown)} in {rounds} round{'s' * (rounds != 1)} and {sent}"
    return f"{text} a run ({row.seeds} seeds)" if row.seeds > 1 else f"{text}; one seed decides nothing"


def _state(group: Group) -> str:
    """How much of the federation a verdict is about."""
    done = sum(record.is_finished for record in group.records)
    if done == len(group.records):
        return ""
    last = len(next(iter(group.counted.values()))[0].lines)
    return f" ({done} of {len(group.records)} runs are finished)" if done else f" (so far: round {last})"
