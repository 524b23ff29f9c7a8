"""The passes of the compiled part, one by one, against a few lines of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels import make_layer, memory, missing

if reason := missing():
    pytest.skip(reason, allow_module_level=True)

from prowd.nets.lowbit import _native
from prowd.nets.lowbit._native import OFFSET, Layer
from tests.reference import integer_client as client
from tests.reference import integer_oracle as oracle

Ints = NDArray[np.int64]
Window = tuple[int, int, int, int]
LANES = {"avx512vnni": 16, "avx2": 8, "neondot": 8, "neon": 8, "portable": 16}
UNTOUCHED = 77
PIXEL: dict[str, Any] = {"kernel": (1, 1), "padding": (0, 0)}
each_kernel = pytest.mark.parametrize("instructions", _native.kernels())


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(5)


def fill(random: np.random.Generator, array: NDArray[np.uint8], most: int = 255, least: int = 0) -> NDArray[np.uint8]:
    """Fill memory with random bytes; return a copy of them."""
    array[:] = random.integers(least, most + 1, array.shape)
    return array.copy()


def fill_codes(random: np.random.Generator, array: NDArray[np.uint8]) -> Ints:
    """Fill memory with random codes of both signs, as they lie there; return them."""
    codes = random.integers(-127, 128, array.shape)
    array[:] = (codes + OFFSET) % 256
    return codes


def test_images_are_looked_up_and_laid_out_channels_last() -> None:
    images = np.array([0, 1, 2, 3, 4, 127, 128, 255], np.uint8).reshape(1, 2, 2, 2)
    table = np.arange(255, -1, -1).astype(np.uint8)
    layer = make_layer(first=True, signed=True, largest=7, inputs=2, image=(2, 2), images=1)
    codes = memory(layer, "received")
    codes[:] = UNTOUCHED
    layer.load(images, table, 1)
    found = codes[0, 1:3, 1:3, :2].transpose(2, 0, 1)
    assert found.ravel().tolist() == [255, 254, 253, 252, 251, 128, 127, 0]
    assert np.sum(codes != UNTOUCHED) == 8


def pooled(window: Window, image: tuple[int, int], **facts: Any) -> tuple[Layer, Layer]:
    """A layer of 32 outputs and one that pools what it gives."""
    high, wide, down, right = window
    small = (image[0] - high) // down + 1, (image[1] - wide) // right + 1
    following = make_layer(inputs=32, image=small, pool=window, images=3, **facts)
    return make_layer(outputs=32, image=image, images=3, following=following, **facts), following


@pytest.mark.parametrize("window", [(2, 2, 2, 2), (3, 1, 3, 2), (1, 1, 2, 3), (2, 3, 3, 3)])
@pytest.mark.parametrize("recorded", [True, False])
def test_the_first_maximum_of_a_window_wins(window: Window, recorded: bool, random: np.random.Generator) -> None:
    layer, following = pooled(window, (9, 7), largest=3)
    fill(random, memory(layer, "received"), most=3)
    out, out_passes, winners = (memory(following, name) for name in ("received", "passes", "winners"))
    for array in (out, out_passes, winners):
        array[:] = UNTOUCHED
    weights = memory(layer, "weights")
    weights[:] = random.integers(-1, 2, weights.shape)
    memory(layer, "start")[:] = 0
    layer.forward(3, recorded)
    codes, passes = memory(layer, "given"), memory(layer, "given_passes")
    (high, wide, down, right), (images, rows, columns, channels) = window, winners.shape
    for y, x in np.ndindex(rows, columns):
        places = slice(None), slice(y * down, y * down + high), slice(x * right, x * right + wide)
        seen, open_ = (array[places].reshape(images, high * wide, channels) for array in (codes, passes))
        first = seen.argmax(1)
        assert np.array_equal(out[:, 1 + y, 1 + x], seen.max(1))
        if recorded:
            assert np.array_equal(winners[:, y, x], first)
            assert np.array_equal(out_passes[:, y, x], np.take_along_axis(open_, first[:, None], 1)[:, 0])
    assert len(np.unique(out[:, 1:-1, 1:-1])) > 1
    assert np.all(out[:, [0, -1]] == UNTOUCHED)
    assert np.all(out[:, :, [0, -1]] == UNTOUCHED)
    assert recorded or np.all((winners == UNTOUCHED) & (out_passes == UNTOUCHED))


def error_codes(errors: NDArray[np.int32], up: int, largest: int) -> Ints:
    """OFFSET + clip(round_half_even(e · 2^up)): float64 is exact, and rint rounds half to even."""
    rounded: NDArray[np.float64] = np.rint(errors * 2.0**up)
    return np.asarray((np.clip(rounded, -largest, largest) + OFFSET) % 256, np.int64)


@pytest.mark.parametrize(("up", "size"), [(0, 200), (3, 40), (7, 2), (-1, 300), (-2, 600), (-5, 5000), (-22, 2**30)])
@pytest.mark.parametrize("largest", [1, 7, 127])
def test_errors_become_codes_at_every_other_place(
    up: int, size: int, largest: int, random: np.random.Generator
) -> None:
    following = make_layer(inputs=32, image=(2, 4), images=3, largest=largest)
    before = make_layer(
        outputs=32, image=(5, 12), stride=(2, 3), images=3, largest=largest, kernel=(2, 2), padding=(0, 0),
        following=following,
    )  # fmt: skip
    errors, out = memory(following, "below"), memory(before, "errors")
    errors[:] = random.integers(-size, size + 1, errors.shape)
    errors[0, 0, 0] = np.arange(-16, 16) << max(-up - 1, 0)  # ties
    out[:] = UNTOUCHED
    following.spread(3, up, before)
    assert np.array_equal(out[:, 1:5:2, 1:12:3], error_codes(errors, up, largest))
    assert np.sum(out != UNTOUCHED) <= errors.size


@pytest.mark.parametrize("window", [(2, 2, 2, 2), (1, 3, 2, 3), (2, 1, 3, 2)])
def test_errors_go_to_the_winners_of_their_windows(window: Window, random: np.random.Generator) -> None:
    high, wide, down, right = window
    layer, following = pooled(window, (3 * down, 2 * right), **PIXEL)
    errors, winners, out = memory(following, "below"), memory(following, "winners"), memory(layer, "errors")
    errors[:] = random.integers(-500, 500, errors.shape)
    fill(random, winners, most=high * wide - 1)
    out[:] = UNTOUCHED
    expected = out.copy()
    following.spread(3, -2, layer)
    for n, y, x, c in np.ndindex(errors.shape):
        place = expected[n, y * down : y * down + high, x * right : x * right + wide, c]
        place[:] = OFFSET
        place[divmod(int(winners[n, y, x, c]), wide)] = error_codes(errors[n, y, x, c], -2, 127)
    assert np.array_equal(out, expected)


def in_fours(codes: Ints, padded: int) -> Ints:
    """[image][pixel][channel] as [image / 4][block][pixel][channel, image]."""
    images, pixels, channels = codes.shape
    fours, block = -(-images // 4), min(padded, 16)
    whole = np.zeros((4 * fours, pixels, padded), np.int64)
    whole[:images, :, :channels] = codes
    blocks = whole.reshape(fours, 4, pixels, padded // block, block).transpose(0, 3, 2, 4, 1)
    return blocks.reshape(fours, padded // block, pixels, 4 * block)


@each_kernel
@pytest.mark.parametrize("images", [1, 3, 4, 6, 9])
@pytest.mark.parametrize(
    ("inputs", "signed", "first"),
    [(16, False, False), (40, False, False), (3, True, True), (5, True, True), (12, True, True), (30, True, False)],
)
@pytest.mark.parametrize("image", [(1, 1), (2, 3), (3, 3)])
def test_four_images_share_a_lane(
    instructions: str, inputs: int, signed: bool, first: bool, images: int, image: tuple[int, int],
    random: np.random.Generator,
) -> None:  # fmt: skip
    layer = make_layer(
        instructions, inputs=inputs, outputs=20, signed=signed, first=first, images=images, image=image, **PIXEL
    )
    received, pixels = memory(layer, "received"), image[0] * image[1]
    given = (fill_codes(random, received) if signed else fill(random, received, 127)).astype(np.int64)
    given, errors = given.reshape(images, pixels, -1), fill_codes(random, memory(layer, "errors"))
    layer.forward(images, True)
    layer.gradient(0, images)
    if signed:
        given = np.concatenate([np.maximum(given, 0), np.maximum(-given, 0)], 2)
    gradient_inputs = memory(layer, "gradient").shape[2]
    assert np.array_equal(memory(layer, "received_fours"), in_fours(given, gradient_inputs))
    assert np.array_equal(memory(layer, "error_fours").view(np.int8), in_fours(errors.reshape(images, pixels, -1), 32))


def parts_of_pairs(t: Ints) -> Ints:
    """Weights of windows three columns wide, [output][tap][input], as the four parts that a pair is multiplied by."""
    g0, g1, g2 = t[:, ::3], t[:, 1::3], t[:, 2::3]
    return np.stack([g0, g0 + g1 + g2, g0 - g1 + g2, g2])


@each_kernel
@pytest.mark.parametrize(
    ("kernel", "flat", "pairs"),
    [((2, 2), True, False), ((2, 2), False, False), ((2, 3), False, True), ((3, 3), False, True)],
)
@pytest.mark.parametrize("s", [2, 3, 8])
def test_weights_are_packed_as_they_are_multiplied(
    s: int, kernel: tuple[int, int], flat: bool, pairs: bool, instructions: str, random: np.random.Generator
) -> None:
    outputs, inputs, top, taps, lanes = 19, 37, 2 ** (s - 1) - 1, kernel[0] * kernel[1], LANES[instructions]
    codes = random.integers(-top, top + 1, (outputs, inputs, taps)).astype(np.int16)
    t = np.zeros((32, taps, 48), np.int64)
    t[:outputs, :, :inputs] = np.clip(np.rint(codes * 2 / 2 ** (s - 1)), -1, 1).transpose(0, 2, 1)
    parts = parts_of_pairs(t) if pairs else t[None]
    layer = make_layer(
        instructions, codes, outputs=outputs, inputs=inputs, largest=top, image=kernel if flat else (4, 4), flat=flat,
        kernel=kernel, padding=(0, 0), signed=not pairs,
    )  # fmt: skip
    layer.pack()
    names = ("ternary", "weights", "start", "back_weights", "back_start")
    ternary, forward, start, backward, back_start = (memory(layer, name).ravel() for name in names)
    assert np.array_equal(ternary, t.ravel())
    vectors = parts.reshape(len(parts), 32 // lanes, lanes, -1, 4)
    assert np.array_equal(forward, vectors.transpose(0, 1, 3, 2, 4).ravel())
    above = [OFFSET]
    if pairs:  # sums of codes are never negative; where bytes have a sign, it is they that are moved
        above = [top, 0, top, top] if OFFSET else [0, -top, 0, 0]
    starts = -np.array(above)[:, None] * parts.sum((2, 3))
    assert np.array_equal(start, starts.ravel())
    back = t.reshape(32, 1, -1) if flat else t[:, ::-1]  # [output][tap][input], the kernel turned round
    lanes_first = back.reshape(8, 4, back.shape[1], -1, lanes).transpose(3, 2, 0, 4, 1)
    assert np.array_equal(backward, lanes_first.ravel())
    assert np.array_equal(back_start, -OFFSET * back.sum((0, 1)))


@each_kernel
@pytest.mark.parametrize("signed", [True, False])
def test_gradients_are_summed_and_measured(signed: bool, instructions: str, random: np.random.Generator) -> None:
    """From the fifth image to the eleventh, as a part of a larger sum."""
    layer = make_layer(instructions, signed=signed, images=12, image=(3, 5), **PIXEL)
    received = memory(layer, "received")
    a = (fill_codes(random, received) if signed else fill(random, received, 127)).astype(np.int64)
    e = fill_codes(random, memory(layer, "errors"))
    layer.forward(12, True)
    expected = np.einsum("nyxo,nyxi->oi", e[4:11], a[4:11])
    assert layer.gradient(4, 7) == int(np.abs(expected).max())
    assert np.array_equal(memory(layer, "gradient")[:, 0, :16], expected)


@pytest.mark.parametrize(
    "rate", [(1, 0), (1, -3), (1, 31), (1, 7), (1, 6), (1, 35), (3, -9), (255, -20), (171, 2), (1, -60), (255, 32767)]
)
@pytest.mark.parametrize("size", [3, 1000, 2**23, 2**31 - 1])
@pytest.mark.parametrize("largest", [1, 127])
def test_updates_are_the_oracle_s(rate: tuple[int, int], size: int, largest: int, random: np.random.Generator) -> None:
    codes = random.integers(-largest, largest + 1, (5, 7, 4)).astype(np.int16)
    layer = make_layer(codes=codes, inputs=7, kernel=(2, 2), largest=largest)
    g = memory(layer, "gradient")
    g[:] = random.integers(-size, size + 1, g.shape)
    gradient = g[:5, :, :7].transpose(0, 2, 1).astype(np.int64)
    words = oracle.words(9, 4, 2, codes.size)
    expected = oracle.update(codes.astype(np.int64), gradient, rate, words, int(largest).bit_length() + 1)
    layer.update(*rate, int(np.abs(gradient).max()), *client.stream_key(9, "test"), 4, 2)
    assert np.array_equal(codes, expected)
