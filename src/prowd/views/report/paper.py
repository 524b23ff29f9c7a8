"""The paper's printed tables, from paper.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from prowd.comparison import Estimate

__all__ = ["AVERAGE", "GAP", "Note", "PaperTable", "load", "tables_for"]

Kind = Literal["sum", "again", "best", "words"]
GAP, AVERAGE = "gap", "average"  # the columns besides those of the widths
RUNS = 3  # behind every printed number


@dataclass(frozen=True)
class Note:
    """A slip: what is wrong, with which cells (method and column), and in words. Slips of words have no cells."""

    kind: Kind
    cells: tuple[tuple[str, str], ...]
    text: str


@dataclass(frozen=True)
class PaperTable:
    """A printed table: rows by our names of the methods, in the paper's order; clients in percent of each width."""

    name: str
    preset: str
    title: str
    clients: Mapping[str, int]
    uplink: str
    spread: str
    methods: Mapping[str, Mapping[str, Estimate]]
    notes: tuple[Note, ...]

    def is_of(self, counts: Mapping[str, int]) -> bool:
        """Whether a federation of so many clients of each width has the table's mix."""
        total = sum(counts.values())
        return counts.keys() == self.clients.keys() and all(
            100 * count == self.clients[width] * total for width, count in counts.items()
        )


def load() -> tuple[PaperTable, ...]:
    """All tables, in the paper's order."""
    text = (resources.files("prowd.views.report") / "paper.toml").read_text("utf-8")
    return tuple(_table(name, values) for name, values in tomllib.loads(text).items())


def tables_for(clients: Mapping[str, int], methods: Iterable[str]) -> list[PaperTable]:
    """The tables to show with runs of these methods in a federation with so many clients of each width.

    A table is left out if another has all that it would show and more, or comes first: ProWD and FedAvg alone make a
    Table 1, together with ProWD's parts a Table 3.
    """
    run = set(methods)
    matching = [table for table in load() if table.is_of(clients)]
    shown = [run & table.methods.keys() for table in matching]
    return [
        table
        for index, (table, those) in enumerate(zip(matching, shown, strict=True))
        if those and those not in shown[:index] and not any(those < others for others in shown)
    ]


def _table(name: str, values: Mapping[str, Any]) -> PaperTable:
    rows = {method: {key: _printed(cell) for key, cell in row.items()} for method, row in values["methods"].items()}
    notes = tuple(_note(**note) for note in values.get("notes", ()))
    return PaperTable(**{**values, "name": name, "methods": rows, "notes": notes})


def _printed(cell: float | list[float]) -> Estimate:
    mean, half = cell if isinstance(cell, list) else (cell, None)
    return Estimate(mean, half, RUNS)


def _note(kind: Kind, text: str, cells: Iterable[str] = ()) -> Note:
    pairs = (cell.partition(".") for cell in cells)
    return Note(kind, tuple((method, column) for method, _, column in pairs), text)
