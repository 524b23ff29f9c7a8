"""What the compiled part refuses: it writes to memory, so every buffer must be as large as its shape says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels import missing

if reason := missing():
    pytest.skip(reason, allow_module_level=True)

from prowd.lowbit import _native

PLAIN, PARTS = 0, 2
KERNEL = _native.kernels()[0][1]
WEIGHTS = (3, 2, 4, 16, 16)  # outputs, inputs, taps, and outputs and inputs padded


def zeros(dtype: type, *shape: int) -> NDArray[Any]:
    return np.zeros(shape, dtype)


def calls() -> dict[str, list[Any]]:
    """Arguments of every function, no buffer a byte longer than it must be."""
    byte, ternary, sums, image = np.uint8, zeros(np.int8, 1024), zeros(np.int32, 16), zeros(np.uint8, 1, 4, 4, 16)
    x, at = zeros(byte, 2, 3, 4, 4), ((48, 16, 4), (2, 2, 3))  # windows of 2 · 2
    products = [KERNEL, x, *at, 2, 16, 8, 1, zeros(np.int8, 256), sums, 16]
    pooled = zeros(byte, 1, 2, 2, 16)
    window, at_image, shape = (2, 2, 2, 2), (256, 64, 16), (1, 2, 2, 16)
    return {
        "forward": [*products, zeros(byte, 192), 0, (96, 48, 16), zeros(byte, 192), 1, 127, True],
        "backward": [*products, zeros(np.int32, 192), zeros(byte, 192)],
        "gradient": [
            KERNEL, zeros(byte, 12 * 64), (768, 256, 64), 768, zeros(byte, 6 * 64), 0, (384, 192, 64), 384, (1, 2, 3),
            (2, 2), (256, 64), 16, 16, 127, zeros(np.int32, 16, 4, 16),
        ],
        "load_images": [zeros(np.float32, 2, 4, 2, 2), 4, 128, zeros(byte, 32), 0, (16, 8, 4), (2, 2, 2)],
        "pool": [image, image.copy(), at_image, window, pooled, 0, (64, 32, 16), shape, pooled.copy(), pooled.copy()],
        "spread": [zeros(np.int32, 64), 0, 127, pooled, window, image, 0, at_image, shape],
        "interleave": [zeros(byte, 3, 5, 16), 3, 5, 16, 16, PLAIN, zeros(byte, 4, 5, 16)],
        "pack": [
            KERNEL, zeros(np.int16, 24), WEIGHTS, 64, 128, False, ternary, ternary.copy(), sums, ternary.copy(),
            sums.copy(),
        ],
        "join_gradient": [zeros(np.int32, 4, 32), 4, 16, 32, True],
        "update": [
            zeros(np.int16, 24), WEIGHTS, zeros(np.int32, 3, 4, 16), 16, (1, 0), zeros(np.float32, 24), 127,
        ],
    }  # fmt: skip


BUFFERS = [
    (name, at) for name, call in calls().items() for at, value in enumerate(call) if isinstance(value, np.ndarray)
]
OUTPUTS = {
    "forward": (11, 14), "backward": (11,), "gradient": (14,), "load_images": (3,), "pool": (4, 8, 9), "spread": (5,),
    "interleave": (6,), "pack": (6, 7, 8, 9, 10), "join_gradient": (0,), "update": (0,),
}  # fmt: skip
WRONG: list[tuple[str, int, object]] = [
    *((name, 0, kernel) for name in ("forward", "backward", "gradient", "pack") for kernel in (-1, 3, 99)),
    *((name, 3, (0, 2, 3)) for name in ("forward", "backward")),  # no images
    *((name, 2, (48, -16, 4)) for name in ("forward", "backward")),  # backwards
    *((name, 4, 0) for name in ("forward", "backward")),  # no rows
    *((name, 6, 6) for name in ("forward", "backward")),  # not in fours
    *((name, 7, 0) for name in ("forward", "backward")),  # no run
    *((name, 10, outputs) for name in ("forward", "backward") for outputs in (0, 8, 24)),
    ("forward", 12, -1), ("forward", 13, (96, 48, -16)),
    ("gradient", 2, (768, -256, 64)), ("gradient", 5, -1), ("gradient", 8, (0, 2, 3)), ("gradient", 9, (0, 2)),
    ("gradient", 11, 4), ("gradient", 11, 24), ("gradient", 12, 8), ("gradient", 13, 0),
    ("load_images", 1, 0), ("load_images", 4, -1), ("load_images", 5, (16, -8, 4)), ("load_images", 6, (2, 0, 2)),
    ("pool", 3, (0, 2, 2, 2)), ("pool", 5, -1), ("pool", 7, (1, 2, 2, 8)), ("pool", 7, (0, 2, 2, 16)),
    ("pool", 8, None), ("pool", 9, None), ("pool", 2, (256, -64, 16)),
    ("spread", 1, 32), ("spread", 1, -32), ("spread", 6, -1), ("spread", 8, (1, 2, 2, 8)), ("spread", 8, (1, 0, 2, 16)),
    ("interleave", 1, -3), ("interleave", 3, 15), ("interleave", 3, 0), ("interleave", 4, 24), ("interleave", 5, PARTS),
    ("pack", 2, (0, 2, 4, 16, 16)), ("pack", 2, (3, 2, 0, 16, 16)), ("pack", 2, (17, 2, 4, 16, 16)),
    ("pack", 2, (3, 17, 4, 16, 16)), ("pack", 2, (3, 2, 4, 15, 16)), ("pack", 2, (3, 2, 4, 16, 4)), ("pack", 10, None),
    ("join_gradient", 1, -1), ("join_gradient", 2, 17), ("join_gradient", 3, 31),
    ("update", 1, (3, 0, 4, 16, 16)), ("update", 1, (3, 2, 4, 16, 15)), ("update", 3, 1),
]  # fmt: skip


def call(name: str, arguments: list[Any]) -> None:
    getattr(_native, name)(*arguments)


@pytest.mark.parametrize("name", calls())
def test_buffers_of_the_right_size_are_taken(name: str) -> None:
    call(name, calls()[name])


@pytest.mark.parametrize(("name", "at"), BUFFERS)
def test_a_buffer_that_is_a_byte_too_small_is_refused(name: str, at: int) -> None:
    arguments = calls()[name]
    arguments[at] = arguments[at].reshape(-1).view(np.uint8)[:-1]
    with pytest.raises(ValueError, match=r"has \d+ bytes; accepted: \d+ or more"):
        call(name, arguments)


@pytest.mark.parametrize(("name", "at"), [(name, at) for name, places in OUTPUTS.items() for at in places])
def test_a_buffer_that_can_t_be_written_is_refused(name: str, at: int) -> None:
    arguments = calls()[name]
    arguments[at].flags.writeable = False
    with pytest.raises((ValueError, TypeError), match="read-"):
        call(name, arguments)


@pytest.mark.parametrize(("name", "at", "value"), WRONG)
def test_a_wrong_number_is_refused(name: str, at: int, value: object) -> None:
    arguments = calls()[name]
    arguments[at] = value
    with pytest.raises(ValueError, match=r"wrong|accepted|not one of this CPU"):
        call(name, arguments)


def test_a_buffer_that_is_not_in_one_piece_is_refused() -> None:
    arguments = calls()["interleave"]
    arguments[0] = zeros(np.uint8, 3, 5, 32)[:, :, ::2]
    with pytest.raises((ValueError, BufferError), match="contiguous"):
        call("interleave", arguments)
