"""What the compiled part refuses: it writes to memory, so every buffer must be as large as its shape says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels import missing

if reason := missing():
    pytest.skip(reason, allow_module_level=True)

from prowd.nets.lowbit import _native

PLAIN, PARTS = 0, 2
KERNEL = _native.kernels()[0][1]
WEIGHTS = (3, 2, 4, 16, 16)  # outputs, inputs, taps, and outputs and inputs padded


def zeros(dtype: type, *shape: int) -> NDArray[Any]:
    return np.zeros(shape, dtype)


def calls() -> dict[str, tuple[str, list[Any]]]:
    """Functions and their arguments, no buffer a byte longer than it must be."""
    byte, ternary, sums, image = np.uint8, zeros(np.int8, 1024), zeros(np.int32, 16), zeros(np.uint8, 1, 4, 4, 16)
    x, at = zeros(byte, 2, 3, 4, 4), ((48, 16, 4), (2, 2, 3))  # windows of 2 · 2
    products = [KERNEL, x, *at, 2, 16, 8, 1, zeros(np.int8, 256), sums, 16]
    pooled = zeros(byte, 1, 2, 2, 16)
    window, at_image, shape = (2, 2, 2, 2), (256, 64, 16), (1, 2, 2, 16)
    wide, at_wide = zeros(byte, 2, 5, 6, 16), ((480, 96, 16), (2, 4, 4))  # windows of 2 · 3
    pairs = [KERNEL, wide, *at_wide, 2, 96, 48, 3, zeros(np.int8, 2048), zeros(np.int32, 64), 16]
    room = zeros(byte, 640)  # of one image
    return {
        "forward": (
            "forward", [*products, zeros(byte, 192), 0, (96, 48, 16), zeros(byte, 192), 1, 127, True, None, False],
        ),
        "forward, paired": (
            "forward", [*pairs, zeros(byte, 512), 0, (256, 64, 16), zeros(byte, 512), 1, 127, True, room, False],
        ),
        "forward, pooled": ("forward", [*pairs, zeros(byte, 128), 0, (64, 32, 16), None, 1, 127, True, room, True]),
        "backward": ("backward", [*products, zeros(np.int32, 192), zeros(byte, 192)]),
        "gradient": (
            "gradient",
            [
                KERNEL, zeros(byte, 12 * 64), (768, 256, 64), 768, zeros(byte, 6 * 64), 0, (384, 192, 64), 384,
                (1, 2, 3), (2, 2), (256, 64), 16, 16, 127, zeros(np.int32, 16, 4, 16),
            ],
        ),
        "load_images": (
            "load_images", [zeros(np.float32, 2, 4, 2, 2), 4, 128, zeros(byte, 32), 0, (16, 8, 4), (2, 2, 2)],
        ),
        "pool": (
            "pool",
            [image, image.copy(), at_image, window, pooled, 0, (64, 32, 16), shape, pooled.copy(), pooled.copy()],
        ),
        "spread": ("spread", [zeros(np.int32, 64), 0, 127, pooled, window, image, 0, at_image, shape]),
        "interleave": ("interleave", [zeros(byte, 3, 5, 16), 3, 5, 16, 16, PLAIN, zeros(byte, 4, 5, 16)]),
        "pack": (
            "pack",
            [
                KERNEL, zeros(np.int16, 24), WEIGHTS, 64, 128, False, False, ternary, ternary.copy(), sums,
                ternary.copy(), sums.copy(),
            ],
        ),
        "pack, paired": (
            "pack",
            [
                KERNEL, zeros(np.int16, 36), (3, 2, 6, 16, 16), 64, 127, False, True, zeros(np.int8, 1536),
                zeros(np.int8, 2048), zeros(np.int32, 64), zeros(np.int8, 1536), sums,
            ],
        ),
        "join_gradient": ("join_gradient", [zeros(np.int32, 4, 32), 4, 16, 32, True]),
        "update": (
            "update",
            [zeros(np.int16, 24), WEIGHTS, zeros(np.int32, 3, 4, 16), 16, (1, 0), zeros(np.float32, 24), 127],
        ),
    }  # fmt: skip


BUFFERS = [
    (name, at)
    for name, (_, arguments) in calls().items()
    for at, value in enumerate(arguments)
    if isinstance(value, np.ndarray)
]
OUTPUTS = {
    "forward": (11, 14), "forward, paired": (11, 14, 18), "forward, pooled": (11, 18), "backward": (11,),
    "gradient": (14,), "load_images": (3,), "pool": (4, 8, 9), "spread": (5,), "interleave": (6,),
    "pack": (7, 8, 9, 10, 11), "pack, paired": (7, 8, 9, 10, 11), "join_gradient": (0,), "update": (0,),
}  # fmt: skip
PRODUCTS = ("forward", "forward, paired", "forward, pooled", "backward")
WRONG: list[tuple[str, int, object]] = [
    *((name, 0, kernel) for name in (*PRODUCTS, "gradient", "pack") for kernel in (-1, 3, 99)),
    *((name, 3, (0, 2, 2)) for name in PRODUCTS),  # no images
    *((name, 2, (48, -16, 4)) for name in PRODUCTS),  # backwards
    *((name, 4, 0) for name in PRODUCTS),  # no rows
    *((name, 6, 6) for name in PRODUCTS),  # not in fours
    *((name, 7, 0) for name in PRODUCTS),  # no run
    *((name, 10, outputs) for name in PRODUCTS for outputs in (0, 8, 24)),
    *((name, 5, -4) for name in PRODUCTS),  # rows upwards
    *((name, 12, -1) for name in PRODUCTS if name != "backward"),
    *((name, 15, shift) for name in PRODUCTS if name != "backward" for shift in (0, 31)),
    *((name, 13, (64, 32, -16)) for name in PRODUCTS if name != "backward"),
    ("gradient", 2, (768, -256, 64)), ("gradient", 5, -1), ("gradient", 8, (0, 2, 3)), ("gradient", 9, (0, 2)),
    ("gradient", 10, (-256, 64)), ("gradient", 10, (256, -64)), ("gradient", 3, -768), ("gradient", 7, -384),
    ("gradient", 11, 4), ("gradient", 11, 24), ("gradient", 12, 8), ("gradient", 13, 0),
    ("load_images", 1, 0), ("load_images", 4, -1), ("load_images", 5, (16, -8, 4)), ("load_images", 6, (2, 0, 2)),
    ("pool", 3, (0, 2, 2, 2)), ("pool", 5, -1), ("pool", 7, (1, 2, 2, 8)), ("pool", 7, (0, 2, 2, 16)),
    ("pool", 8, None), ("pool", 9, None), ("pool", 2, (256, -64, 16)),
    ("spread", 1, 32), ("spread", 1, -32), ("spread", 6, -1), ("spread", 8, (1, 2, 2, 8)), ("spread", 8, (1, 0, 2, 16)),
    ("interleave", 1, -3), ("interleave", 3, 15), ("interleave", 3, 0), ("interleave", 4, 24), ("interleave", 5, PARTS),
    ("pack", 2, (0, 2, 4, 16, 16)), ("pack", 2, (3, 2, 0, 16, 16)), ("pack", 2, (17, 2, 4, 16, 16)),
    ("pack", 2, (3, 17, 4, 16, 16)), ("pack", 2, (3, 2, 4, 15, 16)), ("pack", 2, (3, 2, 4, 16, 4)), ("pack", 11, None),
    ("join_gradient", 1, -1), ("join_gradient", 2, 17), ("join_gradient", 3, 31),
    ("update", 1, (3, 0, 4, 16, 16)), ("update", 1, (3, 2, 4, 16, 15)), ("update", 3, 1),
]  # fmt: skip
UNPAIRED: dict[str, tuple[str, dict[int, object]]] = {
    "odd columns": ("forward, paired", {3: (2, 4, 3)}),
    "8 channels": ("forward, paired", {2: (480, 96, 8), 6: 24}),
    "columns that overlap": ("forward, paired", {2: (480, 96, 8)}),
    "rows that overlap": ("forward, paired", {2: (480, 48, 16)}),
    "strides": ("forward, paired", {5: 48}),
    "short run": ("forward, paired", {7: 2}),
    "no codes": ("forward, paired", {16: 0}),
    "too many codes": ("forward, paired", {16: 128}),
    "odd columns, pooled": ("forward, pooled", {3: (2, 4, 3)}),
    "two by two": ("pack, paired", {2: WEIGHTS}),
    "12 inputs": ("pack, paired", {2: (3, 2, 6, 16, 12), 10: None}),
}
UNPOOLED: dict[str, dict[int, object]] = {
    "passes": {14: zeros(np.uint8, 512)},
    "no room": {18: None},
    "odd rows": {3: (2, 3, 4)},
}


def call(name: str, arguments: list[Any]) -> None:
    getattr(_native, calls()[name][0])(*arguments)


def changed(name: str, changes: dict[int, object]) -> list[Any]:
    return [changes.get(at, value) for at, value in enumerate(calls()[name][1])]


@pytest.mark.parametrize("name", calls())
def test_buffers_of_the_right_size_are_taken(name: str) -> None:
    call(name, calls()[name][1])


@pytest.mark.parametrize(("name", "at"), BUFFERS)
def test_a_buffer_that_is_a_byte_too_small_is_refused(name: str, at: int) -> None:
    arguments = calls()[name][1]
    arguments[at] = arguments[at].reshape(-1).view(np.uint8)[:-1]
    with pytest.raises(ValueError, match=r"has \d+ bytes; accepted: \d+ or more"):
        call(name, arguments)


@pytest.mark.parametrize(("name", "at"), [(name, at) for name, places in OUTPUTS.items() for at in places])
def test_a_buffer_that_can_t_be_written_is_refused(name: str, at: int) -> None:
    arguments = calls()[name][1]
    arguments[at].flags.writeable = False
    with pytest.raises((ValueError, TypeError), match="read-"):
        call(name, arguments)


@pytest.mark.parametrize(("name", "at", "value"), WRONG)
def test_a_wrong_number_is_refused(name: str, at: int, value: object) -> None:
    with pytest.raises(ValueError, match=r"wrong|accepted|not one of this CPU"):
        call(name, changed(name, {at: value}))


@pytest.mark.parametrize("why", UNPAIRED)
def test_windows_that_can_t_be_paired_are_refused(why: str) -> None:
    name, changes = UNPAIRED[why]
    with pytest.raises(ValueError, match="can't be paired"):
        call(name, changed(name, changes))


@pytest.mark.parametrize("why", UNPOOLED)
def test_windows_that_can_t_be_pooled_are_refused(why: str) -> None:
    with pytest.raises(ValueError, match="can't be pooled"):
        call("forward, pooled", changed("forward, pooled", UNPOOLED[why]))


def test_a_buffer_that_is_not_in_one_piece_is_refused() -> None:
    arguments = calls()["interleave"][1]
    arguments[0] = zeros(np.uint8, 3, 5, 32)[:, :, ::2]
    with pytest.raises((ValueError, BufferError), match="contiguous"):
        call("interleave", arguments)
