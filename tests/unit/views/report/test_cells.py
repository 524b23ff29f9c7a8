"""The tables of the page, cell by cell: what is read, and by what they are sorted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from prowd.comparison import Outcome, tabulate
from prowd.views.report import cells
from prowd.views.report.cells import PageTable
from prowd.views.report.groups import gather
from prowd.views.report.paper import load
from prowd.views.report.tables import beside

from .directories import SESSION, absent, line, lines, only_group, write


def texts(table: PageTable) -> list[list[str]]:
    """All that is read, row by row."""
    assert all(len(row) == len(table.headings) for row in table.rows)
    return [[cell.text for cell in row] for row in table.rows]


# The headline


def test_the_headline_of_several_methods(tmp_path: Path) -> None:
    accuracies = {"fedavg": [(0.2, 0.4), (0.3, 0.5)], "prowd": [(0.4, 0.5), (0.5, 0.6)]}
    for method, seeds in accuracies.items():
        for seed, (low, high) in enumerate(seeds):
            made = line(1, {"int8": low, "float32": high}, received={"int8": 0.1, "float32": 0.1}, up={"int8": 12345})
            write(tmp_path / f"{method}-{seed}", [made], method=method, seed=seed)
    (table,) = cells.headline(only_group(tmp_path))
    # 12.71 is t of one degree of freedom: two values a point apart have an interval of ± 6.35 points
    assert list(table.headings) == [
        "method", "seeds", "int8", "float32", "gap", "average", "against fedavg", "as received", "up a round",
        "down a round",
    ]  # fmt: skip
    assert texts(table) == [
        ["fedavg", "2", "25.00 ± 63.53", "45.00 ± 63.53", "+20.00 ± 0.00", "35.00 ± 63.53", "–", "10.00 ± 0.00",
         "12.3 kB", "0.0 kB"],
        ["prowd", "2", "45.00 ± 63.53", "55.00 ± 63.53", "+10.00 ± 0.00", "50.00 ± 63.53", "+15.00 ± 0.00 *",
         "10.00 ± 0.00", "12.3 kB", "0.0 kB"],
    ]  # fmt: skip
    values = [cell.value for cell in table.rows[1]]
    assert values[0] is None
    assert values[1:] == pytest.approx([2, 45, 55, 10, 50, 15, 10, 12345, 0])
    assert table.numeric == set(range(1, 10))
    for words in ("mean ± 95 % confidence interval over the seeds", "differences to fedavg seed by seed"):
        assert words in table.caption


def test_the_headline_of_a_single_run(tmp_path: Path) -> None:
    (table,) = cells.headline(only_group(write(tmp_path / "a", lines(0.5))))
    assert "against" not in " ".join(table.headings)
    assert texts(table) == [["fedavg", "1", "50.00", "50.00", "+0.00", "50.00", "50.00", "4.0 kB", "4.0 kB"]]
    assert "interval" not in table.caption


def test_one_width_has_no_gap(tmp_path: Path) -> None:
    (table,) = cells.headline(only_group(write(tmp_path / "a", lines(0.5, clients="int4:1"), clients="int4:1")))
    assert texts(table) == [["fedavg", "1", "50.00", "–", "50.00", "50.00", "1.0 kB", "1.0 kB"]]


def test_a_width_that_nobody_measured_is_a_dash(tmp_path: Path) -> None:
    (table,) = cells.headline(only_group(write(tmp_path / "a", [line(1, {"int8": 0.5, "float32": math.nan})])))
    assert texts(table)[0][2:6] == ["50.00", "–", "–", "50.00"]
    assert table.rows[0][3].value is None


def test_without_accuracies_there_is_no_headline(tmp_path: Path) -> None:
    assert cells.headline(only_group(write(tmp_path / "a", [line(1, {})]))) == []


def test_a_printed_table_beside_ours() -> None:
    rows = tabulate([
        Outcome(method, seed, {"int8": low, "float32": low + 2}, {}, low + 1, 0.0, 0.0, 0.0, "")
        for method, low in (("fedavg", 70.0), ("prowd", 79.5)) for seed in (0, 1)
    ])  # fmt: skip
    shown = cells.printed(beside(load()[0], rows))  # of 50 % Int8 and 50 % Float32 clients
    assert shown.headings[:3] == ["method", "int8", "int8 printed"]
    assert shown.headings[-3:] == ["gain over fedavg", "gain over fedavg printed", "difference in gain"]
    found = {row[0]: dict(zip(shown.headings, row, strict=True)) for row in texts(shown)}
    assert (found["prowd"]["int8"], found["prowd"]["int8 printed"]) == ("79.50 ± 0.00", "82.87 ± 0.37")
    assert (found["prowd"]["gap"], found["prowd"]["gap printed"]) == ("+2.00 ± 0.00", "+3.12")
    assert (found["prowd"]["gain over fedavg"], found["prowd"]["gain over fedavg printed"]) == (
        "+9.50 ± 0.00 *",
        "+7.87 ± 0.42 *",
    )  # √(0.22² + 0.36²)
    assert found["prowd"]["difference in gain"] == "+1.63 ± 0.42 *"  # 9.50 − (84.43 − 76.56), √(0.22² + 0.36²)
    assert found["fedavg"]["gain over fedavg"] == "–"


# Bytes


def test_the_bytes_of_one_client(tmp_path: Path) -> None:
    rounds = [
        line(n, {}, up={"int8": 2000, "float32": 8000}, down={"int8": 4000, "float32": 16000},
             clients={0: (1000, 2000), 1: (1000, 2000), 2: (4000, 8000), 3: (4000, 8000)})
        for n in range(1, 101)
    ]  # fmt: skip
    table = cells.traffic(only_group(write(tmp_path / "a", rounds)))
    assert texts(table) == [
        ["fedavg", "int8", "2", "1.0 kB", "2.0 kB", "0.30 MB"],
        ["fedavg", "float32", "2", "4.0 kB", "8.0 kB", "1.20 MB"],
    ]
    assert [cell.value for cell in table.rows[1][2:]] == pytest.approx([2, 4000, 8000, 1.2])


# Who was missing


def test_absences_are_told_with_their_reasons(tmp_path: Path) -> None:
    rounds = [
        line(1, {}, lost=[absent(3, "float32", "no reply", attempt=2)]),
        line(2, {}, refused=[absent(0, "int8", "metric 'loss' is nan")], lost=[absent(1)]),
    ]
    write(tmp_path / "a", rounds)
    write(tmp_path / "b", [line(1, {}, lost=[absent(2, "float32", "gone")])], method="prowd", rounds=2, finished=False)
    table, count, vain = cells.absences(only_group(tmp_path))
    assert (count, vain) == (3, 1)
    assert texts(table) == [
        ["a", "1", "3", "float32", "lost, attempt 2", "no reply"],
        ["a", "2", "1", "int8", "lost", "no reply"],
        ["a", "2", "0", "int8", "refused", "metric 'loss' is nan"],
        ["b", "1", "2", "float32", "lost", "gone"],
    ]


def test_of_very_many_absences_the_first_are_told(tmp_path: Path) -> None:
    made = [line(n, {}, lost=[absent(client) for client in range(4)]) for n in range(1, 151)]
    table, count, _ = cells.absences(only_group(write(tmp_path / "a", made)))
    assert (count, len(table.rows)) == (600, 500)
    assert "(the first 500 of 600; rounds.jsonl has all)" in table.caption


# Settings and provenance


def test_settings_that_are_not_at_their_defaults(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "steps": 3, "batch": 64, "lowbit": {"rate": 3.25}, "augment": ["crop", "flip"], "data": "/home/me/my.npz",
        "options": {"tau": 1}, "mystery": [1, 2],
    }  # fmt: skip
    write(tmp_path / "a", lines(0.5), **settings, method_sha256="ab", kernel="simulated", device="cpu")
    write(tmp_path / "b", lines(0.5), **settings, method="local", kernel="exact", device="cpu")
    table = cells.settings(only_group(tmp_path))
    found = {row[0]: row[1] for row in texts(table)}
    assert found == {
        "clients": "int8:2, float32:2",
        "rounds": "1",
        "data": "my.npz",
        "steps": "3",
        "lowbit.rate": "3.25",
        "augment": "crop, flip",
        "mystery": "1, 2",
        "options.tau of fedavg": "1",
        "options.tau of local": "1",
    }


def test_provenance_has_a_line_for_each_session(tmp_path: Path) -> None:
    second = {**SESSION, "commit": "fedcba9876543210", "machine": {"system": "Mac", "cores": None}, "round": 1}
    write(tmp_path / "a", lines(0.5), seed=4, sessions=[SESSION, second])
    table = cells.provenance(only_group(tmp_path).records)
    machine = "Linux x86_64, Abacus, 8 cores, Python 3.11.7, PyTorch 2.13.0"
    assert texts(table) == [
        ["a", "4", "0.2.0", "0123456789ab+", "1", "2026-01-02 03:04", machine, "prowd run quick"],
        ["a", "4", "0.2.0", "fedcba987654", "2", "2026-01-02 03:04", "Mac", "prowd run quick"],
    ]


@pytest.mark.parametrize(
    "session", [{}, {"machine": [1], "commit": {"a": 1}, "version": None, "command": [[]]}], ids=str
)
def test_a_session_that_says_nothing(session: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "a", lines(0.5), sessions=[session])
    assert texts(cells.provenance(only_group(tmp_path).records)) == [["a", "0", "", "unknown", "", "", "", ""]]


def test_an_older_run_has_no_provenance(tmp_path: Path) -> None:
    write(tmp_path / "a", lines(0.5), sessions=[])
    assert cells.provenance(gather([tmp_path])[0][0].records).rows == []
