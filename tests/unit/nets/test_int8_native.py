"""The passes of the compiled part, one by one, against a few lines of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels import missing

if reason := missing():
    pytest.skip(reason, allow_module_level=True)

from prowd.nets.lowbit import _native

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
PLAIN, SIGNED, PARTS = 0, 1, 2
UNTOUCHED = 77


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(5)


def some_bytes(random: np.random.Generator, *shape: int, least: int = 0, most: int = 255) -> Bytes:
    return random.integers(least, most + 1, shape).astype(np.uint8)


def strides(array: NDArray[Any]) -> tuple[int, int, int]:
    return array.strides[0], array.strides[1], array.strides[2]


def test_images_are_rounded_half_to_even_and_clipped() -> None:
    images = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 6.5, 7.4, -99], np.float32).reshape(1, 2, 2, 2) / 8
    codes = np.full((1, 4, 4, 4), UNTOUCHED, np.uint8)
    inside = codes.strides[1] + codes.strides[2]
    _native.load_images(images, 2, 8, codes, inside, strides(codes), (1, 2, 2))
    found = codes[0, 1:3, 1:3, :2].astype(int) - 128
    assert found.transpose(2, 0, 1).ravel().tolist() == [0, 2, 2, 0, -2, 6, 7, -7]
    assert np.sum(codes != UNTOUCHED) == 8


@pytest.mark.parametrize("window", [(2, 2, 2, 2), (3, 1, 3, 2), (1, 1, 2, 3), (2, 3, 3, 3)])
@pytest.mark.parametrize("recorded", [True, False])
def test_the_first_maximum_of_a_window_wins(
    window: tuple[int, int, int, int], recorded: bool, random: np.random.Generator
) -> None:
    (high, wide, down, right), images, channels = window, 3, 32
    codes = some_bytes(random, images, 9, 7, channels, least=126, most=129)  # many are equal
    passes = some_bytes(random, images, 9, 7, channels, most=1) * np.uint8(255)
    rows, columns = (9 - high) // down + 1, (7 - wide) // right + 1
    out = np.full((images, rows + 2, columns + 2, channels), UNTOUCHED, np.uint8)
    out_passes, winners = (np.full((images, rows, columns, channels), UNTOUCHED, np.uint8) for _ in range(2))
    _native.pool(
        codes, passes if recorded else None, strides(codes), window, out, out.strides[1] + out.strides[2], strides(out),
        (images, rows, columns, channels), out_passes, winners,
    )  # fmt: skip
    for y, x in np.ndindex(rows, columns):
        places = slice(None), slice(y * down, y * down + high), slice(x * right, x * right + wide)
        seen, open_ = (array[places].reshape(images, high * wide, channels) for array in (codes, passes))
        first = seen.argmax(1)
        assert np.array_equal(out[:, 1 + y, 1 + x], seen.max(1))
        if recorded:
            assert np.array_equal(winners[:, y, x], first)
            assert np.array_equal(out_passes[:, y, x], np.take_along_axis(open_, first[:, None], 1)[:, 0])
    assert np.all(out[:, [0, -1]] == UNTOUCHED)
    assert np.all(out[:, :, [0, -1]] == UNTOUCHED)
    assert recorded or np.all((winners == UNTOUCHED) & (out_passes == UNTOUCHED))


def error_codes(errors: Ints, up: int, largest: int) -> NDArray[np.int64]:
    """128 + clip(round_half_even(e · 2^up)): float64 is exact, and rint rounds half to even."""
    rounded: NDArray[np.float64] = np.rint(errors * 2.0**up)
    return np.asarray(np.clip(rounded, -largest, largest) + 128, np.int64)


@pytest.mark.parametrize(("up", "size"), [(0, 200), (3, 40), (7, 2), (-1, 300), (-2, 600), (-5, 5000), (-22, 2**30)])
@pytest.mark.parametrize("largest", [1, 7, 127])
def test_errors_become_codes_at_every_other_place(
    up: int, size: int, largest: int, random: np.random.Generator
) -> None:
    errors = random.integers(-size, size + 1, (3, 2, 4, 32)).astype(np.int32)
    errors[0, 0, 0] = np.arange(-16, 16) << max(-up - 1, 0)  # ties
    out = np.full((3, 5, 12, 32), UNTOUCHED, np.uint8)
    image, row, column = strides(out)
    _native.spread(
        errors, up, largest, None, (1, 1, 1, 1), out, row + column, (image, 2 * row, 3 * column), errors.shape
    )
    assert np.array_equal(out[:, 1::2, 1::3], error_codes(errors, up, largest))
    assert np.sum(out != UNTOUCHED) <= errors.size


@pytest.mark.parametrize("window", [(2, 2, 2, 2), (1, 3, 2, 3), (2, 1, 3, 2)])
def test_errors_go_to_the_winners_of_their_windows(
    window: tuple[int, int, int, int], random: np.random.Generator
) -> None:
    high, wide, down, right = window
    errors = random.integers(-500, 500, (2, 3, 2, 16)).astype(np.int32)
    winners = some_bytes(random, 2, 3, 2, 16, most=high * wide - 1)
    out, expected = (np.full((2, 3 * down, 2 * right, 16), UNTOUCHED, np.uint8) for _ in range(2))
    _native.spread(errors, -2, 127, winners, window, out, 0, strides(out), errors.shape)
    for n, y, x, c in np.ndindex(errors.shape):
        place = expected[n, y * down : y * down + high, x * right : x * right + wide, c]
        place[:] = 128
        place[divmod(int(winners[n, y, x, c]), wide)] = error_codes(errors[n, y, x, c], -2, 127)
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("images", [1, 3, 4, 6, 9])
@pytest.mark.parametrize(
    ("how", "channels", "padded"),
    [(PLAIN, 16, 16), (PLAIN, 48, 48), (SIGNED, 32, 32), (PARTS, 4, 8), (PARTS, 4, 16), (PARTS, 3, 8), (PARTS, 8, 16),
     (PARTS, 12, 32), (PARTS, 32, 64)],
)  # fmt: skip
@pytest.mark.parametrize("pixels", [1, 6, 9])
def test_four_images_share_a_lane(
    how: int, channels: int, padded: int, images: int, pixels: int, random: np.random.Generator
) -> None:
    given = some_bytes(random, images, pixels, channels, least=1)
    codes = given.astype(np.int64) - (0 if how == PLAIN else 128)
    if how == PARTS:
        codes = np.concatenate([np.maximum(codes, 0), np.maximum(-codes, 0)], 2)
    fours, block = -(-images // 4), min(padded, 16)
    whole = np.zeros((4 * fours, pixels, padded), np.int64)
    whole[:images, :, : codes.shape[2]] = codes
    expected = whole.reshape(fours, 4, pixels, padded // block, block).transpose(0, 3, 2, 4, 1)
    found = np.full(expected.shape, UNTOUCHED, np.uint8)
    _native.interleave(given, images, pixels, channels, padded, how, found)
    assert np.array_equal(found.view(np.int8) if how == SIGNED else found, expected)


def parts_of_pairs(t: NDArray[np.int64]) -> NDArray[np.int64]:
    """Weights of windows three columns wide, [output][tap][input], as the four parts that a pair is multiplied by."""
    g0, g1, g2 = t[:, ::3], t[:, 1::3], t[:, 2::3]
    return np.stack([g0, g0 + g1 + g2, g0 - g1 + g2, g2])


@pytest.mark.parametrize(("number", "lanes"), [(number, lanes) for _, number, lanes in _native.kernels()])
@pytest.mark.parametrize(
    ("taps", "flat", "pairs"), [(4, True, False), (4, False, False), (6, False, True), (9, False, True)]
)
@pytest.mark.parametrize("s", [2, 3, 8])
def test_weights_are_packed_as_they_are_multiplied(
    s: int, taps: int, flat: bool, pairs: bool, number: int, lanes: int, random: np.random.Generator
) -> None:
    outputs, inputs, top = 19, 37, 2 ** (s - 1) - 1
    offset = top if pairs else 128
    codes = random.integers(-top, top + 1, (outputs, inputs, taps)).astype(np.int16)
    t = np.zeros((32, taps, 48), np.int64)
    t[:outputs, :, :inputs] = np.clip(np.rint(codes * 2 / 2 ** (s - 1)), -1, 1).transpose(0, 2, 1)
    parts = parts_of_pairs(t) if pairs else t[None]
    ternary, forward, backward = (np.full(size, UNTOUCHED, np.int8) for size in (t.size, parts.size, t.size))
    start, back_start = (np.full(size, UNTOUCHED, np.int32) for size in (32 * len(parts), 48 * taps if flat else 48))
    _native.pack(
        number, codes, (outputs, inputs, taps, 32, 48), 2 ** (s - 1) // 2, offset, flat, pairs, ternary, forward,
        start, backward, back_start,
    )  # fmt: skip
    assert np.array_equal(ternary, t.ravel())
    vectors = parts.reshape(len(parts), 32 // lanes, lanes, -1, 4)
    assert np.array_equal(forward, vectors.transpose(0, 1, 3, 2, 4).ravel())
    starts = -offset * parts.sum((2, 3))
    starts[1:2] = 0  # of sums of codes, which are never negative
    assert np.array_equal(start, starts.ravel())
    back = t.reshape(32, 1, -1) if flat else t[:, ::-1]  # [output][tap][input], the kernel turned round
    lanes_first = back.reshape(8, 4, back.shape[1], -1, lanes).transpose(3, 2, 0, 4, 1)
    assert np.array_equal(backward, lanes_first.ravel())
    assert np.array_equal(back_start, -128 * back.sum((0, 1)))


@pytest.mark.parametrize("parts", [True, False])
def test_gradients_are_joined_and_measured(parts: bool, random: np.random.Generator) -> None:
    g = random.integers(-(2**30), 2**30, (6, 40)).astype(np.int32)
    g[5, 39] = 2**31 - 1  # not of the gradient
    expected = g[:, :16] - g[:, 16:32] if parts else g[:, :16].copy()
    assert _native.join_gradient(g, 6, 16, 40, parts) == int(np.abs(expected.astype(np.int64)).max())
    assert np.array_equal(g[:, :16], expected)


@pytest.mark.parametrize(
    "factor", [(1, 0), (1, -3), (1, -24), (1, -25), (1, 4), (3, -9), (255, -20), (171, 2), (1, -60)]
)
@pytest.mark.parametrize("size", [3, 1000, 2**31 - 1])
@pytest.mark.parametrize("largest", [1, 127])
def test_updates_are_exact(factor: tuple[int, int], size: int, largest: int, random: np.random.Generator) -> None:
    if factor == (1, 0) and size == 2**31 - 1:
        size = 2**30
    codes = random.integers(-largest, largest + 1, (5, 7, 4)).astype(np.int16)
    g = random.integers(-size, size + 1, (5, 4, 16)).astype(np.int32)
    uniform = random.integers(0, 2**24, codes.shape).astype(np.float32) / 2**24
    uniform[0] = 0
    x = g[:, :, :7].transpose(0, 2, 1) * (factor[0] * 2.0 ** factor[1])
    steps = np.floor(np.abs(x)) + (np.abs(x) % 1 > uniform)
    expected = np.clip(codes - np.copysign(steps, x), -largest, largest)
    _native.update(codes, (5, 7, 4, 16, 16), g, 16, factor, uniform, largest)
    assert np.array_equal(codes, expected)
