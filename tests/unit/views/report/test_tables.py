"""Our numbers beside the paper's, as people, spreadsheets and LaTeX read them."""

from __future__ import annotations

import csv
import io
import math
import re

import pytest
from rich.console import Console

from prowd.comparison import Estimate, Outcome, Row, tabulate
from prowd.views.report import tables
from prowd.views.report.paper import AVERAGE, GAP, PaperTable, load
from prowd.views.report.tables import Beside, beside

PAPER = {table.name: table for table in load()}
LEFT, FOUR, TOP = PAPER["table1-50-50"], PAPER["table2"], PAPER["table3-50-50"]
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
BOTH = beside(LEFT, tabulate(OUTCOMES))


def full(table: PaperTable, spread: float) -> list[Row]:
    """Rows of three seeds for every method of a table, about what is printed."""
    outcomes = []
    for method, row in table.methods.items():
        for seed in range(3):
            accuracy = {width: row[width].value + spread * (seed - 1) for width in table.clients}
            average = row[AVERAGE].value + spread * ((method == "prowd") * seed)
            outcomes.append(Outcome(method, seed, accuracy, accuracy, average, 0.0, 0.0, 0.0, ""))
    return tabulate(outcomes)


def printed_on(both: Beside) -> list[str]:
    file = io.StringIO()
    for part in tables.terminal(both):
        Console(file=file, force_terminal=False, width=80).print(part)
    return file.getvalue().splitlines()


def read_csv(both: Beside) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(tables.csv(both)), strict=True)
    lines = list(reader)
    assert reader.fieldnames is not None
    assert len(set(reader.fieldnames)) == len(reader.fieldnames)
    assert all(None not in line and None not in line.values() for line in lines), "as many cells as headings"
    return lines


def markdown_cells(both: Beside) -> list[list[str]]:
    lines = [line for line in tables.markdown(both).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_lines_are_those_of_both_in_the_papers_order() -> None:
    fedavg, prowd = BOTH.lines
    assert [(line.method, line.seeds) for line in BOTH.lines] == [("fedavg", 2), ("prowd", 2)]
    assert BOTH.columns == tuple(prowd.pairs) == ("int8", "float32", "gap", "average", "gain")
    ours = {column: pair.ours.mean for column, pair in prowd.pairs.items() if pair.ours}
    assert ours == pytest.approx({"int8": 45.5, "float32": 49.5, "gap": 4.0, "average": 47.5, "gain": 7.0})
    printed = {column: pair.printed.mean for column, pair in prowd.pairs.items() if pair.printed}
    # 84.43 − 76.56 = 7.87
    assert printed == pytest.approx({"int8": 82.87, "float32": 85.99, "gap": 3.12, "average": 84.43, "gain": 7.87})
    assert fedavg.pairs["average"].printed == Estimate(76.56, 0.36, 3)


def test_the_difference_in_gain_has_both_intervals() -> None:
    fedavg, prowd = BOTH.lines
    assert prowd.gain.off is not None
    assert (prowd.gain.off.mean, prowd.gain.off.half) == pytest.approx(
        (7.0 - 7.87, math.hypot(2 * T2, 0.22, 0.36)), abs=1e-3
    )
    assert prowd.gain.off.count == 2
    assert (fedavg.gain.ours, fedavg.gain.printed, fedavg.gain.off) == (None, None, None)


def test_gains_are_those_printed_even_over_a_slip() -> None:
    (deq,) = [line for line in beside(TOP, full(TOP, 0.0)).lines if line.method == "prowd-deq"]
    assert deq.gain.printed is not None
    assert deq.gain.printed.mean == pytest.approx(79.99 - 75.83)


def test_what_is_not_beside_anything_is_said() -> None:
    left_out = "local, fedprox, fedpaq, fedcom, fedcomgate, fedgroupedavg, fedgroupedavg-asymmetric"
    assert BOTH.notes == (
        f"Printed, but not run here: {left_out}.",
        "Run here, but not printed in this table: my_own.",
    )
    assert beside(LEFT, full(LEFT, 1.0)).notes == ()


def test_without_the_baseline_there_are_no_gains() -> None:
    rows = tabulate(OUTCOMES[:2])
    for both in (beside(LEFT, rows), beside(LEFT, tabulate(OUTCOMES), baseline="local")):
        assert all((line.gain.ours, line.gain.printed, line.gain.off) == (None, None, None) for line in both.lines)
        assert both.notes[-1] == f"There are no gains, since {both.baseline} was not run."
    both = beside(LEFT, rows)
    assert markdown_cells(both)[2][-3:] == ["–", "–", "–"]
    assert read_csv(both)[0]["difference in gain"] == ""


def test_over_a_baseline_of_ones_own_nothing_is_printed() -> None:
    both = beside(LEFT, tabulate(OUTCOMES, "my_own"), "my_own")
    (prowd,) = [line for line in both.lines if line.method == "prowd"]
    assert prowd.gain.ours == Estimate(26.0, None, 1)  # 46 − 20, of the one seed that both have
    assert (prowd.gain.printed, prowd.gain.off) == (None, None)
    assert both.notes[-1] == "There are no printed gains, since my_own is not in the table."


def test_slips_are_said_of_what_is_shown() -> None:
    few = beside(FOUR, [row for row in full(FOUR, 1.0) if row.method in ("fedavg", "fedpaq")])
    assert not any("FedCOMGATE's gap" in note or "Int12" in note for note in few.notes)
    assert sum("standard deviations" in note for note in few.notes) == 1, "slips of words always"
    everything = beside(FOUR, full(FOUR, 1.0)).notes
    assert list(everything) == [note.text for note in FOUR.notes]


def test_a_width_that_was_not_measured_is_a_dash() -> None:
    one = Outcome("fedavg", 0, {"int8": 40.0}, {}, 40.0, 0.0, 0.0, 0.0, "")
    both = beside(LEFT, tabulate([one]))
    cells = markdown_cells(both)[2]
    assert cells[:9] == ["fedavg", "40.00", "76.88 ± 0.49", "–", "76.23 ± 0.36", "–", "-0.65", "40.00", "76.56 ± 0.36"]
    (line,) = read_csv(both)
    assert (line["int8"], line["int8 ±"], line["float32"], line["float32 printed"]) == ("40.0", "", "", "76.23")


def test_the_markdown_table() -> None:
    header, rule, *body = markdown_cells(BOTH)
    pairs = [text for name in ("int8", "float32", "gap", "average") for text in (name, f"{name} printed")]
    assert header == ["method", *pairs, "gain over fedavg", "gain over fedavg printed", "difference in gain"]
    assert {len(cells) for cells in (header, rule, *body)} == {12}
    assert set("".join(rule)) == set("-:")
    # Halves: 19.06 of values 3 apart, 12.71 of gains 2 apart, 6.35 of averages 1 apart.
    assert body[0][7:] == ["40.50 ± 6.35", "76.56 ± 0.36", "–", "–", "–"]
    assert body[1][:3] == ["prowd", "45.50 ± 19.06", "82.87 ± 0.37"]
    assert body[1][5:7] == ["+4.00 ± 0.00", "+3.12"]
    assert body[1][9:] == ["+7.00 ± 12.71", "+7.87 ± 0.42 *", "-0.87 ± 12.71"]
    text = tables.markdown(BOTH)
    assert f"|\n\n{BOTH.caption}\n\n- {BOTH.notes[0]}\n- {BOTH.notes[1]}\n" in text
    assert tables.markdown(beside(LEFT, full(LEFT, 1.0))).endswith("excludes zero\n")


def test_a_star_where_the_interval_excludes_zero() -> None:
    # prowd's gains: 7.87, 7.97, 8.07, so 7.97 ± 4.3027·0.1/√3 = 0.25; √(0.25² + 0.22² + 0.36²) = 0.49.
    cells = markdown_cells(beside(LEFT, full(LEFT, 0.1)))[-1]
    assert cells[-3:] == ["+7.97 ± 0.25 *", "+7.87 ± 0.42 *", "+0.10 ± 0.49"]


def test_the_csv_has_every_number_and_every_interval() -> None:
    fedavg, prowd = read_csv(BOTH)
    assert (fedavg["method"], prowd["method"], prowd["seeds"]) == ("fedavg", "prowd", "2")
    expected = {
        "int8": 45.5,
        "int8 ±": 3 * T2,
        "int8 printed": 82.87,
        "int8 printed ±": 0.37,
        "gap printed": 3.12,
        "average": 47.5,
        "average printed ±": 0.22,
        "gain over fedavg": 7.0,
        "gain over fedavg ±": 2 * T2,
        "gain over fedavg printed": 7.87,
        "difference in gain": -0.87,
        "difference in gain ±": math.hypot(2 * T2, 0.22, 0.36),
    }
    assert {name: float(prowd[name]) for name in expected} == pytest.approx(expected, abs=1e-3)
    assert (prowd["gap printed ±"], fedavg["gain over fedavg"], fedavg["difference in gain ±"]) == ("", "", "")


@pytest.mark.parametrize("table", load(), ids=lambda table: table.name)
def test_the_latex_table_has_as_many_columns_in_every_row(table: PaperTable) -> None:
    both = beside(table, full(table, 1.0))
    lines = tables.latex(both).splitlines()
    inner = lines[lines.index(r"\toprule") + 1 : lines.index(r"\bottomrule")]
    rows = [line for line in inner if line != r"\midrule"]
    columns = 2 * len(both.columns) + 2
    assert len(rows) == 1 + len(table.methods)
    assert all(line.endswith(r" \\") for line in rows)
    assert {line.count("&") for line in rows} == {columns - 1}
    assert rf"\begin{{tabular}}{{l{'r' * (columns - 1)}}}" in lines
    assert lines[-1] == r"\end{tabular}"
    comments = lines[: lines.index(rf"\begin{{tabular}}{{l{'r' * (columns - 1)}}}")]
    assert comments == [f"% {text}" for text in (both.caption, *both.notes)]
    assert not re.search(r"[±–%#]|(?<!\\)_", "".join(lines[len(comments) :])), "nothing that LaTeX reads otherwise"


def test_latex_of_a_name_with_an_underscore() -> None:
    text = tables.latex(beside(LEFT, tabulate(OUTCOMES, "my_own"), "my_own"))
    assert r"& gain over my\_own & gain over my\_own printed &" in text
    assert r"prowd & 45.50 \scriptsize($\pm$ 19.06) & 82.87 \scriptsize($\pm$ 0.37) &" in text
    assert r"& +26.00 & -- & -- \\" in text


@pytest.mark.parametrize("table", load(), ids=lambda table: table.name)
def test_the_terminal_tables_fit_80_columns(table: PaperTable) -> None:
    lines = printed_on(beside(table, full(table, 4.0)))  # intervals of ± 9.94
    assert sum(line.count("±9.94") for line in lines) == len(table.clients) * len(table.methods) + 2
    assert max(map(len, lines)) <= 80
    for method in table.methods:
        assert sum(line.split()[:1] == [method] for line in lines) == 2, "no name is cut"
    assert sum(line.startswith("  printed ") for line in lines) == 2 * len(table.methods)
    assert not any(re.match(r" {3,}\S", line) for line in lines), "and no row is folded"


def test_the_terminal_tables_have_the_printed_numbers_under_ours() -> None:
    lines = [re.split(r" {2,}", line.strip()) for line in printed_on(BOTH)]
    at = lines.index(["method", "int8", "float32", "gap", "average"])
    assert lines[at + 4 : at + 6] == [
        ["prowd", "45.50 ±19.06", "49.50 ±19.06", "+4.00 ±0.00", "47.50 ±19.06"],
        ["printed", "82.87 ±0.37", "85.99 ±0.20", "+3.12", "84.43 ±0.22"],
    ]
    at = lines.index(["method", "gain", "difference"])
    assert lines[at + 2 : at + 6] == [
        ["fedavg", "–", "–"],
        ["printed", "–"],
        ["prowd", "+7.00 ±12.71", "-0.87 ±12.71"],
        ["printed", "+7.87 ±0.42*"],
    ]
    assert [BOTH.notes[1]] in lines


@pytest.mark.parametrize(
    ("rows", "seeds"),
    [(tabulate(OUTCOMES), ", 2 seeds;"), (tabulate(OUTCOMES[:4]), ", 1–2 seeds;"), ([], ", 0 seeds;")],
)
def test_the_caption_says_what_the_numbers_are(rows: list[Row], seeds: str) -> None:
    text = beside(LEFT, rows).caption
    assert text.startswith("Table 1 (left): CIFAR-10, 50 % Int8 and 50 % Float32 clients, ternary uplink; ")
    assert seeds in text
    assert "printed: 95 % confidence interval over three runs;" in text
    assert "native uplink" in beside(FOUR, rows).caption


def test_table_3_has_no_gap() -> None:
    both = beside(TOP, full(TOP, 1.0))
    assert GAP not in both.columns
    assert "gap" not in markdown_cells(both)[0]
