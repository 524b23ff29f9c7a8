"""The data as it is used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from prowd.config.schema import validate
from prowd.data import Dataset, from_arrays
from prowd.errors import ConfigError, DataError
from prowd.runs.build import as_arrays, as_used, assemble, elsewhere


def dataset(train: int = 40, test: int = 6, people: int = 0) -> Dataset:
    """Images that all differ: the n-th of the training set is n everywhere, those of the test set are 200 and more.

    Where there are people, example n is of person n mod people.
    """
    x = np.arange(train, dtype=np.uint8).reshape(-1, 1, 1, 1) * np.ones((1, 1, 8, 8), np.uint8)
    held = np.arange(200, 200 + test, dtype=np.uint8).reshape(-1, 1, 1, 1) * np.ones((1, 1, 8, 8), np.uint8)
    labels = np.arange(train) % 2
    of = np.arange(train) % people if people else None
    return from_arrays(x_train=x, y_train=labels, x_test=held, y_test=np.arange(test) % 2, name="mine", client=of)


def numbers(images: torch.Tensor) -> list[int]:
    return images[:, 0, 0, 0].tolist()


def test_without_validation_the_test_set_is_measured() -> None:
    used = as_used(validate({}), dataset())
    assert numbers(used.x_test) == list(range(200, 206))
    assert len(used.y_train) == 40


@pytest.mark.parametrize("seed", [0, 7])
def test_validation_takes_training_examples_and_no_test_example(seed: int) -> None:
    used = as_used(validate({"validation": 10, "seed": seed}), dataset())
    aside, rest = numbers(used.x_test), numbers(used.x_train)
    assert (len(aside), len(rest)) == (10, 30)
    assert sorted(aside + rest) == list(range(40))
    assert used.y_test.tolist() == [number % 2 for number in aside]
    assert used.y_train.tolist() == [number % 2 for number in rest]
    assert aside != list(range(30, 40)), "a file may be sorted by class"
    assert aside == numbers(as_used(validate({"validation": 10}), dataset()).x_test), "the same for every seed"


def test_of_those_set_aside_fewer_can_be_used() -> None:
    all_aside = numbers(as_used(validate({"validation": 10}), dataset()).x_test)
    assert numbers(as_used(validate({"validation": 10, "test_examples": 4}), dataset()).x_test) == all_aside[:4]


@pytest.mark.parametrize("count", [40, 41])
def test_something_must_be_left_to_train_on(count: int) -> None:
    with pytest.raises(ConfigError, match=f"^validation: {count} of mine; accepted: 0 to 39"):
        as_used(validate({"validation": count}), dataset())


@pytest.mark.parametrize("count", [-1, 1.5, "many"])
def test_validation_is_a_number_of_examples(count: object) -> None:
    with pytest.raises(ConfigError, match=r"^validation: "):
        validate({"validation": count})


def test_with_people_the_seed_decides_who_is_the_test_set() -> None:
    apart = [
        as_used(validate({"test_clients": 1, "seed": seed}), dataset(people=5)).x_test for seed in (0, 0, 1, 2, 3, 4)
    ]
    assert numbers(apart[0]) == numbers(apart[1])
    assert len({tuple(numbers(images)) for images in apart}) > 1
    assert all(len({number % 5 for number in numbers(images)}) == 1 for images in apart)


@pytest.mark.parametrize("validation", [0, 9])
def test_people_stay_with_their_examples(validation: int) -> None:
    config = validate({"validation": validation, "test_clients": 1, "test_examples": 7})
    used = as_used(config, dataset(people=5))
    assert used.client is not None
    assert used.test_client is not None
    assert used.client.tolist() == [number % 5 for number in numbers(used.x_train)]
    assert used.test_client.tolist() == [number % 5 for number in numbers(used.x_test)]


def test_by_person_client_n_is_person_n(tmp_path: Path) -> None:
    config = validate({"partition": "natural", "clients": "int8:2, float32:2", "buffer": 4, "own_test": 0.25})
    assembly = assemble(config, as_used(config, dataset(people=4)))
    for clients in (assembly.clients(tmp_path), elsewhere(config, assembly.dataset, tmp_path)()):
        for person in range(4):
            device = clients[person].device
            assert {number % 4 for number in numbers(device.train.images)} == {person}
            assert device.spec.num_examples == len(device.train)


def test_arrays_given_in_python_may_say_of_whom_they_are() -> None:
    given = {"x_train": np.zeros(2), "y_train": np.zeros(2), "client": torch.zeros(2)}
    assert sorted(as_arrays(given) or {}) == ["client", "x_train", "y_train"]
    for wrong in ({"x_train": 1, "y_train": 1}, {**given, "x_test": 1}, {**given, "clients": 1}):
        with pytest.raises(DataError, match=r"^data: \[.*; accepted: a dict of the arrays x_train, .* and client"):
            as_arrays(wrong)
