"""The paper's tables with our numbers beside the printed ones, for a terminal, Markdown, CSV and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from prowd.comparison import Estimate, Row
from prowd.comparison.formats import (
    Cells,
    count_seeds,
    interval,
    interval_latex,
    numbers,
    starred,
    to_csv,
    to_latex,
    to_markdown,
)
from prowd.views.console.words import compact_table, narrow
from prowd.views.report.paper import AVERAGE, GAP, PaperTable, Printed

__all__ = ["Beside", "Line", "Pair", "beside", "csv", "latex", "markdown", "shown", "terminal", "values"]

GAIN = "gain"
SIGNED = {GAP, GAIN}
RUNS = 3  # behind every printed number
WIDEST = 4  # columns that fit a terminal beside the names


@dataclass(frozen=True)
class Pair:
    """A number of ours and the printed one."""

    ours: Estimate | None
    printed: Estimate | None

    @property
    def off(self) -> Estimate | None:
        """Ours minus the printed one, with both intervals; none where nothing is printed behind the ±."""
        if self.ours is None or self.printed is None:
            return None
        halves = self.ours.half, self.printed.half
        half = None if None in halves else math.hypot(*(half or 0.0 for half in halves))
        return Estimate(self.ours.mean - self.printed.mean, half, self.ours.count)


@dataclass(frozen=True)
class Line:
    """A method: a pair for each column of the printed table, and one for its gain over the baseline."""

    method: str
    seeds: int
    pairs: Mapping[str, Pair]

    @property
    def gain(self) -> Pair:
        """The average minus the baseline's: ours seed by seed, the printed one from the printed averages."""
        return self.pairs[GAIN]


@dataclass(frozen=True)
class Beside:
    """A printed table with our numbers: a line for each method that both have, in the paper's order."""

    table: PaperTable
    baseline: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """What a line has pairs for."""
        return (*self.table.columns, GAIN)

    @property
    def caption(self) -> str:
        """What the numbers are, in a sentence."""
        return (
            f"{self.table.title}, {self.table.uplink} uplink; accuracy in % after local training; ours: mean ± 95 % "
            f"confidence interval (Student's t), {count_seeds([line.seeds for line in self.lines])}; printed: "
            f"{self.table.spread}; gain: average minus that of {self.baseline}; difference: our gain minus the printed "
            f"one, with both intervals, as if the printed averages were independent; * where an interval excludes zero"
        )


def beside(table: PaperTable, rows: Sequence[Row], baseline: str = "fedavg", notes: Sequence[str] = ()) -> Beside:
    """Set the rows of a comparison, whose differences are to the baseline, beside a printed table."""
    ours = {row.method: row for row in rows}
    lines = tuple(_line(table, ours[method], baseline, baseline in ours) for method in table.methods if method in ours)
    return Beside(table, baseline, lines, (*notes, *_notes(table, ours, baseline)))


def terminal(both: Beside) -> list[RenderableType]:
    """Two tables that fit 80 columns, the printed numbers under ours, each below its heading, and the notes."""
    first, second = both.table.columns[:WIDEST], (*both.table.columns[WIDEST:], GAIN)
    accuracy, gain = compact_table(*first), compact_table(*second, "difference")
    for line in both.lines:
        for table, columns, last in ((accuracy, first, []), (gain, second, [_close(line.gain.off, GAIN)])):
            table.add_row(line.method, *(_close(line.pairs[key].ours, key) for key in columns), *last)
            table.add_row("  printed", *(_close(line.pairs[key].printed, key) for key in columns))
    return [
        Text(f"{both.table.title}\nAccuracy after local training, % ± 95 % interval\n"),
        accuracy,
        Text(f"\nGain over {both.baseline}; difference: our gain minus the printed (* interval excludes zero)\n"),
        gain,
        *(Text(f"\n{note}") for note in both.notes),
    ]


def markdown(both: Beside) -> str:
    """The table for a README, and the notes as a list."""
    notes = "".join(f"- {note}\n" for note in both.notes)
    return to_markdown(shown(both)) + f"\n{both.caption}\n" + (f"\n{notes}" if notes else "")


def latex(both: Beside) -> str:
    """The table for a paper, caption and notes as comments above it; needs booktabs."""
    return "".join(f"% {text}\n" for text in (both.caption, *both.notes)) + to_latex(shown(both, interval_latex))


def csv(both: Beside) -> str:
    """The table for a spreadsheet: every number and every ± in a column of its own."""
    header, *_ = shown(both)
    lines: list[list[object]] = [["method", "seeds", *(part for name in header[1:] for part in (name, f"{name} ±"))]]
    lines += [[line.method, line.seeds, *numbers(value for _, value in values(line))] for line in both.lines]
    return to_csv(lines)


def _line(table: PaperTable, row: Row, baseline: str, has_gains: bool) -> Line:
    printed = table.methods[row.method]
    found = {**row.widths, GAP: row.gap, AVERAGE: row.average}
    pairs = {column: Pair(found.get(column), _estimate(number)) for column, number in printed.items()}
    gain = _printed_gain(table, row.method, baseline) if has_gains else None
    return Line(row.method, row.seeds, {**pairs, GAIN: Pair(row.difference if has_gains else None, gain)})


def _printed_gain(table: PaperTable, method: str, baseline: str) -> Estimate | None:
    if method == baseline or baseline not in table.methods:
        return None
    ours, base = table.methods[method][AVERAGE], table.methods[baseline][AVERAGE]
    half = None if ours.half is None or base.half is None else math.hypot(ours.half, base.half)
    return Estimate(ours.value - base.value, half, RUNS)


def _estimate(number: Printed) -> Estimate:
    return Estimate(number.value, number.half, RUNS)


def _notes(table: PaperTable, ours: Mapping[str, Row], baseline: str) -> list[str]:
    """The slips of what is shown, then what is not shown."""
    notes = [note.text for note in table.notes if not note.cells or any(method in ours for method, _ in note.cells)]
    missing = [method for method in table.methods if method not in ours]
    foreign = [method for method in ours if method not in table.methods]
    if missing:
        notes.append(f"Printed, but not run here: {', '.join(missing)}.")
    if foreign:
        notes.append(f"Run here, but not printed in this table: {', '.join(foreign)}.")
    if baseline not in ours:
        notes.append(f"There are no gains, since {baseline} was not run.")
    elif baseline not in table.methods:
        notes.append(f"There are no printed gains, since {baseline} is not in the table.")
    return notes


def shown(both: Beside, show: Callable[..., str] = interval) -> Cells:
    """The table as text, its header first."""
    names = {GAIN: f"gain over {both.baseline}"}
    header = [text for key in both.columns for text in (names.get(key, key), f"{names.get(key, key)} printed")]
    body = [[line.method, *(_show(value, key, show) for key, value in values(line))] for line in both.lines]
    return [["method", *header, "difference in gain"], *body]


def values(line: Line) -> list[tuple[str, Estimate | None]]:
    """All numbers of a line as the header has them, each with its column."""
    pairs = [(key, value) for key, pair in line.pairs.items() for value in (pair.ours, pair.printed)]
    return [*pairs, (GAIN, line.gain.off)]


def _show(value: Estimate | None, column: str, show: Callable[..., str]) -> str:
    text = show(value, signed=column in SIGNED)
    return starred(text, value) if column == GAIN else text


def _close(value: Estimate | None, column: str) -> str:
    """Narrower, for a terminal."""
    return narrow(_show(value, column, interval)).replace(" *", "*")
