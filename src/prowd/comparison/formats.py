"""A comparison as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from prowd.comparison.outcomes import Estimate, Outcome, Row
from prowd.config.schema import RunConfig
from prowd.files import atomic_write

__all__ = [
    "Cells",
    "Record",
    "caption",
    "count_seeds",
    "interval",
    "interval_latex",
    "kilobytes",
    "numbers",
    "records_csv",
    "run_records",
    "starred",
    "table_latex",
    "table_markdown",
    "table_records",
    "to_csv",
    "to_latex",
    "to_markdown",
    "write_tables",
]

Cells = list[list[str]]
Record = dict[str, str | int | float | None]
"""A line of a table by its columns, flat: ``pandas.DataFrame`` takes a list of them."""
LATEX = str.maketrans({sign: rf"\{sign}" for sign in "_%&#"} | {"±": r"$\pm$", "–": "--"})


def write_tables(path: Path, config: RunConfig, rows: Sequence[Row], outcomes: Sequence[Outcome], base: str) -> None:
    """Write table.md, table.csv and table.tex, and runs.csv with a line for each run."""
    texts = {
        "table.md": table_markdown(config, rows, base),
        "table.csv": records_csv(table_records(rows, base)),
        "table.tex": table_latex(config, rows, base),
        "runs.csv": records_csv(run_records(outcomes)),
    }
    for name, text in texts.items():
        atomic_write(path / name, text.encode())


def caption(config: RunConfig, rows: Sequence[Row]) -> str:
    """What a table is about, in a sentence."""
    on = "validation " if config.validation or config.validation_clients else ""
    return (
        f"{config.name}: {Path(config.data).name}, clients {config.clients}, {config.rounds} rounds, "
        f"{count_seeds([row.seeds for row in rows])}; {on}accuracy in % after local training, mean ± 95 % confidence "
        f"interval (Student's t), * where that of the difference excludes zero; traffic of all clients together, a "
        f"round; prowd {config.version}"
    )


def count_seeds(counts: Sequence[int]) -> str:
    """How many seeds the methods of a table have, from the fewest to the most."""
    few, many = min(counts, default=0), max(counts, default=0)
    return f"{few}–{many} seeds" if few != many else f"{few} seed{'s' * (few != 1)}"


def interval(value: Estimate | None, *, signed: bool = False) -> str:
    """A mean and its interval as people read them."""
    if value is None:
        return "–"
    mean = f"{value.mean:+.2f}" if signed else f"{value.mean:.2f}"
    return mean if value.half is None else f"{mean} ± {value.half:.2f}"


def interval_latex(value: Estimate | None, *, signed: bool = False) -> str:
    """The same in LaTeX, the interval small."""
    mean, plus, half = interval(value, signed=signed).partition(" ± ")
    return rf"{mean} \scriptsize($\pm$ {half})" if plus else mean


def starred(text: str, difference: Estimate | None) -> str:
    """A difference with a star if its interval excludes zero."""
    return f"{text} *" if difference is not None and difference.excludes_zero else text


def kilobytes(count: float) -> str:
    """Bytes a round; two methods that differ by a few bytes are to look different, so the unit is always the same."""
    return f"{count / 1000:,.1f} kB"


def table_markdown(config: RunConfig, rows: Sequence[Row], base: str) -> str:
    """The table for a README."""
    return to_markdown(_cells(rows, base, interval)) + f"\n{caption(config, rows)}\n"


def table_latex(config: RunConfig, rows: Sequence[Row], base: str) -> str:
    """The table for a paper; needs booktabs."""
    return f"% {caption(config, rows)}\n" + to_latex(_cells(rows, base, interval_latex))


def table_records(rows: Sequence[Row], base: str) -> list[Record]:
    """The table for a spreadsheet or a data frame: every mean and every half interval in a column of its own."""
    widths = _widths(rows)
    columns = [*widths, "gap", "average", "average as received", f"average against {base}"]
    names = [part for name in columns for part in (name, f"{name} ±")]
    records: list[Record] = []
    for row in rows:
        values = [*(row.widths.get(width) for width in widths), row.gap, row.average, row.received, row.difference]
        records.append(
            {
                "method": row.method,
                "seeds": row.seeds,
                **dict(zip(names, numbers(values), strict=True)),
                "pairs": row.difference.count if row.difference else None,
                "bytes up a round": row.bytes_up,
                "bytes down a round": row.bytes_down,
            }
        )
    return records


def run_records(outcomes: Sequence[Outcome]) -> list[Record]:
    """A record for each run."""
    widths = list(dict.fromkeys(width for outcome in outcomes for width in outcome.trained))
    records: list[Record] = []
    for one in outcomes:
        states = (("trained", one.trained), ("received", one.received))
        records.append(
            {
                "method": one.method,
                "seed": one.seed,
                **{f"{width} {state}": _number(found.get(width)) for state, found in states for width in widths},
                "average trained": _number(one.average),
                "average received": _number(one.average_received),
                "bytes up a round": one.bytes_up,
                "bytes down a round": one.bytes_down,
                "weights_sha256": one.weights_sha256,
            }
        )
    return records


def records_csv(records: Sequence[Record]) -> str:
    """Records of the same columns for a spreadsheet; what there is not is empty."""
    return to_csv([list(records[0]), *(list(record.values()) for record in records)])


def to_markdown(cells: Cells) -> str:
    """Cells, the header's first, as Markdown: names to the left, figures to the right."""
    header, *body = cells
    lines = [" | ".join(line) for line in (header, ["---", *["---:"] * (len(header) - 1)], *body)]
    return "".join(f"| {line} |\n" for line in lines)


def to_latex(cells: Cells) -> str:
    """Cells, which may be LaTeX but for signs such as _ and %, as a table with the rules of booktabs."""
    header, *body = (" & ".join(text.translate(LATEX) for text in line) + r" \\" for line in cells)
    columns = "l" + "r" * (len(cells[0]) - 1)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", header, r"\midrule", *body, r"\bottomrule"]
    return "\n".join([*lines, r"\end{tabular}"]) + "\n"


def to_csv(lines: Sequence[Sequence[object]]) -> str:
    """Lines for a spreadsheet."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def numbers(values: Iterable[Estimate | None]) -> list[float | None]:
    """For a spreadsheet: of each its mean and half its interval, None where there is none."""
    return [_number(part) for value in values for part in ((value.mean, value.half) if value else (None, None))]


def _cells(rows: Sequence[Row], base: str, show: Callable[..., str]) -> Cells:
    """The table as text, its header first."""
    widths = _widths(rows)
    header = ["method", *widths, "gap", "average", f"against {base}", "as received", "up", "down"]
    body = [
        [
            row.method,
            *(show(row.widths.get(width)) for width in widths),
            show(row.gap, signed=True),
            show(row.average),
            starred(show(row.difference, signed=True), row.difference),
            show(row.received),
            kilobytes(row.bytes_up),
            kilobytes(row.bytes_down),
        ]
        for row in rows
    ]
    return [header, *body]


def _widths(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(width for row in rows for width in row.widths))


def _number(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
