"""Averages, additions and groups: numbers by hand, the true gradient, and ResNet-8 and DS-CNN in every kernel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.nets import Add, Architecture, AvgPool, Conv, Flatten, Linear, Take, build
from prowd.nets.float32 import FloatModel, FloatSettings, forward
from prowd.nets.lowbit import simulated
from prowd.nets.lowbit.kernels import make_kernel, why_not_int8
from prowd.nets.lowbit.update import Draws
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.numbers.quantize import QTensor, Rate, ternary
from prowd.numbers.streams import Stream
from tests.kernels import needs_c99, random_codes
from tests.reference import integer_oracle as oracle
from tests.reference.integer_oracle import Ints

PIXEL = Conv("a", 1, 1, (1, 1), padding=(0, 0), relu=False)
CPU = torch.device("cpu")


def ints(*values: object) -> Ints:
    return np.array(values, np.int64)


def test_an_average_by_hand() -> None:
    layer = AvgPool((1, 4), (1, 2))
    codes = ints([[[1, 2, 3, 4, -3, -6]]])
    assert oracle.average_pool(layer, codes).tolist() == [[[[2, 0]]]]  # 10/4 and −2/4, halves to even
    assert oracle.average_pool_error(layer, ints([[[5, 7]]]), codes).tolist() == [[[[5, 5, 12, 12, 7, 7]]]]


def test_errors_that_meet_by_hand() -> None:
    """S = 8. The image is added to what one weight makes of it, and the sum is clipped; both α are 1."""
    net = Architecture((PIXEL, Add(-1), Flatten(), Linear("b", 2, 1, relu=False)), (1, 1, 2))
    tape = oracle.forward(net, 4, [ints([[[7]]]), ints([7, -7])], ints([[[6, 2]]]))
    # a = [6, 2]/2 = [3, 1]; a + x = [9, 3], clipped to [7, 3]; n = 4, half of it 2
    assert tape.inputs[3].tolist() == [[7, 3]]
    assert tape.logits.tolist() == [[2]]
    # e = 8·1/1 clipped to 7; below [7, −7]; the first is saturated: [0, −7], and 8·(−7)/8 = −7 for the weight
    assert [g.tolist() for g in oracle.backward(tape, ints([1]))] == [[[[[-14]]]], [[49, 21]]]


def test_the_finer_error_is_rounded_to_the_scale_of_the_coarser() -> None:
    one, two = (ints(5, -6, 7), -3), (ints(100, 0, -3), -1)
    found, exponent = oracle.met(one, two)
    assert (found.tolist(), exponent) == ([101, -2, -1], -1)  # 5/4, −6/4 and 7/4, halves to even
    zero = ints(0, 0, 0), 50
    assert oracle.met(one, zero) is one
    assert oracle.met(zero, one) is one
    for a, b in ((one, two), (two, one), (one, zero), (zero, two)):
        tensors = [simulated._Error(torch.from_numpy(n), x) for n, x in (a, b)]
        met = tensors[1].met(tensors[0])
        assert (met.integers.tolist(), met.exponent) == (oracle.met(a, b)[0].tolist(), oracle.met(a, b)[1])


def straight_through(net: Architecture, weights: list[Tensor], images: Tensor) -> Tensor:
    """Logits in float64 of the ternary network, clipped as codes of 16 bits are, but never rounded."""
    held, x, rest, top = {-1: images}, images, iter(zip(weights, net.alphas, strict=True)), 1 - 2.0**-15
    for number, layer in enumerate(net.layers):
        if isinstance(layer, AvgPool):
            x = F.avg_pool2d(x, layer.kernel, layer.stride)
        elif isinstance(layer, Flatten):
            x = x.flatten(1)
        elif isinstance(layer, Take):
            x = held[layer.source]
        elif isinstance(layer, Add | Conv | Linear):
            if isinstance(layer, Add):
                x = x + held[layer.source]
            else:
                weight, alpha = next(rest)
                if isinstance(layer, Conv):
                    x = F.conv2d(x, weight, None, layer.stride, layer.padding, groups=layer.groups) / alpha
                else:
                    x = F.linear(x, weight) / alpha
            x = F.relu(x).clamp(max=top) if layer.relu else x.clamp(-top, top)
        held[number] = x
    return x


@pytest.mark.parametrize("name", ["resnet8", "dscnn"])
def test_gradients_are_those_of_the_network(name: str) -> None:
    """Shift hides the scale of a layer's error. Where two errors meet it is there again: at 16 bits the integer
    gradient of every layer points where automatic differentiation does."""
    net, width = build(name, (2, 8, 8), 4, 0.25), Bitwidth(16)
    codes, random = random_codes(net, 16, seed=5), torch.Generator().manual_seed(4)
    images = torch.randint(-20000, 20000, (6, 2, 8, 8), generator=random)
    ternaries = [ternary(tensor.float(), width) for tensor in codes]
    tape = simulated.forward(net, width, ternaries, images.float())
    error = torch.randint(-(2**20), 2**20, (6, 4), generator=random)
    weights = [(tensor.double() / 2).requires_grad_() for tensor in ternaries]
    logits = straight_through(net, weights, images.double() / width.steps)
    expected = torch.autograd.grad(logits, weights, error.double())
    for layer, found, true in zip(net.weight_layers, simulated.gradients(tape, error), expected, strict=True):
        cosine = F.cosine_similarity(found.double().flatten(), true.flatten(), 0)
        assert cosine > 0.97, layer.name  # with the scales left out it is 0.45 to 0.88 below the last block of ResNet-8


@needs_c99
@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("name", ["resnet8", "dscnn"])
def test_every_kernel_computes_the_same_steps(name: str, bits: int) -> None:
    net, width = build(name, (3, 8, 8), 10, 0.25), Bitwidth(bits)
    codes, random = random_codes(net, bits), torch.Generator().manual_seed(bits)
    kernels = [make_kernel(choice, net, width, codes) for choice in ("simulated", "c99", "auto")]
    assert [kernel.name for kernel in kernels] == ["simulated", "c99", "c99"]  # auto falls back, with the reason:
    assert why_not_int8(CPU, net) is not None
    for step in range(3):
        images = torch.randint(256, (5, 3, 8, 8), generator=random, dtype=torch.uint8)
        error = torch.randint(-(2**30), 2**30, (5, 10), generator=random)
        logits = [kernel.forward(images) for kernel in kernels]
        assert all(torch.equal(logits[0], other) for other in logits)
        for kernel in kernels:
            kernel.learn(error, Rate(5, bits - 5), Draws(Stream.of(1, "test"), step), [None] * len(codes))
        for one, *others in zip(*(kernel.codes for kernel in kernels), strict=True):
            assert all(torch.equal(one, other) for other in others)
    assert not all(torch.equal(one, other) for one, other in zip(kernels[0].codes, codes, strict=True))


@pytest.mark.parametrize("name", ["resnet8", "dscnn"])
def test_the_float32_twin_starts_as_the_network_of_v_over_alpha(name: str) -> None:
    net, random = build(name, (2, 8, 8), 4, 0.25), torch.Generator().manual_seed(0)
    weights = {key: torch.rand(shape, generator=random) - 0.5 for key, shape in net.shapes.items()}
    model = FloatModel(net, {key: QTensor(v, FLOAT32) for key, v in weights.items()}, FloatSettings(), CPU)
    images = torch.randint(-128, 128, (5, 2, 8, 8), generator=random).to(torch.int8)
    effective = [v / alpha for v, alpha in zip(weights.values(), net.alphas, strict=True)]
    torch.testing.assert_close(model.logits(images), forward(net, effective, images / 128))
    model.step(images, torch.arange(5) % 4)
    assert not any(torch.equal(tensor.codes, weights[key]) for key, tensor in model.weights().items() if key in weights)
