"""Which networks the int8 kernel takes, up to the last that it can; the others are left to the c99 kernel."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch

from prowd.errors import ConfigError
from prowd.nets.architecture import Add, Architecture, AvgPool, Conv, Flatten, Layer, Linear, MaxPool, Shape, Take
from prowd.nets.lowbit import kernels, update
from prowd.nets.lowbit.kernels import KernelChoice, check_kernel, make_kernel
from prowd.nets.lowbit.stages import unsupported
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Rate
from prowd.numbers.streams import Stream
from tests.kernels import as_bytes, needs_c99, needs_int8, random_codes
from tests.reference import integer_oracle as oracle

PIXEL = Conv("a", 1, 1, (1, 1), padding=(0, 0))
UNSUPPORTED: dict[str, tuple[Shape, tuple[Layer, ...], str]] = {
    "overlap": ((1, 8, 8), (Conv("a", 1, 3), MaxPool((3, 2), (2, 2))), "a pooling whose windows overlap"),
    "large window": ((1, 16, 16), (Conv("a", 1, 2), MaxPool((16, 16), (16, 16))), "of more than 255 places"),
    "no convolution": ((2, 8, 8), (MaxPool(),), "a pooling that does not follow a convolution"),
    "two poolings": ((1, 8, 8), (Conv("a", 1, 3), MaxPool(), MaxPool()), "a pooling that does not follow"),
    "padding": ((1, 8, 8), (Conv("a", 1, 2, (3, 1)),), "a padding as large as the kernel"),
    "groups": ((2, 4, 4), (Conv("a", 2, 4, groups=2),), "a convolution in groups"),
    "average": ((1, 4, 4), (Conv("a", 1, 2), AvgPool()), "an average pooling"),
    "positions": ((1, 183, 183), (PIXEL, Conv("b", 1, 1, (90, 90), (93, 93))), "sums that int32 can't hold"),
}
SUPPORTED: dict[str, tuple[Shape, tuple[Layer, ...]]] = {
    "large window": ((1, 15, 17), (Conv("a", 1, 2), MaxPool((15, 17), (15, 17)))),
    "padding": ((1, 8, 8), (Conv("a", 1, 2, (3, 2), padding=(2, 1)),)),
    "poolings": ((1, 9, 8), (Conv("a", 1, 3), MaxPool(), Conv("b", 3, 2), MaxPool((2, 1), (3, 1)))),
    "nothing else": ((2, 3, 5), ()),
}


def with_logits(shape: Shape, layers: tuple[Layer, ...]) -> Architecture:
    given = functools.reduce(lambda so_far, layer: layer.output(so_far), layers, shape)
    logits = Linear("logits", math.prod(given), 3, relu=False)
    return Architecture((*layers, Flatten(), logits), (shape[0], shape[1], shape[2]))


def check_step(choice: KernelChoice, bits: int, architecture: Architecture) -> None:
    """Compare the logits of a batch and the gradients, seen in the weights after an update, with the oracle's."""
    top, random = Bitwidth(bits).max_code, torch.Generator().manual_seed(bits)
    x = torch.randint(-top, top + 1, (5, *architecture.input_shape), generator=random)
    error = torch.randint(-9, 10, (5, architecture.classes), generator=random)
    weights = random_codes(architecture, bits)
    kernel = make_kernel(choice, architecture, Bitwidth(bits), weights)
    assert kernel.name.startswith("int8" if choice == "int8" else "c99")
    tape = oracle.forward(architecture, bits, [codes.long().numpy() for codes in weights], x.numpy())
    assert np.array_equal(kernel.forward(as_bytes(x.numpy(), bits)).numpy(), tape.logits)
    rate, draws = Rate.nearest(5.3), update.Draws(Stream.of(1, "test"), 0)
    kernel.learn(error, rate, draws, [None] * len(weights))
    gradients = [torch.from_numpy(g) for g in oracle.backward(tape, error.numpy())]
    for layer, (found, codes, gradient) in enumerate(zip(kernel.codes, weights, gradients, strict=True)):
        assert torch.equal(found, update.step(codes, gradient, rate, Bitwidth(bits), draws.words(layer, codes)))


@needs_c99
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_networks_that_int8_can_t_compute_are_left_to_c99(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, layers, reason = UNSUPPORTED[name]
    architecture = with_logits(shape, layers)
    monkeypatch.setattr(kernels, "_why_not_here", lambda: None)
    check_step("auto", 8, architecture)
    with pytest.raises(ConfigError, match=f"^kernel: .*{reason}"):
        check_kernel("int8", torch.device("cpu"), architecture)


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ((Conv("a", 2, 2), Add(-1)), "an addition"),
        ((Conv("a", 2, 2), Take(-1), Conv("b", 2, 2), Add(0)), "a layer that goes on from an earlier one"),
    ],
)
def test_shortcuts_are_left_to_c99(layers: tuple[Layer, ...], reason: str) -> None:
    net = Architecture((*layers, Flatten(), Linear("logits", 32, 3, relu=False)), (2, 4, 4))
    assert str(unsupported(net)).startswith(f"{reason} (")


@needs_int8
@pytest.mark.parametrize("name", SUPPORTED)
@pytest.mark.parametrize("bits", [3, 8])
def test_networks_that_int8_can_just_compute(name: str, bits: int) -> None:
    check_step("int8", bits, with_logits(*SUPPORTED[name]))


def test_sums_that_int32_can_t_hold_are_refused() -> None:
    wide = {inputs: Linear("a", inputs, 3, relu=False) for inputs in (4_210_752, 4_210_753)}
    found = [unsupported(Architecture((Flatten(), layer), (1, 1, inputs))) for inputs, layer in wide.items()]
    assert found == [None, f"sums that int32 can't hold ({wide[4_210_753]})"]
    assert unsupported(Architecture((Flatten(), Linear("a", 1, 4_210_753, relu=False)), (1, 1, 1))) is not None
    reasons = [unsupported(with_logits((1, side, side), (Conv("a", 1, 1),))) for side in (182, 183)]
    assert [reason is None for reason in reasons] == [True, False], "4 · 127² · 183² is above 2^31"
