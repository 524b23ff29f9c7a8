"""The paper's tables with our numbers next to the printed ones, as Markdown, CSV and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from prowd.comparison import Estimate, Row
from prowd.comparison import formats as as_text
from prowd.comparison.formats import Cells, count_seeds, interval, interval_latex, starred
from prowd.views.report.paper import AVERAGE, GAP, PaperTable

__all__ = ["BASELINE", "Line", "PaperComparison", "compare_with_paper", "csv", "latex", "markdown", "shown"]

BASELINE = "fedavg"  # every printed table has it
GAIN, OFF = f"gain over {BASELINE}", "difference in gain"


@dataclass(frozen=True)
class Line:
    """A method: of each column of the printed table our number and the printed one, by their headings.

    Then come both gains over the baseline, ours seed by seed, the printed one from the printed averages, and the
    difference between these gains.
    """

    method: str
    seeds: int
    values: Mapping[str, Estimate | None]


@dataclass(frozen=True)
class PaperComparison:
    """A printed table with our numbers: a line for each method that both have, in the paper's order."""

    table: PaperTable
    lines: Sequence[Line]
    notes: Sequence[str]

    @property
    def caption(self) -> str:
        """What the numbers are, in a sentence."""
        return (
            f"{self.table.title}, {self.table.uplink} uplink; accuracy in % after local training; ours: mean ± 95 % "
            f"confidence interval (Student's t), {count_seeds([line.seeds for line in self.lines])}; printed: "
            f"{self.table.spread}; gain: average minus that of {BASELINE}; difference: our gain minus the printed "
            f"one, with both intervals, as if the printed averages were independent; * where an interval excludes zero"
        )


def compare_with_paper(table: PaperTable, rows: Sequence[Row], notes: Sequence[str] = ()) -> PaperComparison:
    """Set the rows of a comparison, whose differences are to the baseline, next to a printed table."""
    ours = {row.method: row for row in rows}
    lines = [_line(table, ours[method], BASELINE in ours) for method in table.methods if method in ours]
    return PaperComparison(table, lines, [*notes, *_notes(table, ours)])


def shown(both: PaperComparison, show: Callable[..., str] = interval) -> Cells:
    """The table as text, its header first."""
    headings = list(both.lines[0].values) if both.lines else []
    body = [
        [line.method, *(_show(heading, value, show) for heading, value in line.values.items())] for line in both.lines
    ]
    return [["method", *headings], *body]


def markdown(both: PaperComparison) -> str:
    """The table for a README, and the notes as a list."""
    notes = "".join(f"- {note}\n" for note in both.notes)
    return as_text.to_markdown(shown(both)) + f"\n{both.caption}\n" + (f"\n{notes}" if notes else "")


def latex(both: PaperComparison) -> str:
    """The table for a paper, caption and notes as comments above it; needs booktabs."""
    comments = "".join(f"% {text}\n" for text in (both.caption, *both.notes))
    return comments + as_text.to_latex(shown(both, interval_latex))


def csv(both: PaperComparison) -> str:
    """The table for a spreadsheet: every number and every ± in a column of its own."""
    (_, *headings), *_ = shown(both)
    lines: list[list[object]] = [["method", "seeds", *(part for name in headings for part in (name, f"{name} ±"))]]
    lines += [[line.method, line.seeds, *as_text.numbers(line.values.values())] for line in both.lines]
    return as_text.to_csv(lines)


def _line(table: PaperTable, row: Row, has_gains: bool) -> Line:
    printed = table.methods[row.method]
    found = {**row.widths, GAP: row.gap, AVERAGE: row.average}
    values: dict[str, Estimate | None] = {}
    for column, number in printed.items():
        values |= {column: found.get(column), f"{column} printed": number}
    gains = [row.difference, _minus(printed[AVERAGE], table.methods[BASELINE][AVERAGE])]
    ours, theirs = gains if has_gains and row.method != BASELINE else (None, None)
    return Line(row.method, row.seeds, {**values, GAIN: ours, f"{GAIN} printed": theirs, OFF: _minus(ours, theirs)})


def _minus(one: Estimate | None, other: Estimate | None) -> Estimate | None:
    """A difference with both intervals; without one where either number has none."""
    if one is None or other is None:
        return None
    half = None if one.half is None or other.half is None else math.hypot(one.half, other.half)
    return Estimate(one.mean - other.mean, half, one.count)


def _notes(table: PaperTable, ours: Mapping[str, Row]) -> list[str]:
    """The slips of what is shown, then what is not shown."""
    notes = [note.text for note in table.notes if not note.cells or any(method in ours for method, _ in note.cells)]
    missing = [method for method in table.methods if method not in ours]
    foreign = [method for method in ours if method not in table.methods]
    if missing:
        notes.append(f"Printed, but not run here: {', '.join(missing)}.")
    if foreign:
        notes.append(f"Run here, but not printed in this table: {', '.join(foreign)}.")
    if BASELINE not in ours:
        notes.append(f"There are no gains, since {BASELINE} was not run.")
    return notes


def _show(heading: str, value: Estimate | None, show: Callable[..., str]) -> str:
    is_gain = "gain" in heading
    text = show(value, signed=is_gain or heading.startswith(GAP))
    return starred(text, value) if is_gain else text
