"""Windows three columns wide, two columns of outputs at a time, against a few lines of numpy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tests.kernels import make_layer, memory, missing

if reason := missing():
    pytest.skip(reason, allow_module_level=True)

from prowd.nets.lowbit import _native
from prowd.nets.lowbit._native import OFFSET

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
UNTOUCHED = 77
POOL = (2, 2, 2, 2)
each_kernel = pytest.mark.parametrize("instructions", _native.kernels())


@dataclass(frozen=True)
class Size:
    """Positions, and how much is computed at each."""

    images: int
    rows: int
    columns: int
    kernel_rows: int
    channels: int
    outputs: int


SIZES = {
    "one pair": Size(1, 2, 2, 1, 16, 16),
    "groups of images": Size(20, 2, 4, 3, 16, 32),
    "few images": Size(3, 4, 2, 2, 16, 32),
    "one vector left": Size(2, 4, 6, 4, 32, 80),
    "many pairs": Size(2, 6, 14, 2, 48, 48),
    "long rows": Size(1, 2, 70, 3, 16, 96),
    "high images": Size(2, 38, 2, 3, 32, 16),
}


def forward(
    instructions: str, x: Ints, t: Ints, shift: int, *, largest: int = 127, relu: bool = True, recorded: bool = False,
    pool: bool = False,
) -> tuple[Bytes, Bytes]:  # fmt: skip
    """Codes [image][row][column][output] with borders around them, and passes; x is [image][row][column][channel], t
    is [output][row][column][channel]."""
    (outputs, high, _, channels), (images, rows, columns, _) = t.shape, x.shape
    side = 2 if pool else 1
    following = make_layer(
        instructions, inputs=outputs, image=((rows - high + 1) // side, (columns - 2) // side), images=images,
        largest=largest, signed=not relu, pool=POOL if pool else (1, 1, 1, 1),
    )  # fmt: skip
    layer = make_layer(
        instructions, largest * np.ascontiguousarray(t.transpose(0, 3, 1, 2)).astype(np.int16), images=images,
        largest=largest, inputs=channels, outputs=outputs, image=(rows, columns), kernel=(high, 3), padding=(0, 0),
        shift=shift, relu=relu, following=following,
    )  # fmt: skip
    layer.pack()
    memory(layer, "received")[:] = x
    out, passes = memory(following, "received"), memory(following, "passes")
    for array in (out, passes, *([memory(layer, "given")] if pool else [])):
        array[:] = UNTOUCHED
    layer.forward(images, recorded)
    assert memory(layer, "room").shape[1:] == (rows, columns // 2 - 1, 4 * channels)
    assert not pool or np.all(memory(layer, "given") == UNTOUCHED), "pooled in a pass of its own"
    return out, passes


def expected(x: Ints, t: Ints, shift: int, largest: int, relu: bool) -> tuple[Ints, Ints]:
    sums = np.einsum("nyxcij,oijc->nyxo", sliding_window_view(x, t.shape[1:3], (1, 2)), t)
    rounded = np.rint(sums / 2.0**shift)  # half to even
    codes = np.clip(rounded, 0 if relu else -largest, largest)
    passes = (rounded == codes) & (codes > 0 if relu else True)
    return np.asarray(codes + (0 if relu else OFFSET), np.int64), np.asarray(255 * passes, np.int64)


def largest_of_windows(codes: Ints) -> Ints:
    images, rows, columns, outputs = codes.shape
    return np.asarray(codes.reshape(images, rows // 2, 2, columns // 2, 2, outputs).max((2, 4)))


def assert_inside(out: Bytes, codes: Ints) -> None:
    found = np.full(out.shape, UNTOUCHED)
    found[:, 1:-1, 1:-1] = codes
    assert np.array_equal(out, found % 256)


@each_kernel
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("largest", [1, 7, 127])
def test_pairs_of_columns_are_the_columns(name: str, relu: bool, largest: int, instructions: str) -> None:
    size, random = SIZES[name], np.random.default_rng(largest)
    shape = (size.images, size.rows + size.kernel_rows - 1, size.columns + 2, size.channels)
    x = random.integers(0, largest + 1, shape)
    t = random.integers(-1, 2, (size.outputs, size.kernel_rows, 3, size.channels))
    shift = round(math.log2(0.47 * math.sqrt(t[0].size)))  # many sums are clipped
    codes, passes = expected(x, t, shift, largest, relu)
    assert len(np.unique(passes)) == 2
    for recorded in (True, False):
        out, found = forward(instructions, x, t, shift, largest=largest, relu=relu, recorded=recorded)
        assert_inside(out, codes)
        assert np.array_equal(found, passes) if recorded else np.all(found == UNTOUCHED)
    out, _ = forward(instructions, x, t, shift, largest=largest, relu=relu, pool=True)
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
def test_extreme_sums(kind: str, sign: int, rows: int, channels: int, instructions: str) -> None:
    """A 16-bit sum holds 21 pairs of 3 · 254, or 64 of 254, and not one more; nothing is clipped here."""
    columns, weights = EXTREMES[kind]
    x, t = repeated(columns, (2, rows + 1, 10, channels), 2), sign * repeated(weights, (32, rows, 3, channels), 2)
    shift = math.ceil(math.log2(3 * rows * channels))
    codes, passes = expected(x, t, shift, 127, False)
    assert np.all(passes == 255)
    out, found = forward(instructions, x, t, shift, relu=False, recorded=True)
    assert_inside(out, codes)
    assert np.all(found == 255)


def paired(**facts: Any) -> bool:
    return make_layer(**facts).memory("room") is not None


def test_which_windows_are_paired() -> None:
    assert all(paired(kernel=(high, 3), padding=(0, right)) for high in (1, 2, 4) for right in (0, 1, 2))
    assert paired(image=(5, 6))
    assert not paired(image=(6, 5))
    assert not any(paired(kernel=(3, wide), padding=(1, 0), image=(8, 9)) for wide in (2, 4))
    assert not any(paired(stride=stride) for stride in ((2, 1), (1, 2)))
    assert not paired(signed=True)
    assert not paired(image=(1, 3), kernel=(1, 3), padding=(0, 0), flat=True)
    assert not paired(signed=True, first=True)


def pools_at_once(window: tuple[int, int, int, int], image: tuple[int, int] = (4, 6), **facts: Any) -> bool:
    """Whether a pass that nothing follows leaves out what would have to be pooled."""
    (high, wide, down, right), columns = window, image[1] if facts.get("kernel") is None else image[1] - 1
    small = (image[0] - high) // down + 1, (columns - wide) // right + 1
    layer = make_layer(image=image, following=make_layer(inputs=5, image=small, pool=window), **facts)
    memory(layer, "given")[:] = UNTOUCHED
    layer.forward(2, False)
    return bool(np.all(memory(layer, "given") == UNTOUCHED))


def test_which_poolings_are_computed_with_the_pairs() -> None:
    assert pools_at_once(POOL)
    assert not pools_at_once(POOL, (5, 6))
    assert not any(pools_at_once(w) for w in ((2, 2, 3, 2), (2, 2, 2, 3), (3, 3, 3, 3), (2, 1, 2, 2), (1, 2, 2, 2)))
    assert not pools_at_once(POOL, (4, 7), kernel=(3, 2), padding=(1, 0))


@pytest.mark.parametrize(
    ("side", "images", "together"), [((2, 4), 20, 8), ((2, 4), 5, 5), ((3, 6), 20, 4), ((8, 8), 9, 1), ((30, 4), 9, 1)]
)
def test_room_for_pairs_of_few_images(side: tuple[int, int], images: int, together: int) -> None:
    """At least 64 positions together; a row more than there are positions, and two columns."""
    layer = make_layer(image=(side[0] + 1, side[1]), kernel=(2, 3), padding=(0, 1), images=images)
    assert memory(layer, "room").shape == (together, side[0] + 1, side[1] // 2, 64)
