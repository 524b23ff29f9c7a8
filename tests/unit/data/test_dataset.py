from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from prowd.data import Dataset, from_arrays
from prowd.errors import ConfigError, DataError
from prowd.nets.inputs import to_unit

Array = NDArray[Any]


def arrays(**changes: Any) -> dict[str, Any]:
    random = np.random.default_rng(0)
    good: dict[str, Any] = {
        "x_train": random.integers(0, 256, (6, 1, 4, 5), np.uint8),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": random.integers(0, 256, (2, 1, 4, 5), np.uint8),
        "y_test": np.array([2, 0]),
    }
    return {**good, **changes}


def floats(value: float = 0.0) -> Array:
    images = np.zeros((6, 1, 4, 5))
    images[1, 0, 2, 3] = value
    return images


def test_arrays_become_a_data_set() -> None:
    given = arrays()
    data = from_arrays(**given)
    assert (data.name, data.classes, data.image_shape) == ("arrays", 3, (1, 4, 5))
    assert data.x_train.dtype == torch.uint8
    assert data.y_train.dtype == data.y_test.dtype == torch.int64
    assert np.array_equal(data.x_test.numpy(), given["x_test"])
    assert data.x_train.data_ptr() == given["x_train"].ctypes.data, "shared, not copied"


@pytest.mark.parametrize("dtype", [">i2", "uint8", "uint64", "int32"])
def test_labels_of_any_integer_type(dtype: str) -> None:
    assert from_arrays(**arrays(y_train=arrays()["y_train"].astype(dtype))).y_train.tolist() == [0, 1, 2, 0, 1, 2]


def test_tensors_and_read_only_arrays_are_accepted() -> None:
    tensors: dict[str, Any] = {name: torch.from_numpy(values) for name, values in arrays().items()}
    frozen = arrays()
    for values in frozen.values():
        values.setflags(write=False)
    assert from_arrays(**tensors).digest() == from_arrays(**frozen).digest() == from_arrays(**arrays()).digest()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floats_become_int8_codes(dtype: torch.dtype) -> None:
    images = torch.linspace(-1, 1, 120).reshape(6, 1, 4, 5).to(dtype)
    data = from_arrays(**arrays(x_train=images, x_test=images[:2]))
    assert data.x_train.dtype == data.x_test.dtype == torch.int8
    exact = [round(Fraction(value) * 128) for value in images.double().flatten().tolist()]  # half to even
    assert data.x_train.flatten().tolist() == [max(-127, min(127, code)) for code in exact]
    assert torch.equal(data.x_test, data.x_train[:2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_round_half_to_even_and_never_to_minus_128(dtype: type[np.floating[Any]]) -> None:
    values = np.array([1.0, -1.0, 127.5 / 128, 0.5 / 128, 1.5 / 128, -0.5 / 128, -2.5 / 128, 0.0], dtype)
    images = np.resize(values, (6, 1, 4, 2))
    data = from_arrays(**arrays(x_train=images, x_test=images[:2]))
    assert data.x_train[0].flatten().tolist() == [127, -127, 127, 0, 2, 0, -2, 0]


def test_int8_codes_are_shared_as_they_are() -> None:
    codes = np.arange(-128, 112, dtype=np.int8).reshape(6, 1, 4, 10)
    data = from_arrays(**arrays(x_train=codes, x_test=codes[:2]))
    assert data.x_train.dtype == torch.int8
    assert data.x_train.data_ptr() == codes.ctypes.data
    assert data.x_train.flatten().tolist() == list(range(-128, 112))


def test_codes_and_the_floats_they_stand_for_are_the_same_data() -> None:
    codes = np.arange(-60, 60, dtype=np.int8).reshape(6, 1, 4, 5)
    values = codes.astype(np.float32) / 128
    one, other = (from_arrays(**arrays(x_train=images, x_test=images[:2])) for images in (codes, values))
    assert one.digest() == other.digest() != from_arrays(**arrays()).digest()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x_train": [1, 2]}, ["x_train", "list", "numpy array"]),
        ({"x_train": np.zeros((6, 4, 5), np.uint8)}, ["x_train", "(6, 4, 5)", "(N, C, H, W)"]),
        ({"x_test": np.zeros((0, 1, 4, 5), np.uint8)}, ["x_test", "(0, 1, 4, 5)", "(N, C, H, W)"]),
        ({"x_train": np.zeros((6, 1, 4, 5), np.int16)}, ["x_train", "int16", "uint8"]),
        ({"x_train": np.zeros((6, 1, 4, 5), object)}, ["x_train", "object", "uint8"]),
        ({"x_train": floats(1.5)}, ["x_train", "1.5", "[-1, 1]"]),
        ({"x_train": floats(float("nan"))}, ["x_train", "nan", "[-1, 1]"]),
        ({"x_train": floats(float("-inf"))}, ["x_train", "-inf", "[-1, 1]"]),
        ({"x_train": floats()}, ["x_test", "uint8", "int8"]),
        ({"x_test": np.zeros((2, 3, 4, 5), np.uint8)}, ["x_test", "(3, 4, 5)", "(1, 4, 5)"]),
        ({"y_train": np.zeros(5, int)}, ["y_train", "(5,)", "(6,)"]),
        ({"y_train": np.zeros((6, 1), int)}, ["y_train", "(6, 1)", "(6,)"]),
        ({"y_train": np.zeros(6)}, ["y_train", "float64", "integers"]),
        ({"y_train": np.zeros(6, bool)}, ["y_train", "bool", "integers"]),
        ({"y_train": np.array([0, 1, 2, 0, 1, -3])}, ["y_train", "-3", "0 to"]),
        ({"y_train": np.array([0, 1, 2, 0, 1, 2**63], np.uint64)}, ["y_train", str(2**63), "0 to"]),
        ({"y_train": np.array([0, 1, 3, 0, 1, 3])}, ["y_train", "3", "class 2", "every class"]),
        ({"y_train": np.array([0, 1, 2, 0, 1, 2**60])}, ["y_train", str(2**60), "class 3"]),
        ({"y_train": np.zeros(6, int), "y_test": np.zeros(2, int)}, ["y_train", "single class 0", "2 classes"]),
        ({"y_test": np.array([0, 3])}, ["y_test", "3", "0 to 2"]),
        ({"client": np.zeros(5, int)}, ["client", "(5,)", "one person an image, (6,)"]),
        ({"client": np.zeros(6)}, ["client", "float64", "integers from 0 or more"]),
        ({"client": np.array([0, 1, 2, 0, 1, -1])}, ["client", "the person -1", "0 or more"]),
        ({"x_test": None}, ["x_test", "NoneType", "numpy array"]),
        ({"x_test": None, "client": np.zeros(6, int)}, ["x_test", "NoneType", "numpy array"]),
    ],
)
def test_refusals_name_the_array_the_value_and_what_is_accepted(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        from_arrays(**arrays(**changes))
    assert all(word in str(caught.value) for word in [*words, "accepted: "]), caught.value


def test_where_the_number_of_classes_is_given_some_may_be_absent() -> None:
    gaps: dict[str, Any] = {"y_train": np.array([7, 7, 4, 7, 7, 7]), "y_test": np.array([0, 9])}
    assert from_arrays(**arrays(**gaps), classes=10).classes == 10
    for array, label in (("y_train", 10), ("y_test", 11)):
        labels = gaps[array].copy()
        labels[0] = label
        with pytest.raises(DataError, match=rf"^{array}: the label {label}; accepted: 0 to 9, the classes of the run$"):
            from_arrays(**arrays(**{**gaps, array: labels}), classes=10)


def test_digest_depends_on_contents_and_form_only() -> None:
    base = from_arrays(**arrays())
    assert base.digest() == from_arrays(**arrays(), name="other").digest()
    other = arrays()["x_test"].copy()
    other[0, 0, 0, 0] ^= 1
    reshaped = {name: arrays()[name].transpose(0, 1, 3, 2).copy() for name in ("x_train", "x_test")}
    swapped = arrays(y_test=np.array([0, 2]))
    others = [arrays(x_test=other), arrays(**reshaped), swapped]
    assert len({base.digest(), *(from_arrays(**each).digest() for each in others)}) == 4


def test_data_may_say_of_whom_it_is() -> None:
    people = np.array([7, 2, 2, 7, 0, 0], np.uint8)
    data = from_arrays(**arrays(client=people))
    assert data.client is not None
    assert (data.client.tolist(), data.people) == (people.tolist(), (0, 2, 7))
    others = [from_arrays(**arrays()), from_arrays(**arrays(client=people[::-1].copy()))]
    assert len({data.digest(), *(other.digest() for other in others)}) == 3


def test_only_such_data_may_lack_a_test_set() -> None:
    train = {name: values for name, values in arrays().items() if name.endswith("train")}
    data = from_arrays(**train, client=np.arange(6) % 2)
    assert (data.x_test.shape, data.y_test.shape) == ((0, *data.image_shape), (0,))
    with pytest.raises(DataError, match=r"^x_test: a NoneType"):
        from_arrays(**train)


def test_to_unit_spans_exactly_minus_one_to_one() -> None:
    unit = to_unit(torch.arange(256, dtype=torch.uint8))
    assert unit.dtype == torch.float32
    assert (float(unit[0]), float(unit[255])) == (-1.0, 1.0)
    assert torch.allclose(unit.diff(), torch.tensor(1 / 127.5), atol=1e-6)
    codes = to_unit(torch.arange(-128, 128).to(torch.int8))
    assert codes.tolist() == [code / 128 for code in range(-128, 128)]
    with pytest.raises(TypeError, match="float32"):
        to_unit(torch.rand(3))


def slow_shrink(image: Array, size: int) -> list[list[int]]:
    """Area average in exact fractions, rounded half to even as Python rounds a Fraction."""
    height, width = image.shape
    shares = [[Fraction(height, size), height], [Fraction(width, size), width]]

    def overlap(axis: int, new: int, old: int) -> Fraction:
        step = Fraction(shares[axis][0])
        return max(Fraction(0), min((new + 1) * step, Fraction(old + 1)) - max(new * step, Fraction(old)))

    area = Fraction(height, size) * Fraction(width, size)
    return [
        [
            round(
                sum(overlap(0, i, y) * overlap(1, j, x) * int(image[y, x]) for y in range(height) for x in range(width))
                / area
            )
            for j in range(size)
        ]
        for i in range(size)
    ]


@pytest.mark.parametrize(("shape", "size"), [((6, 6), 1), ((6, 6), 3), ((6, 6), 4), ((8, 6), 6), ((5, 7), 3)])
def test_resizing_is_the_exact_area_average(shape: tuple[int, int], size: int) -> None:
    random = np.random.default_rng(1)
    images = random.integers(0, 4, (6, 1, *shape), np.uint8)  # few grey levels, many ties
    data = from_arrays(**arrays(x_train=images, x_test=images[:2])).resized(size)
    assert data.x_train.dtype == torch.uint8
    assert data.x_train[:, 0].tolist() == [slow_shrink(image, size) for image in images[:, 0]]
    assert torch.equal(data.x_test, data.x_train[:2])


def test_resizing_large_images_is_exact_too() -> None:
    images = np.random.default_rng(2).integers(0, 256, (2, 1, 300, 300), np.uint8)
    data = from_arrays(images, np.array([0, 1]), images, np.array([0, 1])).resized(3)
    sums = images.reshape(2, 1, 3, 100, 3, 100).sum((3, 5), dtype=np.int64)
    assert np.array_equal(data.x_train.numpy(), np.round(sums / 10_000))


def test_resizing_codes_and_many_images() -> None:
    images = torch.randint(-128, 128, (2500, 2, 8, 8), generator=torch.Generator().manual_seed(1)).to(torch.int8)
    labels = torch.arange(2500) % 5
    data = from_arrays(images, labels, images[:7], labels[:7])
    small = data.resized(4)
    assert small.x_train.dtype == torch.int8
    assert torch.equal(small.x_train, torch.nn.functional.avg_pool2d(images.double(), 2).round().to(torch.int8))
    assert data.resized(8) is data


@pytest.mark.parametrize("size", [5, 0, -1])
def test_enlarging_is_refused(size: int) -> None:
    data: Dataset = from_arrays(**arrays())
    with pytest.raises(ConfigError, match=rf"input_size: {size} .*accepted: 1 to 4"):
        data.resized(size)
