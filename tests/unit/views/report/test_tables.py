"""Our numbers next to the paper's, as people, spreadsheets and LaTeX read them."""

from __future__ import annotations

import csv
import io
import math
import re

import pytest

from prowd.comparison import Outcome, Row, tabulate
from prowd.views.report import tables
from prowd.views.report.paper import AVERAGE, PaperTable, load
from prowd.views.report.tables import PaperComparison, compare_with_paper

PAPER = {table.name: table for table in load()}
LEFT, FOUR = PAPER["table1-50-50"], PAPER["table2"]
T2 = 12.7062 / 2  # t_{0.975, 1}/2: half an interval of two values is this times what lies between them


def outcome(method: str, seed: int, int8: float, float32: float) -> Outcome:
    accuracy = {"int8": int8, "float32": float32}
    return Outcome(method, seed, accuracy, accuracy, (int8 + float32) / 2, 0.0, 0.0, 0.0, "")


# Averages: prowd 46, 49; my_own 20; fedavg 40, 41. prowd's gains are 6 and 8.
OUTCOMES = [
    outcome("prowd", 0, 44.0, 48.0),
    outcome("prowd", 1, 47.0, 51.0),
    outcome("my_own", 0, 20.0, 20.0),
    outcome("fedavg", 0, 39.0, 41.0),
    outcome("fedavg", 1, 39.0, 43.0),
]
BOTH = compare_with_paper(LEFT, tabulate(OUTCOMES))


def full(table: PaperTable, spread: float) -> list[Row]:
    """Rows of three seeds for every method of a table, about what is printed."""
    outcomes = []
    for method, row in table.methods.items():
        for seed in range(3):
            accuracy = {width: row[width].mean + spread * (seed - 1) for width in table.clients}
            average = row[AVERAGE].mean + spread * ((method == "prowd") * seed)
            outcomes.append(Outcome(method, seed, accuracy, accuracy, average, 0.0, 0.0, 0.0, ""))
    return tabulate(outcomes)


def read_csv(both: PaperComparison) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(tables.csv(both)), strict=True)
    lines = list(reader)
    assert reader.fieldnames is not None
    assert len(set(reader.fieldnames)) == len(reader.fieldnames)
    assert all(None not in line and None not in line.values() for line in lines), "as many cells as headings"
    return lines


def cells(both: PaperComparison) -> dict[str, dict[str, str]]:
    """The table as it is read, by method and heading."""
    headings, *rows = tables.shown(both)
    return {row[0]: dict(zip(headings, row, strict=True)) for row in rows}


def test_our_numbers_beside_the_printed_ones() -> None:
    assert [(line.method, line.seeds) for line in BOTH.lines] == [("fedavg", 2), ("prowd", 2)], "the paper's order"
    # Halves: 19.06 of values 3 apart, 12.71 of gains 2 apart, 6.35 of averages 1 apart; 84.43 − 76.56 = 7.87.
    assert cells(BOTH)["prowd"] == {
        "method": "prowd",
        "int8": "45.50 ± 19.06",
        "int8 printed": "82.87 ± 0.37",
        "float32": "49.50 ± 19.06",
        "float32 printed": "85.99 ± 0.20",
        "gap": "+4.00 ± 0.00",
        "gap printed": "+3.12",
        "average": "47.50 ± 19.06",
        "average printed": "84.43 ± 0.22",
        "gain over fedavg": "+7.00 ± 12.71",
        "gain over fedavg printed": "+7.87 ± 0.42 *",
        "difference in gain": "-0.87 ± 12.71",
    }
    assert list(cells(BOTH)["fedavg"].values())[-3:] == ["–", "–", "–"], "no gain over itself"


def test_a_star_where_the_interval_excludes_zero() -> None:
    # prowd's gains: 7.87, 7.97, 8.07, so 7.97 ± 4.3027·0.1/√3 = 0.25; √(0.25² + 0.22² + 0.36²) = 0.49.
    found = list(cells(compare_with_paper(LEFT, full(LEFT, 0.1)))["prowd"].values())
    assert found[-3:] == ["+7.97 ± 0.25 *", "+7.87 ± 0.42 *", "+0.10 ± 0.49"]


def test_what_is_not_beside_anything_is_said() -> None:
    missing, foreign = BOTH.notes
    assert "fedprox" in missing
    assert "my_own" in foreign
    assert compare_with_paper(LEFT, full(LEFT, 1.0)).notes == []


def test_without_the_baseline_there_are_no_gains() -> None:
    both = compare_with_paper(LEFT, tabulate(OUTCOMES[:2]))
    assert list(cells(both)["prowd"].values())[-3:] == ["–", "–", "–"]
    assert read_csv(both)[0]["difference in gain"] == ""
    assert "fedavg was not run" in both.notes[-1]


def test_slips_are_said_of_what_is_shown() -> None:
    few = compare_with_paper(FOUR, [row for row in full(FOUR, 1.0) if row.method in ("fedavg", "fedpaq")])
    assert not any("FedCOMGATE's gap" in note or "Int12" in note for note in few.notes)
    assert sum("standard deviations" in note for note in few.notes) == 1, "slips of words always"
    assert compare_with_paper(FOUR, full(FOUR, 1.0)).notes == [note.text for note in FOUR.notes]


def test_a_width_that_was_not_measured_is_a_dash() -> None:
    both = compare_with_paper(LEFT, tabulate([Outcome("fedavg", 0, {"int8": 40.0}, {}, 40.0, 0.0, 0.0, 0.0, "")]))
    found = cells(both)["fedavg"]
    assert (found["int8"], found["float32"], found["gap"]) == ("40.00", "–", "–")
    (line,) = read_csv(both)
    assert (line["int8"], line["int8 ±"], line["float32"], line["float32 printed"]) == ("40.0", "", "", "76.23")


def test_the_markdown_table_has_a_caption_and_the_notes() -> None:
    text = tables.markdown(BOTH)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {13}
    assert f"|\n\n{BOTH.caption}\n\n- {BOTH.notes[0]}\n- {BOTH.notes[1]}\n" in text


def test_the_csv_has_every_number_and_every_interval() -> None:
    fedavg, prowd = read_csv(BOTH)
    expected = {
        "int8": 45.5,
        "int8 ±": 3 * T2,
        "int8 printed ±": 0.37,
        "gap printed": 3.12,
        "gain over fedavg ±": 2 * T2,
        "difference in gain": -0.87,
        "difference in gain ±": math.hypot(2 * T2, 0.22, 0.36),
    }
    assert {name: float(prowd[name]) for name in expected} == pytest.approx(expected, abs=1e-3)
    assert (prowd["gap printed ±"], fedavg["gain over fedavg"], fedavg["difference in gain ±"]) == ("", "", "")


@pytest.mark.parametrize("table", load(), ids=lambda table: table.name)
def test_the_latex_table_has_as_many_columns_in_every_row(table: PaperTable) -> None:
    both = compare_with_paper(table, full(table, 1.0))
    lines = tables.latex(both).splitlines()
    inner = lines[lines.index(r"\toprule") + 1 : lines.index(r"\bottomrule")]
    rows = [line for line in inner if line != r"\midrule"]
    columns = len(tables.shown(both)[0])
    assert len(rows) == 1 + len(table.methods)
    assert {line.count("&") for line in rows} == {columns - 1}
    begin = lines.index(rf"\begin{{tabular}}{{l{'r' * (columns - 1)}}}")
    assert lines[:begin] == [f"% {text}" for text in (both.caption, *both.notes)]
    assert not re.search(r"[±–%#]|(?<!\\)_", "".join(lines[begin:])), "nothing that LaTeX reads otherwise"
