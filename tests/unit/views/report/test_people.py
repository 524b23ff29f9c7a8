"""Accuracy per person and class, what is taken for what, a day's bytes, and who holds what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prowd.runs.holdings import FILE
from prowd.views.report import people, whole
from prowd.views.report.cells import PageTable
from prowd.views.report.groups import Group

from .directories import line, lines, only_group, quick_report, write

MIX = "int8:1, float32:3"


def holdings(path: Path, **changes: Any) -> None:
    clients = [
        {"client": n, "width": width, "person": person, "examples": [n, 2 * n], "own": 1}
        for n, (width, person) in enumerate((("int8", 9), ("float32", 4), ("float32", 2), ("float32", 11)))
    ]
    held = {"classes": ["rest", "walk"], "clients": clients, "test": [3, 4], "test_people": [5], **changes}
    (path / FILE).write_text(json.dumps(held), "utf-8")


def measured(low: float, high: float) -> dict[str, Any]:
    """Of both widths the same things, ``low`` at Int8 and ``high`` at Float32."""
    return {
        "received": {"int8": low, "float32": high},
        "trained": {"int8": low, "float32": high},
        "clients": {"0": low, "1": high, "2": high, "3": high},
        "own": {"0": low, "3": high},
        "classes": {"int8": {"0": low, "1": 0.0}, "float32": {"0": high, "1": 0.5}},
        "people": {"int8": {"5": low}, "float32": {"5": high}},
        "confusion": {"int8": {"0_0": low, "0_1": 1 - low, "1_0": 1.0}, "float32": {"0_0": high, "1_1": 1.0}},
    }


def everything(table: PageTable) -> list[list[str]]:
    """All rows of a table, the total last."""
    assert table.has_bars
    return [*map(list, table.rows), list(table.total)]


@pytest.fixture
def group(tmp_path: Path) -> Group:
    for method, seed, low in (("fedavg", 0, 0.2), ("fedavg", 1, 0.4), ("prowd", 0, 0.6)):
        sent = {"int8": 1000, "float32": 9000}
        by_client = {0: (1000, 2000), **dict.fromkeys((1, 2, 3), (3000, 4000))}
        made = line(1, {}, up=sent, down=sent, clients=by_client, accuracy=measured(low, 1.0))
        holdings(write(tmp_path / f"{method}-{seed}", [made], clients=MIX, method=method, seed=seed))
    return only_group(tmp_path)


def test_people_never_seen_are_measured_by_all_models(group: Group) -> None:
    table = people.never_seen(group)
    assert table is not None
    assert list(table.headings) == ["person", "fedavg", "prowd"]
    # (0.2 + 3 · 1)/4 = 0.8 and (0.4 + 3)/4 = 0.85 over two seeds; (0.6 + 3)/4 = 0.9
    assert everything(table) == [["person 5", "82.5", "90.0"], ["all of them", "82.5", "90.0"]]


def test_owners_are_named_by_person_in_the_order_of_numbers(group: Group) -> None:
    table = people.by_person(group)
    assert table is not None
    assert everything(table) == [
        ["person 9", "30.0", "60.0"],
        ["person 11", "100.0", "100.0"],
        ["all of them", "65.0", "80.0"],
    ]


def test_every_client_is_measured_on_the_common_test_set(group: Group) -> None:
    table = people.by_client(group)
    assert table is not None
    assert everything(table) == [
        ["person 2", "100.0", "100.0"],
        ["person 4", "100.0", "100.0"],
        ["person 9", "30.0", "60.0"],
        ["person 11", "100.0", "100.0"],
        ["all of them", "82.5", "90.0"],
    ]


def test_classes_have_names_and_a_balanced_mean(group: Group) -> None:
    table = people.by_class(group)
    assert table is not None
    assert everything(table) == [
        ["rest", "82.5", "90.0"],
        ["walk", "37.5", "37.5"],
        ["balanced: the mean of these", "60.0", "63.8"],
    ]


def test_a_day_has_a_round_an_hour(group: Group) -> None:
    rows = [list(row) for row in people.a_day(group).rows]
    assert rows[:2] == [
        ["fedavg", "int8", "24.0 kB", "48.0 kB", "72.0 kB"],
        ["fedavg", "float32", "72.0 kB", "96.0 kB", "168.0 kB"],
    ]


def test_what_is_taken_for_what_is_drawn_for_every_method(group: Group) -> None:
    drawing = people.confusion(group)
    assert drawing is not None
    titles = [axes.get_title() for axes in drawing.figure.axes]
    assert titles == ["fedavg", "prowd"]
    texts = [text.get_text() for text in drawing.figure.axes[1].texts]
    assert texts == ["90", "10", "25", "75"], "rows are what it is"
    assert [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()] == ["rest", "walk"]


def test_who_holds_what_is_drawn(group: Group) -> None:
    drawing = people.held(group)
    assert drawing is not None
    names = [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()]
    assert names[0] == "client 0: person 9, int8"
    assert [text.get_text() for text in drawing.figure.axes[0].texts] == ["1", "2", "2", "4", "3", "6"]
    assert "4 more are held out" in drawing.caption
    assert "The 7 test examples are of people 5." in drawing.caption


def test_the_page_opens_with_what_a_clinic_would_ask(group: Group, tmp_path: Path) -> None:
    titles = [part.title for part in whole._parts(group) if part.opens]
    assert titles == ["Accuracy per person", "What is taken for what", "Bytes a day"]
    text = quick_report([tmp_path], tmp_path / "report").page.read_text("utf-8")
    places = [text.index(f">{title}</h3>") for title in (*titles, "Methods", "Accuracy", "Who holds what")]
    assert places == sorted(places)


def test_a_run_that_measured_no_details_has_none_of_it(tmp_path: Path) -> None:
    write(tmp_path / "old", lines(0.5, 0.6))
    group = only_group(tmp_path)
    assert [people.never_seen(group), people.by_person(group), people.by_class(group)] == [None] * 3
    assert people.confusion(group) is None
    assert people.held(group) is None
    assert not any(part.opens for part in whole._parts(group))


@pytest.mark.parametrize("pairs", [{"0_999999999": 1.0}, {"5_0": 0.5}])
def test_classes_beyond_those_named_are_numbered_or_left_out(pairs: dict[str, float], tmp_path: Path) -> None:
    accuracy = {**measured(0.5, 0.5), "confusion": {"int8": pairs}}
    holdings(write(tmp_path / "run", [line(1, {}, accuracy=accuracy)], clients=MIX))
    drawing = people.confusion(only_group(tmp_path))
    assert (drawing is None) == ("0_999999999" in pairs)


def test_clients_without_a_person_are_clients(tmp_path: Path) -> None:
    write(tmp_path / "run", [line(1, {}, accuracy=measured(0.5, 1.0))], clients=MIX)
    table = people.by_person(only_group(tmp_path))
    assert table is not None
    assert [row[0] for row in everything(table)] == ["client 0", "client 3", "all of them"]
