"""Windows three columns wide, two columns of outputs at a time, against a few lines of numpy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tests.kernels import missing

if reason := missing():
    pytest.skip(reason, allow_module_level=True)

from prowd.nets.lowbit import _native

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
UNTOUCHED = 77
RUN = 64  # pairs of products of bytes up to 254: 65 · 2 · 254 is above 2^15
each_kernel = pytest.mark.parametrize("number", [number for _, number, _ in _native.kernels()])


@dataclass(frozen=True)
class Size:
    """Positions, and how much is computed at each."""

    images: int
    rows: int
    columns: int
    kernel_rows: int
    channels: int
    outputs: int
    together: int
    """Images that the room holds."""
    spare: int = 0
    """Bytes of the room besides."""


SIZES = {
    "one pair": Size(1, 2, 2, 1, 16, 16, 1),
    "groups of images": Size(7, 2, 4, 3, 16, 32, 3, spare=5),
    "room to spare": Size(3, 4, 2, 2, 16, 32, 9),
    "one vector left": Size(2, 4, 6, 4, 32, 80, 2),
    "many pairs": Size(2, 6, 14, 2, 48, 48, 1),
    "long rows": Size(1, 2, 70, 3, 16, 96, 1),
    "high images": Size(2, 38, 2, 3, 32, 16, 2),
}


def forward(
    number: int, x: Ints, t: Ints, shift: int, *, largest: int = 127, relu: bool = True, recorded: bool = False,
    pool: bool = False, together: int = 1, spare: int = 0, run: int = RUN,
) -> tuple[Bytes, Bytes]:  # fmt: skip
    """Codes [image][row][column][output] with room around them, and passes; x is [image][row][column][channel], t is
    [output][row][column][channel]."""
    (outputs, high, _, channels), (images, rows, columns, _) = t.shape, x.shape
    positions = (images, rows - high + 1, columns - 2)
    ternary, packed = np.empty(t.size, np.int8), np.empty(t.size // 3 * 4, np.int8)
    start, weights = np.empty(4 * outputs, np.int32), (outputs, channels, 3 * high, outputs, channels)
    codes = np.ascontiguousarray(t.reshape(outputs, 3 * high, channels).transpose(0, 2, 1)).astype(np.int16)
    _native.pack(number, codes, weights, 1, largest, False, True, ternary, packed, start, None, None)
    side = 2 if pool else 1
    out = np.full((images, positions[1] // side + 2, positions[2] // side + 3, outputs + 16), UNTOUCHED, np.uint8)
    passes = np.full((*positions, outputs), UNTOUCHED, np.uint8)
    room = np.empty(together * rows * (columns - 2) * 2 * channels + spare, np.uint8)
    given = x.astype(np.uint8)
    _native.forward(
        number, given, strides(given), positions, high, given.strides[1], 3 * channels, run, packed, start, outputs,
        out, out.strides[1] + out.strides[2], strides(out), passes if recorded else None, shift, largest, relu, room,
        pool,
    )  # fmt: skip
    return out, passes


def strides(array: NDArray[Any]) -> tuple[int, int, int]:
    return array.strides[0], array.strides[1], array.strides[2]


def expected(x: Ints, t: Ints, shift: int, largest: int, relu: bool) -> tuple[Ints, Ints]:
    sums = np.einsum("nyxcij,oijc->nyxo", sliding_window_view(x, t.shape[1:3], (1, 2)), t)
    rounded = np.rint(sums / 2.0**shift)  # half to even
    codes = np.clip(rounded, 0 if relu else -largest, largest)
    passes = (rounded == codes) & (codes > 0 if relu else True)
    return np.asarray(codes + (0 if relu else 128), np.int64), np.asarray(255 * passes, np.int64)


def largest_of_windows(codes: Ints) -> Ints:
    images, rows, columns, outputs = codes.shape
    return np.asarray(codes.reshape(images, rows // 2, 2, columns // 2, 2, outputs).max((2, 4)))


def assert_inside(out: Bytes, codes: Ints) -> None:
    found = np.full(out.shape, UNTOUCHED)
    found[:, 1:-1, 1:-2, :-16] = codes
    assert np.array_equal(out, found)


@each_kernel
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("largest", [1, 7, 127])
def test_pairs_of_columns_are_the_columns(name: str, relu: bool, largest: int, number: int) -> None:
    size, random = SIZES[name], np.random.default_rng(largest)
    shape = (size.images, size.rows + size.kernel_rows - 1, size.columns + 2, size.channels)
    x = random.integers(0, largest + 1, shape)
    t = random.integers(-1, 2, (size.outputs, size.kernel_rows, 3, size.channels))
    shift = round(math.log2(0.47 * math.sqrt(t[0].size)))  # many sums are clipped
    codes, passes = expected(x, t, shift, largest, relu)
    assert len(np.unique(passes)) == 2
    for recorded in (True, False):
        out, found = forward(
            number, x, t, shift, largest=largest, relu=relu, recorded=recorded, together=size.together, spare=size.spare
        )
        assert_inside(out, codes)
        assert np.array_equal(found, passes) if recorded else np.all(found == UNTOUCHED)
    out, _ = forward(
        number, x, t, shift, largest=largest, relu=relu, pool=True, together=size.together, spare=size.spare
    )
    assert_inside(out, largest_of_windows(codes))


def repeated(columns: tuple[int, ...], shape: tuple[int, ...], axis: int) -> Ints:
    """Columns over and over, all rows and channels alike."""
    numbers = np.resize(columns, shape[axis]).reshape([-1 if at == axis else 1 for at in range(len(shape))])
    return np.ascontiguousarray(np.broadcast_to(numbers, shape))


EXTREMES = {
    "sums": ((127,), (1, 1, 1)),
    "rises": ((0, 0, 127, 127), (1, -1, 1)),
    "falls": ((127, 127, 0, 0), (1, -1, 1)),
    "rises in between": ((127, 0), (1, -1, 1)),
    "falls in between": ((0, 127), (1, -1, 1)),
    "steps": ((127, 127, 0, 0), (1, 0, 1)),
    "other steps": ((0, 127, 127, 0), (1, 0, -1)),
}


@each_kernel
@pytest.mark.parametrize("kind", EXTREMES)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("rows", "channels"), [(3, 16), (4, 16), (1, 80), (1, 96), (3, 32), (2, 64), (3, 64), (1, 256), (1, 272), (3, 128)]
)
def test_extreme_sums(kind: str, sign: int, rows: int, channels: int, number: int) -> None:
    """A 16-bit sum holds 21 pairs of 3 · 254, or 64 of 254, and not one more; nothing is clipped here."""
    columns, weights = EXTREMES[kind]
    x, t = repeated(columns, (2, rows + 1, 10, channels), 2), sign * repeated(weights, (32, rows, 3, channels), 2)
    shift = math.ceil(math.log2(3 * rows * channels))
    codes, passes = expected(x, t, shift, 127, False)
    assert np.all(passes == 255)
    out, found = forward(number, x, t, shift, relu=False, recorded=True)
    assert_inside(out, codes)
    assert np.all(found == 255)


@each_kernel
@pytest.mark.parametrize("run", [3, 4, 11, 20, 35, 36, 37, 63])
@pytest.mark.parametrize("channels", [16, 48])
def test_shorter_runs_give_the_same_sums(run: int, channels: int, number: int) -> None:
    random = np.random.default_rng(run)
    x, t = random.integers(0, 128, (2, 5, 8, channels)), random.integers(-1, 2, (48, 3, 3, channels))
    codes, _ = expected(x, t, 4, 127, False)
    assert_inside(forward(number, x, t, 4, relu=False, run=run)[0], codes)
