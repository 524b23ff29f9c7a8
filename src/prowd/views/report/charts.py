"""What is followed over the rounds, drawn: the accuracy of a group of runs, and the masks of ProWD."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from prowd.federation.report import RoundReport
from prowd.runs.read import Record
from prowd.views.report.groups import Group, curve
from prowd.views.report.live import Chart, Line, Panel
from prowd.views.report.style import Drawing, legend_below, look, panels

__all__ = ["accuracy_curves", "mask_curves"]

AVERAGE = "all clients"
SILENT = "local"  # the method that sends no weights, only its accuracy
MARKS = "osD^vPX"  # seven, so that they do not go round with the eight colours
FEWEST = 3  # seeds from which on intervals are drawn: of two they are wider than all there is to see
MOST_ON_PAGE = 120  # points of a line in the page's own copy of a figure: a panel is 200 pixels wide on paper
Measured = Callable[[Record, RoundReport], float | None]


def accuracy_curves(group: Group, against: str) -> Drawing | None:
    """Accuracy of each width and of all clients against "rounds" or "megabytes"."""
    if not any(record.lines for record in group.records) or not group.widths:
        return None
    shown = [*group.widths, AVERAGE] if len(group.widths) > 1 else group.widths
    chart = Chart([_accuracy(group, width) for width in shown], against)
    over = "the rounds" if against == "rounds" else "the megabytes that all clients sent and received"
    if against == "megabytes" and SILENT in group.shown:
        over += " (a level line: the final accuracy of a method that sends no weights)"
    single = ", and as received," if _is_single(group) else ""
    config = group.first.config
    measured = "Validation" if config.get("validation") or config.get("validation_clients") else "Test"
    caption = f"{measured} accuracy per width after local training{single} against {over}{_band(group)}."
    note = "All clients: as Figure 4 of the paper" if against == "rounds" else ""
    means = "after fewer rounds" if against == "rounds" else "for fewer bytes"
    reading = f"Higher is better; a line that rises farther to the left is as accurate {means}."
    return _drawing(f"accuracy-{against}", caption, chart, note, reading)


def mask_curves(group: Group) -> Drawing | None:
    """What the masks of selective aggregation keep, and what that does to the angle between both sides."""
    parts = {
        "share that is kept": "kept",
        "cosine before the mask": "cosine_before",
        "cosine after the mask": "cosine_after",
    }
    found = {title: _lines(group, _of_masks(key)) for title, key in parts.items()}
    noted = {title: [line for line in lines if line.curve.values] for title, lines in found.items()}
    shown = [Panel(title, lines) for title, lines in noted.items() if lines]
    if not shown:
        return None
    chart = Chart(shown, measure="mean over the tensors", unit="", bounds=None, margin=0.02)
    caption = (
        "The masks of selective weight aggregation (Eq. 8): the share of entries at which low-bit clients count, and "
        "the cosine between the movements of the low-bit and of the high-bit side before and after the mask; mean "
        f"over the tensors{_band(group)}."
    )
    reading = (
        "Where little is kept, the high-bit clients alone decide most entries; the farther the cosine after the mask "
        "is above the one before, the more of what low-bit clients pull another way has been left out."
    )
    return _drawing("masks", caption, chart, reading=reading)


def _drawing(name: str, caption: str, chart: Chart, note: str = "", reading: str = "") -> Drawing:
    small = _figure(chart.thinned(MOST_ON_PAGE)) if chart.longest > MOST_ON_PAGE else None
    return Drawing(name, caption, _figure(chart), note, reading, chart, small)


def _figure(chart: Chart) -> Figure:
    """The figure for paper: the chart's lines, panel by panel."""
    labels = {line.label for panel in chart.panels for line in panel.lines}
    figure, grid = panels(len(chart.panels), height=2.2 + 0.18 * max(0, -(-len(labels) // 3) - 1))  # and the legend
    for axes, panel in zip(grid, chart.panels, strict=True):
        for line in panel.lines:
            _draw(axes, line, chart.against)
        axes.set_title(panel.title)
        axes.set_xlabel(chart.across)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=chart.against == "rounds"))
        _fit_to_means(axes, chart)
    grid[0].set_ylabel(chart.measure)
    legend_below(figure, grid[0])
    return figure


def _accuracy(group: Group, width: str) -> Panel:
    """A line for each method; of a single run also the model as received."""
    lines = _lines(group, _measure(width, "trained"))
    if _is_single(group):
        lines += [Line("as received", 1, one.curve) for one in _lines(group, _measure(width, "received"))]
    return Panel(width, lines)


def _lines(group: Group, measured: Measured) -> list[Line]:
    """What each method has measured."""
    return [
        Line(method, number, curve(records, measured), method == SILENT)
        for number, (method, records) in enumerate(group.shown.items())
    ]


def _draw(axes: Axes, line: Line, against: str) -> None:
    found, number = line.curve, line.number
    if against == "megabytes" and line.is_level and found.values:
        axes.axhline(found.values[-1].mean, linewidth=1.2, label=line.label, **look(number))
        return
    places = list(found.rounds if against == "rounds" else found.megabytes)
    means = [value.mean for value in found.values]
    axes.plot(
        places, means, **look(number), label=line.label,
        marker=MARKS[number % len(MARKS)], markersize=3.5, markevery=max(1, len(places) // 8),
    )  # fmt: skip
    if all(value.count >= FEWEST for value in found.values):
        halves = [value.half or 0.0 for value in found.values]
        low, high = ([mean + sign * half for mean, half in zip(means, halves, strict=True)] for sign in (-1, 1))
        axes.fill_between(places, low, high, color=look(number)["color"], alpha=0.15, linewidth=0)


def _measure(width: str, when: str) -> Measured:
    def measured(record: Record, line: RoundReport) -> float | None:
        accuracies = getattr(line.accuracy, when)
        if width == AVERAGE:
            average = record.average(accuracies) if set(accuracies) >= set(record.mix) else None
            return None if average is None else 100 * average
        return 100 * accuracies[width] if width in accuracies else None

    return measured


def _of_masks(key: str) -> Measured:
    """The mean over the tensors of something that ProWD notes of its masks; whatever else is there is none."""

    def measured(_: Record, line: RoundReport) -> float | None:
        masks = line.notes.get("masks")
        tensors = masks.values() if isinstance(masks, Mapping) else ()
        noted = [one.get(key) for one in tensors if isinstance(one, Mapping)]
        values = [float(one) for one in noted if isinstance(one, int | float) and abs(one) <= 1]
        return math.fsum(values) / len(values) if values and len(values) == len(noted) else None

    return measured


def _is_single(group: Group) -> bool:
    return sum(map(len, group.shown.values())) == 1


def _fit_to_means(axes: Axes, chart: Chart) -> None:
    """Show all means; bands of few seeds may be wider than all accuracies there are."""
    means = np.concatenate([np.zeros(0), *(np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines())])
    if len(means):
        margin = max(0.08 * np.ptp(means), chart.margin)
        low, high = chart.bounds or (-np.inf, np.inf)
        axes.set_ylim(max(means.min() - margin, low), min(means.max() + margin, high + 0.5))


def _band(group: Group) -> str:
    seeds = max(map(len, group.shown.values()), default=0)
    bands = ", bands: 95 % confidence interval" if seeds >= FEWEST else ""
    return f"; mean over seeds{bands}" if seeds > 1 else ""
