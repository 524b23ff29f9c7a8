"""The table of experiments.hostile, from its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

HEADINGS = ("method", "kind", "of ten")


def table(rows: Sequence[Mapping[str, str]], defences: Iterable[str]) -> str:
    """Accuracy in % and, in brackets, what it is below the honest run of the same seeds without a defence."""
    columns = list(defences)
    cells: dict[tuple[str, str, str], dict[str, list[Mapping[str, str]]]] = {}
    for row in rows:
        place = row["method"], row["kind"], row["hostile"]
        cells.setdefault(place, {}).setdefault(row["defence"], []).append(row)
    honest = {
        (row["method"], row["seed"]): float(row["accuracy"])
        for row in rows
        if row["hostile"] == "0" and row["defence"] == columns[0]
    }
    lines = [[*HEADINGS, *columns], ["---", "---", "---:", *["---:"] * len(columns)]]
    lines += [
        [*place, *(_cell(cells[place].get(defence, []), honest) for defence in columns)] for place in sorted(cells)
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(rows: Sequence[Mapping[str, str]], honest: Mapping[tuple[str, str], float]) -> str:
    whole = [row for row in rows if row["accuracy"] and (row["method"], row["seed"]) in honest]
    if not whole:
        return "stops" if rows else ""
    accuracy = fmean(float(row["accuracy"]) for row in whole)
    cost = accuracy - fmean(honest[row["method"], row["seed"]] for row in whole)
    stopped = f", {len(rows) - len(whole)} stopped" if len(whole) < len(rows) else ""
    return f"{accuracy:.1f} ({cost:+.1f}{stopped})"
