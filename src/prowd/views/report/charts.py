"""Accuracy, traffic and missing clients of a group of runs, drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from prowd.config.schema import MOST_ROUNDS
from prowd.federation.report import RoundReport
from prowd.numbers.bits import MAX_CLIENTS
from prowd.runs.read import Record
from prowd.views.report.groups import Curve, Group, curve
from prowd.views.report.style import INK, PALETTE, Drawing, colour, dash, legend_below, panels

__all__ = ["accuracy_bars", "accuracy_curves", "bytes_a_client", "convergence", "timeline", "traffic_bars"]

AVERAGE = "all clients"
MARKS = "osD^vPX"  # seven, so that they do not go round with the eight colours
FEWEST = 3  # seeds from which on intervals are drawn: of two they are wider than all there is to see
Measure = Callable[[Record, RoundReport], float | None]


def convergence(group: Group) -> Drawing | None:
    """Figure 4: the average accuracy of all clients over the rounds."""
    if not any(record.lines for record in group.records):
        return None
    figure, (axes,) = panels(1, width=5.4, height=3.0 + _for_legend(group))
    _lines(axes, group, AVERAGE, "rounds")
    axes.set_ylabel("average accuracy after training, %")
    axes.set_xlabel("round")
    legend_below(figure, axes)
    caption = f"Average {group.measured} accuracy of all clients over the rounds, after local training"
    return Drawing("fig4-convergence", f"{caption}{_band(group)}.", figure, "As Figure 4 of the paper")


def accuracy_curves(group: Group, against: str) -> Drawing | None:
    """Accuracy per width against "rounds" or "megabytes"."""
    if not any(record.lines for record in group.records) or not group.widths:
        return None
    average = [AVERAGE] if len(group.widths) > 1 and against == "megabytes" else []
    shown = [*group.widths, *average]
    figure, grid = panels(len(shown), height=2.2 + _for_legend(group))
    for axes, width in zip(grid, shown, strict=True):
        _lines(axes, group, width, against)
        axes.set_title(width)
        axes.set_xlabel("round" if against == "rounds" else "MB sent, up and down")
    grid[0].set_ylabel("accuracy, %")
    legend_below(figure, grid[0])
    over = "the rounds" if against == "rounds" else "the megabytes that all clients sent and received"
    if against == "megabytes" and any(_is_silent(group, records) for records in group.shown.values()):
        over += " (a level line: what a method that sends no weights came to)"
    single = ", and as received," if _is_single(group) else ""
    caption = (
        f"{group.measured.capitalize()} accuracy per width after local training{single} against {over}{_band(group)}."
    )
    return Drawing(f"accuracy-{against}", caption, figure)


def accuracy_bars(group: Group) -> Drawing | None:
    """Figure 5: accuracy of each width and method at the end."""
    if not group.rows:
        return None
    wide = min(3.2 + 0.25 * len(group.rows) * (len(group.widths) + 1), 8.5)
    figure, (axes,) = panels(1, width=wide, height=2.8 + _for_legend(group))
    places = [*group.widths, "average"]
    step = 0.8 / len(group.rows)
    numbers = {label: number for number, label in enumerate(group.shown)}
    for at_row, row in enumerate(group.rows):
        number = numbers[row.method]
        values = [row.widths.get(width) for width in group.widths] + [row.average]
        found = [(place, value) for place, value in enumerate(values) if value is not None]
        at = [place - 0.4 + step * (at_row + 0.5) for place, _ in found]
        bars = axes.bar(
            at, [value.mean for _, value in found], step * 0.9, color=colour(number), label=_legible(row.method)
        )
        for bar in bars:
            bar.set_hatch(("", "//", "..", "xx")[(number + number // len(PALETTE)) % 4])
        if row.seeds < FEWEST:
            continue
        axes.errorbar(at, [v.mean for _, v in found], [v.half or 0 for _, v in found], fmt="none", ecolor=INK, lw=1)
    axes.set_xticks(range(len(places)), places)
    lowest = min(v.mean - (v.half or 0) for row in group.rows for v in (*row.widths.values(), row.average))
    axes.set_ylim(bottom=max(0.0, 10 * (lowest // 10) - 10))
    below = axes.get_ylim()[0]
    axes.set_ylabel("accuracy after training, %" + (f"\n(the axis begins at {below:g})" if below else ""))
    axes.grid(visible=False, axis="x")
    legend_below(figure, axes)
    when = "after the last round" if group.is_finished else "so far"
    caption = f"{group.measured.capitalize()} accuracy of each width {when}{_band(group, 'bars of error')}."
    return Drawing("fig5-accuracy", caption, figure, "As Figure 5 of the paper, where four widths meet")


def traffic_bars(group: Group) -> Drawing | None:
    """Bytes that one client of each width sends and receives in a round."""
    if not any(record.lines for record in group.records):
        return None
    height = 0.5 + 0.28 * len(group.shown) * max(len(group.widths), 1)
    longest = max(len(f"{method}, {width}") for method in group.shown for width in [*group.widths, ""])
    figure, grid = panels(2, columns=2, width=max(3.4, 1.7 + 0.035 * longest), height=height)
    for axes, way in zip(grid, ("up", "down"), strict=True):
        labels: list[str] = []
        for number, (method, records) in enumerate(group.shown.items()):
            for width in group.widths:
                axes.barh(len(labels), bytes_a_client(records, width, way) / 1000, color=colour(number))
                labels.append(f"{method}, {width}")
        axes.set_yticks(range(len(labels)), labels)
        axes.invert_yaxis()
        axes.set_xlabel(f"kB {way} a client and round")
        axes.grid(visible=False, axis="y")
    grid[1].set_yticklabels([])
    return Drawing("traffic", "Bytes that one client of each width sends (up) and receives (down) in a round.", figure)


def bytes_a_client(records: Sequence[Record], width: str, way: str) -> float:
    """Mean bytes of one client of a width in a round that it takes part in; all clients of a width send alike."""
    moved, clients = 0, 0.0
    for record in records:
        for line in record.lines:
            moved += getattr(line.traffic, way).get(width, 0)
            clients += _members(record, line, width, way)
    return moved / clients if clients else 0.0


def _members(record: Record, line: RoundReport, width: str, way: str) -> float:
    """Clients of a width that sent, or were sent, something; its share of those asked where no client is named."""
    if line.traffic.clients:
        side = ("up", "down").index(way)
        sent = [moved[side] for client, moved in line.traffic.clients.items() if record.widths.get(client) == width]
        return sum(size > 0 for size in sent)
    total = sum(record.mix.values())
    asked = record.mix.get(width, 0) * min((line.clients.asked or total) / total, 1) if total else 0
    lost = sum(one.width == width and not one.attempt for one in line.clients.lost)
    return max(asked - lost * (way == "up"), 0)


def timeline(record: Record, name: str) -> Drawing | None:
    """Who was missing from which round of a run."""
    missing = [(line.round, one, kind) for line in record.lines for kind in ("lost", "refused")
               for one in getattr(line.clients, kind) if 0 <= one.client < MAX_CLIENTS]  # fmt: skip
    if not missing:
        return None
    clients = sorted(record.widths) or sorted({one.client for _, one, _ in missing})
    figure, (axes,) = panels(1, width=6.4, height=min(0.6 + 0.16 * len(clients), 6))
    for kind, mark, number in (("lost", "x", 1), ("refused", "s", 3)):
        places = [(round_, one.client) for round_, one, found in missing if found == kind]
        if places:
            rounds, missed = zip(*places, strict=True)
            axes.scatter(rounds, missed, marker=mark, s=22, color=colour(number), label=kind)
    axes.set_xlim(0.5, min(record.rounds, MOST_ROUNDS) + 0.5)
    axes.set_ylim(max(clients) + 0.5, min(clients) - 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("round")
    axes.set_ylabel("client")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    lost = sum(kind == "lost" for *_, kind in missing)
    refused = len(missing) - lost
    caption = f"{record.path.name}: clients lost ({lost}) and updates refused ({refused})."
    return Drawing(name, caption, figure)


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


def _band(group: Group, what: str = "bands") -> str:
    seeds = max(map(len, group.shown.values()), default=0)
    bands = f", {what}: 95 % confidence interval" if seeds >= FEWEST else ""
    return f"; mean over seeds{bands}" if seeds > 1 else ""
