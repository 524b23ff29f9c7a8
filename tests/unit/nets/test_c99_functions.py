"""The smaller functions of the compiled part of the c99 kernel, against the oracle in Python integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from prowd.data.augment import COSINES, SINES
from tests.kernels import missing_core
from tests.reference import integer_client as oracle

if reason := missing_core():
    pytest.skip(reason, allow_module_level=True)

from prowd.nets.lowbit import _core

words = st.integers(0, 2**32 - 1)
keys = st.tuples(words, words)


def exponentials(k: int) -> NDArray[np.uint32]:
    return np.array([oracle.exponential(n, k) for n in range(256)], np.uint32)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(2, 16), st.integers(-2, 8), st.integers(1, 6), st.integers(1, 12))
def test_cross_entropy_is_the_oracle_s(data: st.DataObject, s: int, scale: int, images: int, classes: int) -> None:
    codes = st.integers(-oracle.max_code(s), oracle.max_code(s))
    logits = np.array(data.draw(st.lists(codes, min_size=images * classes, max_size=images * classes)), np.int16)
    logits = logits.reshape(images, classes)
    labels = np.array([data.draw(st.integers(0, classes - 1)) for _ in range(images)], np.int32)
    errors, k = np.zeros((images, classes), np.int32), scale - (s - 1)
    tables = exponentials(k), exponentials(k + 8)
    loss = _core.cross_entropy(*tables, k, logits, labels, images, classes, errors)
    expected = [oracle.cross_entropy(z, y, s, scale) for z, y in zip(logits.tolist(), labels.tolist(), strict=True)]
    assert loss == sum(one for one, _ in expected)
    assert errors.tolist() == [one for _, one in expected]


@pytest.mark.parametrize("label", [-1, 5])
def test_a_label_is_one_of_the_classes(label: int) -> None:
    table, labels = np.zeros(256, np.uint32), np.array([0, label], np.int32)
    with pytest.raises(ValueError, match="labels"):
        _core.cross_entropy(table, table, 0, np.zeros((2, 5), np.int16), labels, 2, 5, np.zeros((2, 5), np.int32))


@settings(max_examples=100, deadline=None)
@given(keys, words, st.integers(0, 70))
def test_a_permutation_is_the_oracle_s(key: tuple[int, int], epoch: int, count: int) -> None:
    order = np.zeros(count, np.uint32)
    _core.permutation(*key, epoch, order)
    assert order.tolist() == oracle.permutation(key, epoch, count)


OPERATIONS = {"crop": 1, "flip": 2, "rotate": 4}
TURNS = np.array([*zip(COSINES, SINES, strict=True)], np.uint16)
shapes = st.tuples(st.integers(1, 3), st.integers(1, 17), st.integers(1, 17))


@settings(max_examples=150, deadline=None)
@given(st.data(), shapes, st.sets(st.sampled_from(sorted(OPERATIONS))), keys, words, words, st.booleans())
def test_a_varied_image_is_the_oracle_s(
    data: st.DataObject, shape: tuple[int, int, int], operations: set[str], key: tuple[int, int], step: int,
    number: int, is_signed: bool,
) -> None:  # fmt: skip
    random = np.random.default_rng(data.draw(words))
    image = random.integers(0, 256, shape).astype(np.uint8)
    varied, wanted = np.zeros_like(image), sum(OPERATIONS[name] for name in operations)
    _core.augment(image, *shape, wanted, TURNS, is_signed, *key, step, number, varied)
    drawn = oracle.philox((step, 0, number, 0), key)
    turn = oracle.turned(list(zip(COSINES, SINES, strict=True)), oracle.angle(drawn[3]))
    dtype = np.int8 if is_signed else np.uint8
    expected = oracle.augment(image.view(dtype).tolist(), sorted(operations), drawn, turn)
    assert varied.view(dtype).tolist() == expected


def test_sizes_of_an_image_are_positive() -> None:
    image = np.zeros(5, np.uint8)
    for shape in ((0, 1, 5), (-1, 1, -5), (1, 4096, 1)):
        with pytest.raises(ValueError, match="image"):
            _core.augment(image, *shape, 0, TURNS, False, 1, 2, 3, 4, image.copy())
