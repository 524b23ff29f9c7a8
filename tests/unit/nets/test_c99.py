"""What the compiled part of the c99 kernel refuses: it writes to memory, so all that it is told must fit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from prowd.nets.architecture import Architecture, Conv, Flatten, Linear, MaxPool
from prowd.nets.lowbit.kernels import why_not_c99
from prowd.nets.lowbit.update import Draws
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Rate
from prowd.numbers.streams import Stream
from tests.kernels import missing_core, random_codes

if reason := missing_core():
    pytest.skip(reason, allow_module_level=True)

from prowd.nets.lowbit import _core
from prowd.nets.lowbit.c99 import C99Kernel, describe

CPU = torch.device("cpu")
NAMES = (
    "kind", "inputs", "rows", "columns", "outputs", "out_rows", "out_columns", "kernel_rows", "kernel_columns",
    "stride_rows", "stride_columns", "pad_rows", "pad_columns", "shift", "relu",
    "groups", "skip", "other",
)  # fmt: skip
NET = Architecture((Conv("a", 2, 3), MaxPool(), Flatten(), Linear("b", 24, 5, relu=False)), (2, 4, 8))
TABLE = np.zeros(256, np.int16)
IMAGES = np.zeros((2, 2, 4, 8), np.uint8)
LOGITS = np.zeros((2, 5), np.int16)
ERRORS = np.ones((2, 5), np.int32)
DRAWS = 1, 2, 3


def make(
    bits: int = 12, layers: object = None, weights: object = None, images: int = 2, training: bool = True
) -> _core.Net:
    codes = tuple(np.zeros(shape, np.int16) for shape in NET.shapes.values())
    made: Any = _core.Net
    return made(bits, layers or describe(NET), weights or codes, images, training)  # type: ignore[no-any-return]


def changed(layer: int, **facts: int) -> tuple[tuple[int, ...], ...]:
    """The layers of the network with other facts of one."""
    layers = [dict(zip(NAMES, facts, strict=True)) for facts in describe(NET)]
    layers[layer] |= facts
    return tuple(tuple(facts.values()) for facts in layers)


SIDES = [(name, value) for name in NAMES[:11] for value in (-1, 0, 2**20 + 1, 2**31 - 1, 2**31, -(2**63))]
WRONG = [
    *SIDES[1:],  # the first kind, but for 0, which is a convolution's
    *(("kind", value) for value in (1, 2)),
    *((name, value) for name in NAMES[11:13] for value in (-1, 2, 2**20, 2**31)),
    *(("shift", value) for value in (-1, 0, 31, 64, 2**20)), ("outputs", 4), ("out_rows", 3), ("kernel_columns", 2),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [pair for pair in WRONG if pair != ("kind", 0)])
def test_a_layer_that_does_not_fit_is_refused(name: str, value: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        make(layers=changed(0, **{name: value}))


@pytest.mark.parametrize(
    "facts", [{"pad_rows": 1, "out_rows": 3}, {"outputs": 4}, {"kind": 0, "shift": 0}, {"kind": 5}]
)
def test_a_pooling_that_does_not_fit_is_refused(facts: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="layer 2"):
        make(layers=changed(1, **facts))


def test_layers_join_and_end_with_one_pixel() -> None:
    wrong: list[object] = [(), [], None, (1,), ((1,) * 17,), (("a",) * 18,)]
    for layers in wrong:
        with pytest.raises((ValueError, TypeError)):
            _core.Net(8, layers, (), 1, True)  # type: ignore[arg-type]
    first, pool, last = describe(NET)
    for apart in ((first, last), (first, pool), (last, first), (last,) * 257):
        with pytest.raises(ValueError, match="layer"):
            make(layers=apart)


@pytest.mark.parametrize("bits", [-1, 0, 1, 17, 2**20])
def test_a_width_is_from_two_to_sixteen(bits: int) -> None:
    with pytest.raises(ValueError, match="layer"):
        make(bits=bits)


def test_memory_is_for_a_number_of_images_that_a_machine_may_have() -> None:
    for images in (-1, 0, 2**20 + 1):
        with pytest.raises(ValueError, match="images"):
            make(images=images)
    side = 2**15
    huge = ((1, 1, side, side, 1, 1, 1, side, side, 1, 1, 0, 0, 0, 0, 1, 0, 0), describe(NET)[2])
    with pytest.raises(ValueError, match="layer"):
        make(layers=huge, images=2**20)


def test_weights_are_those_of_the_layers() -> None:
    one, two = (np.zeros(shape, np.int16) for shape in NET.shapes.values())
    odd = np.zeros(2 * one.size + 1, np.uint8)[1:].view(np.int16)
    frozen = one.copy()
    frozen.flags.writeable = False
    for wrong in ((one,), (one, two, two), (two, one), (one[:2], two), (one.astype(np.int32), two), (odd, two)):
        with pytest.raises(ValueError, match="weights"):
            make(weights=wrong)
    for first in (one[..., ::2], frozen, "codes"):
        with pytest.raises((ValueError, BufferError, TypeError)):
            make(weights=(first, two))


CALLS: dict[str, tuple[str, Callable[[_core.Net], object]]] = {
    "no images": ("images", lambda net: net.forward(IMAGES[:0], TABLE, 0, LOGITS[:0])),
    "more images": ("images", lambda net: net.forward(np.zeros((3, 2, 4, 8), np.uint8), TABLE, 3, LOGITS)),
    "fewer bytes": ("images", lambda net: net.forward(IMAGES[:, :, :, 1:].copy(), TABLE, 2, LOGITS)),
    "floats": ("images", lambda net: net.forward(IMAGES.astype(np.float32), TABLE, 2, LOGITS)),
    "a short table": ("table", lambda net: net.forward(IMAGES, TABLE[1:], 2, LOGITS)),
    "codes that are wider": ("table", lambda net: net.forward(IMAGES, TABLE + np.int16(2048), 2, LOGITS)),
    "codes that are as low": ("table", lambda net: net.forward(IMAGES, TABLE - np.int16(2048), 2, LOGITS)),
    "fewer logits": ("logits", lambda net: net.forward(IMAGES, TABLE, 2, LOGITS[:1])),
    "fewer errors": ("errors", lambda net: net.learn(ERRORS[:1], 1, 0, *DRAWS)),
    "wide errors": ("errors", lambda net: net.learn(ERRORS.astype(np.int64), 1, 0, *DRAWS)),
    "large errors": ("errors", lambda net: net.learn(ERRORS * np.int32(2**30 + 1), 1, 0, *DRAWS)),
    "no rate": ("rate", lambda net: net.learn(ERRORS, 0, 0, *DRAWS)),
    "a large mantissa": ("rate", lambda net: net.learn(ERRORS, 256, 0, *DRAWS)),
    "a large exponent": ("rate", lambda net: net.learn(ERRORS, 1, 257, *DRAWS)),
    "a small exponent": ("rate", lambda net: net.learn(ERRORS, 1, -257, *DRAWS)),
    "fewer gradients": ("gradients", lambda net: net.gradients(ERRORS, np.zeros(54 + 119, np.int64))),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_with_what_does_not_fit_is_refused(name: str) -> None:
    said, call = CALLS[name]
    net = make()
    net.forward(IMAGES, TABLE, 2, LOGITS)
    with pytest.raises(ValueError, match=said):
        call(net)
    net.learn(ERRORS, 1, 0, *DRAWS)  # it is not in use any more, and has kept its images


@pytest.mark.parametrize("training", [True, False])
def test_learning_follows_a_forward_pass_that_was_recorded(training: bool) -> None:
    net = make(training=training)
    calls: list[Callable[[], None]] = [
        lambda: net.learn(ERRORS, 1, 0, *DRAWS),
        lambda: net.gradients(ERRORS, np.zeros(54 + 120, np.int64)),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="recorded"):
            call()
    net.forward(IMAGES, TABLE, 2, LOGITS)
    if training:
        calls[0]()
    for call in calls:
        with pytest.raises(ValueError, match="recorded"):
            call()


def test_errors_that_32_bits_can_t_hold_are_refused_by_the_kernel() -> None:
    kernel = C99Kernel(NET, Bitwidth(8), random_codes(NET, 8))
    kernel.forward(torch.from_numpy(IMAGES))
    with pytest.raises(ValueError, match="errors"):
        kernel.learn(torch.full((2, 5), 2**30 + 1), Rate(1, 0), Draws(Stream.of(0, "test"), 0), [None] * 2)


def test_a_second_thread_is_refused() -> None:
    net = Architecture(
        (Conv("a", 16, 64), Conv("b", 64, 64), Flatten(), Linear("c", 65536, 2, relu=False)), (16, 32, 32)
    )
    made = _core.Net(8, describe(net), tuple(np.zeros(shape, np.int16) for shape in net.shapes.values()), 64, True)
    images, logits = np.zeros((64, *net.input_shape), np.uint8), np.zeros((64, 2), np.int16)
    calls = (
        lambda: made.forward(images[:1], TABLE, 1, logits[:1]),
        lambda: made.learn(np.ones((64, 2), np.int32), 1, 0, *DRAWS),
    )
    refused: set[int] = set()
    with ThreadPoolExecutor(1) as threads:
        for _ in range(100):  # once is enough where the other thread comes first
            busy = threads.submit(made.forward, images, TABLE, 64, logits)
            while not busy.done():
                refused |= {number for number, call in enumerate(calls) if is_refused(call)}
            if len(refused) == len(calls):
                break
    assert len(refused) == len(calls)
    assert not is_refused(calls[0])


def is_refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except RuntimeError as error:
        return "another thread" in str(error)
    except ValueError:  # it came before the other, and its images are not those of the errors
        return False
    return False


# --- sums ------------------------------------------------------------------------------------------------------------


LARGEST = {1: 3641, 4: 910, 9: 404}  # outputs, by the windows that share a place


@pytest.mark.parametrize("pools", LARGEST)
@pytest.mark.parametrize("more", [0, 1])
def test_errors_that_add_up_beyond_2_30_are_refused(pools: int, more: int) -> None:
    """9 taps · outputs · 32,767, times the windows of an overlapping pooling that share a place, is at most 2^30."""
    kernel, outputs = {1: (2, 2), 4: (4, 3), 9: (6, 5)}[pools], LARGEST[pools] + more
    layers = (Conv("a", 1, 1), MaxPool(kernel, (2, 2)), Conv("b", 1, outputs, relu=False), MaxPool((2, 2), (9, 9)))
    net = Architecture((*layers, Flatten(), Linear("c", outputs, 1, relu=False)), (1, 8, 8))
    assert (why_not_c99(CPU, net) is None) == (more == 0)


def test_the_errors_before_the_first_convolution_add_up_nowhere() -> None:
    layers = (MaxPool((64, 64), (1, 1)), Conv("a", 1, 40_000, (1, 1), padding=(0, 0)), Flatten())
    assert why_not_c99(CPU, Architecture((*layers, Linear("b", 40_000, 1, relu=False)), (1, 64, 64))) is None
    two = (MaxPool((64, 64), (1, 1)), Conv("a", 1, 1, (1, 1), padding=(0, 0)), MaxPool((255, 200), (1, 1)))
    net = Architecture((*two, Flatten(), Linear("b", 1, 1, relu=False)), (1, 318, 263))
    assert why_not_c99(CPU, net) is not None  # 51,000 · 32,767 > 2^30
