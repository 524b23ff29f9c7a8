"""What the compiled part refuses: it writes to memory, so all that it is told must fit what it allocated."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.kernels import make_layer, memory, missing

if reason := missing():
    pytest.skip(reason, allow_module_level=True)

from prowd.nets.lowbit._native import Layer

Facts = dict[str, Any]
TABLE = np.zeros(256, np.uint8)
DRAWS = 1, 2, 3, 4
FIRST: Facts = {"first": True, "signed": True}
WRONG: list[tuple[str, Facts]] = [
    *((name, {name: value}) for name in ("images", "inputs", "outputs") for value in (0, -1, 2**24 + 1)),
    *(("largest", {"largest": largest}) for largest in (0, 128, 6)),
    *(("shift", {"shift": shift}) for shift in (0, 31)),
    *((f"{name} rows", {name: (0, 3)}) for name in ("image", "stride", "kernel")),
    *((f"{name} columns", {name: (3, -1)}) for name in ("image", "stride", "kernel", "padding")),
    ("kernel rows", {"kernel": (7, 3)}), ("kernel columns", {"kernel": (3, 9)}), ("kernel rows", {"padding": (3, 1)}),
    ("pool rows", {"pool": (0, 1, 1, 1)}), ("pool step columns", {"pool": (1, 1, 1, 0)}),
    ("pool step rows", {"pool": (3, 2, 2, 2)}), ("pool step columns", {"pool": (2, 3, 3, 2)}),
    ("pool places", {"pool": (16, 16, 16, 16)}), ("flat", {"flat": True}), ("first", {"first": True}),
    ("first", {**FIRST, "pool": (2, 2, 2, 2)}), ("places of all images", {"images": 2**24, "image": (2**12, 2**12)}),
    ("positions of all images", {"images": 2**24, "image": (1, 1), "kernel": (9, 9), "padding": (8, 8)}),
    ("places of a window", {"image": (2**12, 2**12), "kernel": (2**12, 2**12)}),
    ("weights of an output", {"inputs": 467_862}), ("weights of an input", {"outputs": 467_862}),
]  # fmt: skip
APART: dict[str, Facts] = {
    "channels": {"outputs": 4},
    "rows": {"image": (5, 6)},
    "columns": {"image": (4, 7)},
    "images": {"images": 3},
    "training": {"training": False},
    "widths": {"largest": 7},
    "signs": {"relu": False},
    "instructions": {"instructions": "portable"},
}
CALLS: dict[str, tuple[str, Callable[[Layer], object]]] = {
    "forward of none": ("n", lambda layer: layer.forward(0, True)),
    "forward of fewer": ("n", lambda layer: layer.forward(-1, True)),
    "forward of more": ("n", lambda layer: layer.forward(3, False)),
    "backward of none": ("n", lambda layer: layer.backward(0)),
    "backward of more": ("n", lambda layer: layer.backward(3)),
    "spread of none": ("n", lambda layer: layer.spread(0, 0, layer)),
    "spread of more": ("n", lambda layer: layer.spread(3, 0, layer)),
    "spread far up": ("up", lambda layer: layer.spread(1, 32, layer)),
    "spread far down": ("up", lambda layer: layer.spread(1, -32, layer)),
    "spread": ("before", lambda layer: layer.spread(1, 0, make_layer())),
    "gradient of none": ("n", lambda layer: layer.gradient(0, 0)),
    "gradient of more than were recorded": ("n", lambda layer: layer.gradient(0, 2)),
    "gradient from before": ("from", lambda layer: layer.gradient(-4, 1)),
    "gradient from between": ("multiple of four", lambda layer: make_recorded(8).gradient(2, 4)),
    "gradient beyond int32": ("n", lambda layer: make_recorded(4, (183, 183)).gradient(0, 4)),
    "load": ("first layer", lambda layer: layer.load(np.zeros((1, 3, 4, 6), np.uint8), TABLE, 1)),
    "memory": ("nothing", lambda layer: layer.memory("nothing")),
}


def make_recorded(images: int, image: tuple[int, int] = (4, 6)) -> Layer:
    layer = make_layer(images=images, image=image)
    layer.forward(images, True)
    return layer


def short(shape: tuple[int, ...], dtype: type) -> np.ndarray[Any, Any]:
    """A byte less than it must be."""
    return np.zeros(shape, dtype).reshape(-1).view(np.uint8)[:-1]


def between(size: int) -> np.ndarray[Any, Any]:
    """So many bytes from an odd address on."""
    return np.zeros(size + 1, np.uint8)[1:]


@pytest.mark.parametrize(("name", "changes"), WRONG)
def test_a_wrong_fact_is_refused(name: str, changes: Facts) -> None:
    with pytest.raises(ValueError, match=name):
        make_layer(codes=np.zeros(135, np.int16), **changes)


def test_a_flat_layer_of_many_places_and_outputs_is_taken() -> None:
    """An input of a flat layer has one weight an output, however many places there are."""
    side = (150, 150)
    assert make_layer(flat=True, image=side, kernel=side, padding=(0, 0), inputs=1, outputs=200, training=False)


def test_memory_that_no_machine_has_is_refused() -> None:
    with pytest.raises(MemoryError):
        make_layer(
            images=2**24, inputs=1, outputs=1, image=(1, 1), kernel=(1449, 1449), padding=(1448, 1448),
            stride=(2000, 2000),
        )  # fmt: skip


def test_codes_are_the_layer_s() -> None:
    with pytest.raises(ValueError, match="codes has 269 bytes; accepted: 270"):
        make_layer(codes=short((5, 3, 3, 3), np.int16))
    with pytest.raises(ValueError, match="codes"):
        make_layer(codes=between(270))
    with pytest.raises((ValueError, BufferError), match="contiguous"):
        make_layer(codes=np.zeros((5, 3, 3, 6), np.int16)[..., ::2])
    codes = np.zeros((5, 3, 3, 3), np.int16)
    codes.flags.writeable = False
    with pytest.raises((ValueError, BufferError), match="read-"):
        make_layer(codes=codes)
    with pytest.raises(TypeError):
        make_layer(codes="codes")


def test_a_layer_is_built_in_one_way_and_is_what_it_is() -> None:
    with pytest.raises(TypeError):
        object.__new__(Layer)
    with pytest.raises(TypeError):
        type("Other", (Layer,), {})
    with pytest.raises(TypeError):
        Layer.forward = None  # type: ignore[method-assign,assignment]


def test_codes_are_held_as_long_as_a_layer() -> None:
    codes = np.zeros((5, 3, 3, 3), np.int16)
    before = sys.getrefcount(codes)
    layer = make_layer(codes=codes)
    assert sys.getrefcount(codes) == before + 1
    with pytest.raises(ValueError, match="following"):
        make_layer(codes=codes, following=layer)
    del layer
    assert sys.getrefcount(codes) == before


def test_a_following_layer_is_held_and_networks_end() -> None:
    pixel: Facts = {"inputs": 1, "outputs": 1, "image": (1, 1), "kernel": (1, 1), "padding": (0, 0)}
    layer, codes = None, np.zeros(1, np.int16)
    with pytest.raises(ValueError, match="layers"):  # noqa: PT012
        for _ in range(1001):
            layer = make_layer(codes=codes, images=1, training=False, following=layer, **pixel)
    assert layer is not None
    layer.forward(1, False)
    held = sys.getrefcount(codes)
    del layer
    assert sys.getrefcount(codes) == held - 1000


def test_instructions_are_of_this_cpu() -> None:
    with pytest.raises(ValueError, match="instructions 'abacus' are not of this CPU"):
        make_layer("abacus")


@pytest.mark.parametrize("why", APART)
def test_a_layer_that_can_t_follow_is_refused(why: str) -> None:
    following = make_layer(inputs=5, outputs=2)
    make_layer(following=following)
    with pytest.raises(ValueError, match="following"):
        make_layer(following=following, **APART[why])


def test_a_pooling_that_does_not_fit_is_refused() -> None:
    following = make_layer(inputs=5, outputs=2, image=(2, 3), pool=(2, 2, 2, 2))
    make_layer(following=following)
    for image in ((6, 6), (4, 4), (1, 6)):
        with pytest.raises(ValueError, match="following"):
            make_layer(following=following, image=image)
    with pytest.raises(TypeError, match="following"):
        make_layer(following="layer")


@pytest.mark.parametrize("name", CALLS)
def test_a_call_beyond_the_memory_is_refused(name: str) -> None:
    said, call = CALLS[name]
    layer = make_layer()
    layer.forward(1, True)
    with pytest.raises(ValueError, match=said):
        call(layer)


def test_buffers_of_a_call_are_as_large_as_they_must_be() -> None:
    layer = make_layer(**FIRST)
    for images in (short((2, 3, 4, 6), np.uint8), np.zeros((3, 3, 4, 6), np.uint8)):
        with pytest.raises(ValueError, match="images"):
            layer.load(images, TABLE, 2)
    for table in (TABLE[:-1], np.zeros(257, np.uint8)):
        with pytest.raises(ValueError, match="table"):
            layer.load(np.zeros((2, 3, 4, 6), np.uint8), table, 2)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        *(("mantissa", (mantissa, 0, 1)) for mantissa in (0, 256)),
        *(("exponent", (1, exponent, 1)) for exponent in (2**15, -(2**15) - 1)),
        ("size", (1, 0, -1)),
    ],
)
def test_a_rate_is_in_range(name: str, facts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=name):
        make_layer().update(*facts, *DRAWS)


def test_the_largest_rate_leaves_weights_without_a_gradient() -> None:
    codes = np.full((5, 3, 3, 3), 5, np.int16)
    layer = make_layer(codes=codes)
    layer.update(255, 2**15 - 1, 0, *DRAWS)  # before there is a gradient
    assert np.all(codes == 5)
    memory(layer, "gradient")[0, 0, 0] = 1
    layer.update(255, 2**15 - 1, 1, *DRAWS)
    assert codes[0, 0, 0, 0] == -127
    assert np.sum(codes == 5) == 134


def test_what_was_built_without_training_does_not_train() -> None:
    layer = make_layer(training=False)
    layer.forward(2, False)
    calls: list[Callable[[], object]] = [
        lambda: layer.forward(2, True),
        lambda: layer.backward(2),
        lambda: layer.gradient(0, 1),
        lambda: layer.update(1, 0, 1, *DRAWS),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="without training"):
            call()
    with pytest.raises(ValueError, match="first layer"):
        make_layer(**FIRST).backward(1)


def test_memory_can_t_be_resized_and_outlives_its_layer() -> None:
    layer = make_layer()
    view = layer.memory("errors")
    assert view is not None
    owner = view.obj
    view.release()
    assert isinstance(owner, bytearray)
    with pytest.raises(BufferError):
        owner.clear()
    kept = np.asarray(layer.memory("errors"))
    del layer
    assert np.all(kept == 128)
