"""Who holds what, as a run writes it down."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import prowd
from prowd.runs.holdings import FILE, Holding, Holdings, read_holdings
from tests.runs import TINY, arrays, rounds, run_tiny, summary


def test_every_partition_is_written_down(tmp_path: Path) -> None:
    path = run_tiny(tmp_path / "run", rounds=1, own_test=0.3).path
    found = read_holdings(path)
    assert found is not None
    assert found.classes == ("0", "1", "2")
    assert [one.client for one in found.clients] == [0, 1, 2, 3]
    assert [one.width for one in found.clients] == ["int8", "int8", "float32", "float32"]
    assert all(one.examples == (4, 4, 4) and one.own == 6 and one.person is None for one in found.clients)
    assert (found.test, found.test_people) == ((6, 6, 6), ())


def test_an_uneven_partition_is_written_down(tmp_path: Path) -> None:
    found = read_holdings(run_tiny(tmp_path / "run", rounds=1, partition="dirichlet", alpha=0.3).path)
    assert found is not None
    held = np.array([one.examples for one in found.clients])
    assert held.sum(0).tolist() == [28, 28, 28], "all but the server's six"
    assert len({tuple(row) for row in held.tolist()}) == 4


def test_people_are_named_and_measured(tmp_path: Path) -> None:
    data = {**arrays(), "client": 10 + np.arange(90) % 5}
    settings = {**TINY, "partition": "natural", "test_clients": 1, "measure": "classes", "own_test": 0.2, "rounds": 2}
    path = prowd.run("quick", data=data, out=tmp_path / "run", workers=1, **settings).path
    found = read_holdings(path)
    assert found is not None
    people = [one.person for one in found.clients]
    assert sorted([*filter(None, people), *found.test_people]) == [10, 11, 12, 13, 14]
    first, last = rounds(path)
    assert set(first["accuracy"]) == {
        "received", "trained", "server", "clients", "own", "classes", "people", "balanced",
    }  # fmt: skip
    assert set(last["accuracy"]) - set(first["accuracy"]) == {"confusion"}
    assert [*last["accuracy"]["people"]["int8"]] == [str(found.test_people[0])]
    measured = summary(path)["measured"]
    assert set(measured) == {"clients", "own", "classes", "people", "confusion", "balanced"}
    assert set(measured["own"]) == {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"classes": [], "clients": [], "test": []}', '{"classes": ["a"], "clients": 3, "test": [1]}'],
)
def test_what_cannot_be_read_is_not_there(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text, "utf-8")
    assert read_holdings(tmp_path) is None
    assert read_holdings(tmp_path / "nowhere") is None


def test_numbers_are_there_for_every_class() -> None:
    one = Holding(client=0, width="int8", examples=(1, 2))
    with pytest.raises(ValueError, match="not a number for every class"):
        Holdings(classes=("a",), clients=(one,), test=(1,))
