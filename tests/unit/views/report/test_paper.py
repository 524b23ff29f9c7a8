"""The printed numbers: complete, as printed, and every slip has its note."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from prowd.config.files import presets, read_settings, read_suggestion
from prowd.methods import METHODS
from prowd.numbers.bits import parse_mix
from prowd.views.report.paper import AVERAGE, GAP, PaperTable, load, tables_for

TABLES = {table.name: table for table in load()}
NAMES = ["table1-50-50", "table1-80-20", "table2", "table3-50-50", "table3-80-20"]
ROUNDING = 0.01 + 1e-9
Cell = tuple[str, str]

# From the paper, by hand: what is bound to be there whatever the sums say.
AVERAGES = {
    "table1-50-50": [72.71, 76.56, 70.22, 81.47, 76.53, 77.05, 73.46, 81.68, 84.43],
    "table1-80-20": [70.79, 76.87, 68.94, 77.74, 75.03, 75.82, 73.02, 71.85, 79.63],
    "table2": [69.50, 84.47, 84.40, 49.65, 64.70, 78.83, 79.38, 85.50],
    "table3-50-50": [75.83, 79.99, 82.84, 84.43],
    "table3-80-20": [76.87, 79.03, 78.90, 79.63],
}
ABLATION = ["fedavg", "prowd-deq", "prowd-swa", "prowd"]
GROUPED = ["fedgroupedavg", "fedgroupedavg-asymmetric"]
NINE = ["local", "fedavg", "fedprox", "fedpaq", "fedcom", "fedcomgate", *GROUPED, "prowd"]


def wrong_sums(table: PaperTable) -> Iterator[Cell]:
    """Gaps and averages that do not follow from the accuracies in their row."""
    low, *_, high = table.clients
    for method, row in table.methods.items():
        mean = sum(share * row[width].mean for width, share in table.clients.items()) / 100
        expected = {GAP: row[high].mean - row[low].mean, AVERAGE: mean}
        for column, value in expected.items():
            if column in row and abs(row[column].mean - value) > ROUNDING:
                yield method, column


def differing(table: PaperTable) -> Iterator[Cell]:
    """Numbers that an earlier table of the same federation prints otherwise."""
    for other in load():
        if other.name < table.name and other.clients == table.clients:
            for method in table.methods.keys() & other.methods.keys():
                shared = table.methods[method].keys() & other.methods[method].keys()
                for column in shared:
                    if table.methods[method][column] != other.methods[method][column]:
                        yield method, column


def noted(table: PaperTable, kind: str) -> list[Cell]:
    return sorted(cell for note in table.notes if note.kind == kind for cell in note.cells)


def test_the_tables_are_there_in_the_papers_order() -> None:
    assert list(TABLES) == NAMES
    assert {method for table in load() for method in table.methods} == set(METHODS) - {"prowd-plus"}


@pytest.mark.parametrize("name", NAMES)
def test_the_averages_are_those_of_the_paper_and_no_column_is_missing(name: str) -> None:
    table = TABLES[name]
    gap = [] if name.startswith("table3") else [GAP]
    assert {tuple(row) for row in table.methods.values()} == {(*table.clients, *gap, AVERAGE)}
    assert sum(table.clients.values()) == 100
    assert [row[AVERAGE].mean for row in TABLES[name].methods.values()] == AVERAGES[name]


@pytest.mark.parametrize("name", NAMES)
def test_every_wrong_sum_is_noted_and_no_right_one(name: str) -> None:
    table = TABLES[name]
    assert noted(table, "sum") == sorted(wrong_sums(table))
    assert noted(table, "again") == sorted(differing(table))


@pytest.mark.parametrize("name", NAMES)
def test_notes_on_bold_numbers_are_on_some_that_are_not_the_highest(name: str) -> None:
    table = TABLES[name]
    for method, column in noted(table, "best"):
        highest = max(row[column].mean for row in table.methods.values())
        assert table.methods[method][column].mean < highest


@pytest.mark.parametrize(
    ("methods", "names"),
    [
        (["fedavg", "prowd"], ["table1-50-50"]),
        (NINE, ["table1-50-50"]),
        (ABLATION, ["table3-50-50"]),
        (["fedavg", "prowd-deq"], ["table3-50-50"]),
        ([*ABLATION, "local"], ["table1-50-50", "table3-50-50"]),
        (["prowd-deq", "fedpaq"], ["table1-50-50", "table3-50-50"]),
        (["my_own"], []),
    ],
)
def test_a_table_is_shown_for_what_no_other_shows(methods: list[str], names: list[str]) -> None:
    assert [table.name for table in tables_for({"int8": 5, "float32": 5}, methods)] == names


@pytest.mark.parametrize(
    ("clients", "names"),
    [
        ("int8:1,float32:1", ["table1-50-50"]),
        ("int8:4, float32:1", ["table1-80-20"]),
        ("int8:1, float32:4", []),
        ("int8:79, float32:21", []),
        ("int6:3, int8:3, int12:2, int16:2", ["table2"]),
        ("int6:3, int8:3, int12:2, int16:2, float32:1", []),
    ],
)
def test_a_federation_is_known_by_its_shares(clients: str, names: list[str]) -> None:
    counts = Counter(map(str, parse_mix(clients)))
    assert [table.name for table in tables_for(counts, ["fedavg", "prowd"])] == names


@pytest.mark.parametrize("preset", sorted(presets()))
def test_presets_of_a_table_find_it(preset: str) -> None:
    settings, methods = read_settings(preset), read_suggestion(preset).methods
    name = preset.removesuffix("-cpu").replace("ablation", "table3")
    found = tables_for(Counter(map(str, parse_mix(settings["clients"]))), methods)
    if name.startswith("table"):
        assert [table.name for table in found] == [name]
        assert list(found[0].methods) == list(methods)
        assert found[0].uplink == settings["uplink"]
