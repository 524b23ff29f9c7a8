"""The tables of the page, cell by cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prowd.views.report import cells
from prowd.views.report.cells import PageTable

from .directories import SESSION, absent, line, lines, only_group, write


def texts(table: PageTable) -> list[list[str]]:
    """All that is read, row by row."""
    assert all(len(row) == len(table.headings) for row in table.rows)
    return [list(row) for row in table.rows]


# The headline


def test_the_headline_of_several_methods(tmp_path: Path) -> None:
    accuracies = {"fedavg": [(0.2, 0.4), (0.3, 0.5)], "prowd": [(0.4, 0.5), (0.5, 0.6)]}
    for method, seeds in accuracies.items():
        for seed, (low, high) in enumerate(seeds):
            made = line(1, {"int8": low, "float32": high}, received={"int8": 0.1, "float32": 0.1}, up={"int8": 12345})
            write(tmp_path / f"{method}-{seed}", [made], method=method, seed=seed)
    table = cells.headline(only_group(tmp_path))
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
    assert list(table.numeric) == list(range(1, 10))
    assert "interval" in table.caption


def test_the_headline_of_a_single_run(tmp_path: Path) -> None:
    table = cells.headline(only_group(write(tmp_path / "a", lines(0.5))))
    assert "against" not in " ".join(table.headings)
    assert texts(table) == [["fedavg", "1", "50.00", "50.00", "+0.00", "50.00", "50.00", "4.0 kB", "4.0 kB"]]
    assert "interval" not in table.caption


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


def test_bytes_of_a_client_that_is_not_always_asked_or_is_lost(tmp_path: Path) -> None:
    """At first one of each width is asked, then both Int8 clients, of which one is lost: it is sent the model only."""
    rounds = [
        line(1, {}, up={"int8": 100, "float32": 400}, clients={1: (100, 150), 3: (400, 450)}, asked=2),
        line(2, {}, up={"int8": 100}, clients={0: (100, 150), 1: (0, 150)}, asked=2, lost=[absent(1)]),
    ]
    records = only_group(write(tmp_path / "a", rounds, cohort=2)).records
    found = [cells.bytes_a_client(records, width, way) for width in ("int8", "float32") for way in ("up", "down")]
    assert found == [100, 150, 400, 450]
    assert cells.bytes_a_client(records, "int4", "up") == 0


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
