"""Pickled arrays are read; nothing else that a pickle can ask for is done."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prowd.data.pickles import read_pickle
from prowd.errors import DataError

ALL = ("u1", "i8", "f8", "O8")


class Attack:
    """Pickles as a call of Path.mkdir: what runs when it is read carelessly."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64])
def test_arrays_come_back_as_they_were(dtype: type[np.generic], order: Any, protocol: int) -> None:
    values = np.arange(12).reshape(3, 4).astype(dtype, order=order)
    held = read_pickle(pickle.dumps({"X": [values], "name": "x"}, protocol), ALL)
    assert held["name"] == "x"
    found = held["X"][0].values
    assert (found.dtype, found.tolist()) == (values.dtype, values.tolist())


def test_an_array_of_objects_is_the_list_of_them() -> None:
    held = np.empty((), object)
    held[()] = {"X": [np.arange(3)]}
    (found,) = read_pickle(pickle.dumps(held, 2), ALL).values
    assert found["X"][0].values.tolist() == [0, 1, 2]


def test_no_name_in_a_pickle_is_looked_up_but_those_of_arrays(tmp_path: Path) -> None:
    held = np.empty((), object)
    held[()] = {"X": [np.arange(3), Attack(tmp_path / "made")]}
    with pytest.raises(DataError, match=r"asks for \w+\.\w+"):
        read_pickle(pickle.dumps(held, 2), ALL)
    assert not (tmp_path / "made").exists()
    pickle.loads(pickle.dumps(Attack(tmp_path / "made")))
    assert (tmp_path / "made").exists(), "read carelessly, it would have run"


@pytest.mark.parametrize("values", [np.zeros(2, np.float32), np.zeros(2, "M8[s]"), np.zeros(2, object)])
def test_types_that_were_not_asked_for_are_refused(values: Any) -> None:
    with pytest.raises(DataError, match=r"a pickled array of type '.*'; accepted: u1, i8"):
        read_pickle(pickle.dumps(values, 2), ("u1", "i8"))


def test_other_byte_orders_are_refused() -> None:
    with pytest.raises(DataError, match="highest byte first"):
        read_pickle(pickle.dumps(np.zeros(2, ">f8"), 2), ALL)
