"""The page of a single run."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from prowd.console.watch.phrases import (
    absences,
    again,
    bar,
    figures,
    left,
    moved,
    plain,
    share,
    silence,
    sparkline,
    title,
)
from prowd.console.watch.sight import Picture, Reading, Sight
from prowd.console.words import duration

__all__ = ["run_page"]

SHOWN = 3  # clients whose work is missing, of as many as there may be
COLUMNS = 55  # taken by all but the first column and the courses


def run_page(picture: Picture, run: Sight, reading: Reading, width: int) -> list[RenderableType]:
    """How far a run is, what it came to so far, and what went wrong."""
    parts: list[RenderableType] = [Text(title(picture), "bold")]
    state = _took(reading) if run.state == "finished" else left(run.left)
    parts.append(bar(f"round {run.made}/{run.rounds}", run.made, run.rounds, state))
    if run.state == "no news":
        parts.append(Text(f"{silence(run)}; if it was stopped: {again(picture)}", "yellow"))
    if run.made:
        parts.append(_figures(reading, width))
    elif run.state == "running":
        parts.append(Text("waiting for the first round"))
    missing = absences(run)
    if missing:
        crowds = [line.clients for line in reading.record.lines]
        lost, refused = sum(len(crowd.lost) for crowd in crowds), sum(len(crowd.refused) for crowd in crowds)
        parts.append(Text(f"work that is missing: {lost} lost, {refused} refused", "yellow"))
        parts += [Text(f"  {text}", "yellow") for text in missing[-SHOWN:]]
    parts += [Text(plain(remark), "red") for remark in run.remarks]
    return [*parts, Text(plain(str(picture.folder)))]


def _took(reading: Reading) -> str:
    seconds = sum(line.seconds for line in reading.record.lines)
    return f"finished in {duration(seconds)}" if 0 <= seconds < 1e9 else "finished"


def _figures(reading: Reading, width: int) -> Table:
    """Accuracy and its course, loss and traffic of each width."""
    record = reading.record
    latest = {"received": record.latest("received"), "trained": reading.trained}
    loss = {name: value for line in record.lines for name, value in line.loss.items()}
    labels = {name: f"{name} ×{clients}" for name, clients in record.mix.items()}
    labels = labels or {name: plain(name) for name in {**latest["received"], **latest["trained"], **loss}}
    spark = max(0, min(20, (width - COLUMNS - max(map(len, [*labels.values(), "clients"]))) // 2))
    table = figures("clients", "as received", "", "after training", "", "loss", "sent up", "received", gap=1)
    for name, label in labels.items():
        cells: list[str] = []
        for when, found in latest.items():
            course = [accuracy[name] for line in record.lines if name in (accuracy := getattr(line.accuracy, when))]
            cells += [share(found.get(name), 2), sparkline(course, spark)]
        traffic = [sum(getattr(line.traffic, way).get(name, 0) for line in record.lines) for way in ("up", "down")]
        table.add_row(Text(label), *cells, _loss(loss.get(name)), *map(moved, traffic))
    received, trained = (share(record.average(found), 2) for found in latest.values())
    table.add_row("all", received, "", trained, "", "", *(moved(record.moved(way)) for way in ("up", "down")))
    return table


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if abs(value) < 1000 else f"{value:.0e}"
