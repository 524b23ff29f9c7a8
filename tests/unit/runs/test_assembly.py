"""The data as it is used."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from prowd.config.schema import validate
from prowd.data import Dataset, from_arrays
from prowd.errors import ConfigError
from prowd.runs.build import as_used


def dataset(train: int = 40, test: int = 6) -> Dataset:
    """Images that all differ: the n-th of the training set is n everywhere, those of the test set are 200 and more."""
    x = np.arange(train, dtype=np.uint8).reshape(-1, 1, 1, 1) * np.ones((1, 1, 8, 8), np.uint8)
    held = np.arange(200, 200 + test, dtype=np.uint8).reshape(-1, 1, 1, 1) * np.ones((1, 1, 8, 8), np.uint8)
    labels = np.arange(train) % 2
    return from_arrays(x_train=x, y_train=labels, x_test=held, y_test=np.arange(test) % 2, name="mine")


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
