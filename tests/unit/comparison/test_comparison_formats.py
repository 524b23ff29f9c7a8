"""Tables as they are read by people, spreadsheets and LaTeX."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

import prowd
from prowd.comparison import Comparison, Estimate, Outcome, tabulate
from prowd.comparison.formats import (
    caption,
    interval,
    records_csv,
    run_records,
    table_latex,
    table_markdown,
    table_records,
    write_tables,
)
from prowd.config.schema import RunConfig

CONFIG = RunConfig(name="tiny", data="digits", clients="int8:3, int12:1, float32:2", rounds=7)


def outcome(method: str, seed: int, shift: float) -> Outcome:
    trained = {"int8": 40 + shift, "int12": 50.123456 + shift, "float32": 35 + 2 * shift}
    received = {width: value / 3 for width, value in trained.items()}
    return Outcome(method, seed, trained, received, 45 + shift, 15 + shift, 1234567.5, 2345678.0 + seed, f"{seed:02x}")


OUTCOMES = [
    outcome("fedavg", 0, 1.0),
    outcome("my_own", 0, -2.0),
    outcome("fedavg", 1, 1.7),
    outcome("my_own", 1, -1.1),
    outcome("fedavg", 2, 0.3),
]
ROWS = tabulate(OUTCOMES)
WIDTHS = ("int8", "int12", "float32")


def read_csv(text: str) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    lines = list(reader)
    assert reader.fieldnames is not None
    assert len(set(reader.fieldnames)) == len(reader.fieldnames)
    assert all(None not in line and None not in line.values() for line in lines), "as many cells as headings"
    return lines


def test_the_csv_table_has_the_numbers_of_the_rows() -> None:
    lines = read_csv(records_csv(table_records(ROWS, "fedavg")))
    assert [(line["method"], line["seeds"]) for line in lines] == [("fedavg", "3"), ("my_own", "2")]
    for row, line in zip(ROWS, lines, strict=True):
        estimates = {**row.widths, "gap": row.gap, "average": row.average, "average as received": row.received}
        for name, value in estimates.items():
            assert value is not None
            assert float(line[name]) == pytest.approx(value.mean, abs=5e-5), name
            assert float(line[f"{name} ±"]) == pytest.approx(value.half, abs=5e-5), name
        assert float(line["bytes up a round"]) == row.bytes_up
        assert float(line["bytes down a round"]) == row.bytes_down
    assert (lines[0]["average against fedavg"], lines[0]["average against fedavg ±"]) == ("", "")
    assert float(lines[1]["average against fedavg"]) == pytest.approx(-2.9)
    assert float(lines[1]["average against fedavg ±"]) == pytest.approx(12.7062 * 0.1, abs=1e-4)


def test_the_csv_of_runs_has_a_line_for_each() -> None:
    lines = read_csv(records_csv(run_records(OUTCOMES)))
    assert len(lines) == len(OUTCOMES)
    for one, line in zip(OUTCOMES, lines, strict=True):
        assert (line["method"], int(line["seed"]), line["weights_sha256"]) == (one.method, one.seed, one.weights_sha256)
        for width in WIDTHS:
            assert float(line[f"{width} trained"]) == pytest.approx(one.trained[width], abs=5e-5)
            assert float(line[f"{width} received"]) == pytest.approx(one.received[width], abs=5e-5)
        assert float(line["average trained"]) == pytest.approx(one.average, abs=5e-5)
        assert float(line["average received"]) == pytest.approx(one.average_received, abs=5e-5)
        assert float(line["bytes up a round"]) == one.bytes_up


def test_records_are_flat_and_have_the_columns_of_the_files() -> None:
    comparison = Comparison(Path("c"), ROWS, OUTCOMES, {}, "fedavg")
    assert [record["average"] for record in comparison.table()] == [pytest.approx(46.0), pytest.approx(43.45)]
    assert comparison.table()[0]["average against fedavg"] is None
    assert comparison.runs()[2]["int12 trained"] == 51.8235
    for records, text in (
        (comparison.table(), records_csv(table_records(ROWS, "fedavg"))),
        (comparison.runs(), records_csv(run_records(OUTCOMES))),
    ):
        assert all(isinstance(value, str | int | float | None) for record in records for value in record.values())
        assert [list(record) for record in records] == [list(line) for line in read_csv(text)]


def test_a_width_that_a_run_lacks_is_an_empty_cell() -> None:
    short = Outcome("local", 0, {"int8": 40.0}, {"int8": 30.0}, 40.0, 30.0, 0.0, 0.0, "ff")
    lines = read_csv(records_csv(run_records([OUTCOMES[0], short])))
    assert [line["int12 trained"] for line in lines] == ["51.1235", ""]
    rows = tabulate([OUTCOMES[0], short])
    cells = [(line["int12"], line["int12 ±"]) for line in read_csv(records_csv(table_records(rows, "fedavg")))]
    assert cells == [("51.1235", ""), ("", "")], "one seed has no interval"
    assert "| local | 40.00 | – | – |" in table_markdown(CONFIG, rows, "fedavg")


def test_the_markdown_table_has_one_header_and_as_many_cells_in_every_row() -> None:
    text = table_markdown(CONFIG, ROWS, "fedavg")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert len(lines) == 2 + len(ROWS)
    assert {len(row) for row in cells} == {len(WIDTHS) + 7}
    assert cells[0] == ["method", *WIDTHS, "gap", "average", "against fedavg", "as received", "up", "down"]
    assert [row for row in cells if set("".join(row)) <= set("-:")] == [cells[1]]
    assert cells[3][0] == "my_own"
    assert cells[3][6] == "-2.90 ± 1.27 *"
    assert cells[3][8:] == ["1,234.6 kB", "2,345.7 kB"]
    assert text.endswith(f"\n\n{caption(CONFIG, ROWS)}\n")


def test_the_latex_table_has_as_many_columns_in_every_row() -> None:
    lines = table_latex(CONFIG, ROWS, "fedavg").splitlines()
    inner = lines[lines.index(r"\toprule") + 1 : lines.index(r"\bottomrule")]
    rows = [line for line in inner if line != r"\midrule"]
    assert len(rows) == 1 + len(ROWS)
    assert all(line.endswith(r" \\") for line in rows)
    assert {line.count("&") for line in rows} == {len(WIDTHS) + 6}
    assert rf"\begin{{tabular}}{{l{'r' * (len(WIDTHS) + 6)}}}" in lines
    assert lines[-1] == r"\end{tabular}"
    assert [line for line in lines if line.startswith("%")] == [f"% {caption(CONFIG, ROWS)}"]


def test_latex_gets_no_bare_underscore_and_only_ascii() -> None:
    text = table_latex(CONFIG, tabulate(OUTCOMES, "my_own"), "my_own")
    body = text.partition("\n")[2]
    assert r"against my\_own &" in body
    assert "\n" + r"my\_own & " in body
    assert body.count("_") == body.count(r"\_") == 2
    assert body.isascii()
    assert r" -- &" in body
    assert r"+2.90 \scriptsize($\pm$ 1.27)" in body


@pytest.mark.parametrize(
    ("outcomes", "seeds"), [(OUTCOMES, "2–3 seeds;"), (OUTCOMES[:4], "2 seeds;"), (OUTCOMES[:2], "1 seed;")]
)
def test_the_caption_says_what_was_compared(outcomes: list[Outcome], seeds: str) -> None:
    text = caption(CONFIG, tabulate(outcomes))
    assert all(fact in text for fact in ("tiny", "digits", CONFIG.clients, "7 rounds", seeds, prowd.__version__))


@pytest.mark.parametrize(
    ("value", "plain", "signed"),
    [
        (Estimate(1.5, 0.254, 3), "1.50 ± 0.25", "+1.50 ± 0.25"),
        (Estimate(-1.5, 0.256, 3), "-1.50 ± 0.26", "-1.50 ± 0.26"),
        (Estimate(80.0, None, 1), "80.00", "+80.00"),
        (None, "–", "–"),
    ],
)
def test_differences_have_signs(value: Estimate | None, plain: str, signed: str) -> None:
    assert interval(value) == plain
    assert interval(value, signed=True) == signed


def test_four_files_are_written_over_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "table.md").write_text("old", "utf-8")
    write_tables(tmp_path, CONFIG, ROWS, OUTCOMES, "fedavg")
    assert {file.name: file.read_text("utf-8") for file in tmp_path.iterdir()} == {
        "table.md": table_markdown(CONFIG, ROWS, "fedavg"),
        "table.csv": records_csv(table_records(ROWS, "fedavg")),
        "table.tex": table_latex(CONFIG, ROWS, "fedavg"),
        "runs.csv": records_csv(run_records(OUTCOMES)),
    }
