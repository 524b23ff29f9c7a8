"""The accuracy of a group of runs, drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from prowd.federation.report import RoundReport
from prowd.runs.read import Record
from prowd.views.report.groups import Curve, Group, curve
from prowd.views.report.style import Drawing, legend_below, look, panels

__all__ = ["accuracy_curves"]

AVERAGE = "all clients"
SILENT = "local"  # the method that sends no weights, only its accuracy
MARKS = "osD^vPX"  # seven, so that they do not go round with the eight colours
FEWEST = 3  # seeds from which on intervals are drawn: of two they are wider than all there is to see


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
    if against == "megabytes" and SILENT in group.shown:
        over += " (a level line: the final accuracy of a method that sends no weights)"
    single = ", and as received," if _is_single(group) else ""
    config = group.first.config
    measured = "Validation" if config.get("validation") or config.get("validation_clients") else "Test"
    caption = f"{measured} accuracy per width after local training{single} against {over}{_band(group)}."
    note = "All clients: as Figure 4 of the paper" if against == "rounds" else ""
    return Drawing(f"accuracy-{against}", caption, figure, note)


def _lines(axes: Axes, group: Group, width: str, against: str) -> None:
    """A line for each method; of a single run also the model as received."""
    for number, (method, records) in enumerate(group.shown.items()):
        trained = curve(records, _measure(width, "trained"))
        if against == "megabytes" and trained.values and method == SILENT:
            axes.axhline(trained.values[-1].mean, linewidth=1.2, label=method, **look(number))
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
        places, means, **look(number), label=label,
        marker=MARKS[number % len(MARKS)], markersize=3.5, markevery=max(1, len(places) // 8),
    )  # fmt: skip
    if all(value.count >= FEWEST for value in found.values):
        halves = [value.half or 0.0 for value in found.values]
        low, high = ([mean + sign * half for mean, half in zip(means, halves, strict=True)] for sign in (-1, 1))
        axes.fill_between(places, low, high, color=look(number)["color"], alpha=0.15, linewidth=0)


def _measure(width: str, when: str) -> Callable[[Record, RoundReport], float | None]:
    def measured(record: Record, line: RoundReport) -> float | None:
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
    means = np.concatenate([np.zeros(0), *(np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines())])
    if len(means):
        margin = max(0.08 * np.ptp(means), 1.0)
        axes.set_ylim(max(means.min() - margin, 0.0), min(means.max() + margin, 100.5))


def _band(group: Group) -> str:
    seeds = max(map(len, group.shown.values()), default=0)
    bands = ", bands: 95 % confidence interval" if seeds >= FEWEST else ""
    return f"; mean over seeds{bands}" if seeds > 1 else ""
