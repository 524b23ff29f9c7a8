"""The accuracy of a group of runs, drawn, and the bytes that one of its clients sends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from prowd.runs.read import Line, Record
from prowd.views.report.groups import Curve, Group, curve
from prowd.views.report.style import Drawing, colour, dash, legend_below, panels

__all__ = ["accuracy_curves", "bytes_a_client"]

AVERAGE = "all clients"
MARKS = "osD^vPX"  # seven, so that they do not go round with the eight colours
FEWEST = 3  # seeds from which on intervals are drawn: of two they are wider than all there is to see
Measure = Callable[[Record, Line], float | None]


def accuracy_curves(group: Group, against: str) -> Drawing | None:
    """Accuracy of each width and of all clients against "rounds" or "megabytes"."""
    if not any(record.lines for record in group.records) or not group.widths:
        return None
    shown = [*group.widths, AVERAGE] if len(group.widths) > 1 else group.widths
    figure, grid = panels(len(shown), height=2.2 + _for_legend(group))
    for axes, width in zip(grid, shown, strict=True):
        _lines(axes, group, width, against)
        axes.set_title(width)
        axes.set_xlabel("round" if against == "rounds" else "MB sent, up and down")
    grid[0].set_ylabel("accuracy, %")
    legend_below(figure, grid[0])
    over = "the rounds" if against == "rounds" else "the megabytes that all clients sent and received"
    if against == "megabytes" and any(_is_silent(group, records) for records in group.shown.values()):
        over += " (a level line: the final accuracy of a method that sends no weights)"
    single = ", and as received," if _is_single(group) else ""
    measured = group.measured.capitalize()
    caption = f"{measured} accuracy per width after local training{single} against {over}{_band(group)}."
    note = "All clients: as Figure 4 of the paper" if against == "rounds" else ""
    return Drawing(f"accuracy-{against}", caption, figure, note)


def bytes_a_client(records: Sequence[Record], width: str, way: str) -> float:
    """Mean bytes of one client of a width in a round that it takes part in; all clients of a width send alike."""
    moved, clients = 0, 0.0
    for record in records:
        for line in record.lines:
            moved += getattr(line.traffic, way).get(width, 0)
            clients += _members(record, line, width, way)
    return moved / clients if clients else 0.0


def _members(record: Record, line: Line, width: str, way: str) -> float:
    """Clients of a width that sent, or were sent, something; its share of those asked where no client is named."""
    if line.traffic.clients:
        side = ("up", "down").index(way)
        sent = [moved[side] for client, moved in line.traffic.clients.items() if record.widths.get(client) == width]
        return sum(size > 0 for size in sent)
    total = sum(record.mix.values())
    asked = record.mix.get(width, 0) * min((line.clients.asked or total) / total, 1) if total else 0
    lost = sum(one.width == width and not one.attempt for one in line.clients.lost)
    return max(asked - lost * (way == "up"), 0)


def _lines(axes: Axes, group: Group, width: str, against: str) -> None:
    """A line for each method; of a single run also the model as received."""
    for number, (method, records) in enumerate(group.shown.items()):
        trained = curve(records, _measure(width, "trained"))
        if against == "megabytes" and trained.values and _is_silent(group, records):
            axes.axhline(
                trained.values[-1].mean, color=colour(number), linestyle=dash(2), linewidth=1.2, label=_legible(method)
            )
            continue
        _line(axes, trained, against, number, method)
        if _is_single(group):
            _line(axes, curve(records, _measure(width, "received")), against, number + 1, "as received")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=against == "rounds"))
    _fit_to_means(axes)


def _line(axes: Axes, found: Curve, against: str, number: int, label: str) -> None:
    places = list(found.rounds if against == "rounds" else found.megabytes)
    means = [value.mean for value in found.values]
    axes.plot(
        places, means, color=colour(number), linestyle=dash(number), label=_legible(label),
        marker=MARKS[number % len(MARKS)], markersize=3.5, markevery=max(1, len(places) // 8),
    )  # fmt: skip
    if all(value.count >= FEWEST for value in found.values):
        halves = [value.half or 0.0 for value in found.values]
        low, high = ([mean + sign * half for mean, half in zip(means, halves, strict=True)] for sign in (-1, 1))
        axes.fill_between(places, low, high, color=colour(number), alpha=0.15, linewidth=0)


def _legible(label: str) -> str:
    """A name for a legend, which leaves out those that begin with an underscore."""
    return f" {label}" if label.startswith("_") else label


def _measure(width: str, when: str) -> Measure:
    def measured(record: Record, line: Line) -> float | None:
        accuracies = getattr(line.accuracy, when)
        if width == AVERAGE:
            average = record.average(accuracies) if set(accuracies) >= set(record.mix) else None
            return None if average is None else 100 * average
        return 100 * accuracies[width] if width in accuracies else None

    return measured


def _is_single(group: Group) -> bool:
    return sum(map(len, group.shown.values())) == 1


def _for_legend(group: Group) -> float:
    """Inches that the legend of many methods takes."""
    return 0.18 * max(0, -(-len(group.shown) // 3) - 1)


def _fit_to_means(axes: Axes) -> None:
    """Show all means; bands of few seeds may be wider than all accuracies there are."""
    means = [
        float(y) for line in axes.get_lines() for y in np.asarray(line.get_ydata(), dtype=float) if math.isfinite(y)
    ]
    if means:
        margin = max(0.08 * (max(means) - min(means)), 1.0)
        axes.set_ylim(max(min(means) - margin, 0.0), min(max(means) + margin, 100.5))


def _is_silent(group: Group, records: Sequence[Record]) -> bool:
    """Whether a method sends next to nothing, as local training does, which reports its accuracy only."""
    most = max((_moved(others) for others in group.shown.values()), default=0.0)
    return _moved(records) < most / 100


def _moved(records: Sequence[Record]) -> float:
    """Bytes of a run, on average."""
    return sum(record.moved("up") + record.moved("down") for record in records) / max(len(records), 1)


def _band(group: Group) -> str:
    seeds = max(map(len, group.shown.values()), default=0)
    bands = ", bands: 95 % confidence interval" if seeds >= FEWEST else ""
    return f"; mean over seeds{bands}" if seeds > 1 else ""
