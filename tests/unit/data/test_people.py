"""People who are never seen in training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prowd.data import Dataset, from_arrays, set_apart
from prowd.errors import ConfigError


def dataset(people: int = 10, test: int = 0, each: int = 3) -> Dataset:
    """Example n is n everywhere, and of person n mod people."""
    x = np.arange(people * each, dtype=np.uint8).reshape(-1, 1, 1, 1)
    labels = np.arange(people * each) // people % 2
    own: dict[str, Any] = {"x_test": x[:test], "y_test": labels[:test]} if test else {}
    return from_arrays(x, labels, client=np.arange(people * each) % people, name="mine", **own)


def whose(images: torch.Tensor, people: int) -> set[int]:
    return {number % people for number in images.flatten().tolist()}


@given(st.integers(3, 30), st.integers(0, 2**40), st.data())
@settings(deadline=None, max_examples=60)
def test_nobody_is_on_both_sides_and_everybody_on_one(people: int, seed: int, data: st.DataObject) -> None:
    most = people - round(0.4 * people)
    count = data.draw(st.integers(1, min(most, people - 1)))
    used = set_apart(dataset(people), count, 0, seed)
    aside = whose(used.x_test, people)
    assert len(aside) == count
    assert aside | set(used.people) == set(range(people)) == aside | whose(used.x_train, people)
    assert not aside & whose(used.x_train, people)
    assert used.client is not None
    assert used.test_client is not None
    for images, labels, of in ((used.x_train, used.y_train, used.client), (used.x_test, used.y_test, used.test_client)):
        numbers = images.flatten().long()
        assert torch.equal(of, numbers % people)
        assert torch.equal(labels, numbers // people % 2)


def test_who_they_are_and_who_has_which_device_changes_with_the_seed() -> None:
    drawn = [set_apart(dataset(), 2, 0, seed) for seed in range(12)]
    assert len({tuple(sorted(whose(one.x_test, 10))) for one in drawn}) > 4
    assert len({one.people for one in drawn}) > 10
    again = set_apart(dataset(), 2, 0, 3)
    assert (again.people, again.digest()) == (drawn[3].people, drawn[3].digest())


def test_nobody_on_whom_a_setting_was_chosen_is_ever_a_test_person() -> None:
    tested = {person for seed in range(100) for person in whose(set_apart(dataset(), 2, 0, seed).x_test, 10)}
    chosen = {person for seed in range(100) for person in whose(set_apart(dataset(), "auto", 2, seed).x_test, 10)}
    assert (len(tested), len(chosen)) == (6, 4)
    assert not tested & chosen


def test_a_fifth_is_set_apart_where_there_is_no_test_set_and_nobody_where_there_is() -> None:
    assert len(whose(set_apart(dataset(), "auto", 0, 0).x_test, 10)) == 2
    with_tests = dataset(test=4)
    assert set_apart(with_tests, "auto", 0, 0) is with_tests
    assert with_tests.people == tuple(range(10)), "client n is person n"
    assert len(set_apart(with_tests, 3, 0, 0).people) == 7


@pytest.mark.parametrize(
    ("test", "validation", "message"),
    [
        (0, 0, r"^test_clients: 0 of 10 people; accepted for mine: 1 to 6$"),
        (7, 0, r"^test_clients: 7 of 10 people; accepted for mine: 1 to 6$"),
        (2, 5, r"^validation_clients: 5 of 10 people; accepted for mine: 1 to 4$"),
    ],
)
def test_impossible_numbers_are_refused(test: int, validation: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        set_apart(dataset(), test, validation, 0)


def test_data_that_does_not_say_of_whom_it_is_has_no_people_to_set_apart() -> None:
    x, y = np.zeros((4, 1, 2, 2), np.uint8), np.array([0, 1, 0, 1])
    plain = from_arrays(x, y, x, y, name="mine")
    assert set_apart(plain, "auto", 0, 5) is plain
    with pytest.raises(ConfigError, match=r"^test_clients: 2 of mine, which does not say of whom it is; accepted: 0"):
        set_apart(plain, 2, 0, 0)
    with pytest.raises(ConfigError, match=r"^validation_clients: 1 of mine"):
        set_apart(plain, "auto", 1, 0)
