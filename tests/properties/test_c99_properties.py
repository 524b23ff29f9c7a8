"""The c99 kernel gives exactly the integers of the oracle and of the simulated kernel, at every width."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prowd.nets.architecture import Architecture, Conv, Flatten, Layer, Linear, MaxPool, Shape
from prowd.nets.lowbit.simulated import SimulatedKernel
from prowd.nets.lowbit.update import Draws
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Rate
from prowd.numbers.streams import Stream
from tests.kernels import missing_core, random_codes
from tests.reference import integer_client as client
from tests.reference import integer_oracle as oracle
from tests.reference.networks import Case, cases, graphs, plain_architectures, plain_cases

if reason := missing_core():
    pytest.skip(reason, allow_module_level=True)

from prowd.nets.lowbit.c99 import CHUNK, C99Kernel

rates = st.builds(Rate, st.integers(0, 127).map(lambda half: 2 * half + 1), st.integers(-30, 20))
seeds = st.integers(0, 2**32 - 1)
PIXEL = Conv("p", 1, 2, (1, 1), padding=(0, 0))
SHAPES: dict[str, tuple[Shape, tuple[Layer, ...]]] = {
    "one pixel": ((1, 1, 1), (Conv("a", 1, 1),)),
    "one channel": ((1, 6, 5), (Conv("a", 1, 1), Conv("b", 1, 1, (2, 2), (2, 1), (0, 1)))),
    "odd": ((3, 7, 11), (Conv("a", 3, 5, (3, 2), (2, 3), (1, 0)), Conv("b", 5, 3, (1, 3), padding=(0, 2)))),
    "strides beyond the kernel": (
        (2, 9, 8),
        (Conv("a", 2, 3, (2, 1), (3, 4), (0, 0)), Conv("b", 3, 2, (1, 1), (2, 2))),
    ),
    "padding beyond the kernel": (
        (2, 3, 4),
        (Conv("a", 2, 3, (2, 1), (1, 2), (4, 3)), Conv("b", 3, 2, padding=(3, 5))),
    ),
    "only padding": ((1, 2, 2), (PIXEL, Conv("b", 2, 2, (1, 1), (9, 9), (3, 3)))),
    "overlapping pools": (
        (2, 9, 9),
        (Conv("a", 2, 3), MaxPool((3, 3), (1, 1)), MaxPool((3, 2), (2, 1)), Conv("b", 3, 2)),
    ),
    "pool before conv": (
        (3, 8, 6),
        (MaxPool((2, 3), (2, 1)), Conv("a", 3, 4), MaxPool((2, 2), (3, 3)), Conv("b", 4, 4)),
    ),
    "pairs of many columns": ((1, 4, 140), (Conv("a", 1, 3), MaxPool(), Conv("b", 3, 3), MaxPool((2, 2), (1, 2)))),
    "rows longer than a chunk": ((1, 2, 1100), (Conv("a", 1, 3, (2, 3), padding=(1, 1)), MaxPool((3, 2), (3, 2)))),
    "rows that fill chunks": ((1, 3, 512), (Conv("a", 1, 2), Conv("b", 2, 2, (1, 2), (1, 2), (0, 0)))),
    "more rows than a chunk": ((2, 40, 31), (Conv("a", 2, 3), Conv("b", 3, 2, (3, 3), (3, 2)))),
    "many channels": ((37, 4, 4), (Conv("a", 37, 70), Conv("b", 70, 33, (3, 3), (1, 1), (0, 0)))),
    "long windows": ((90, 6, 6), (Conv("a", 90, 20, (5, 5), padding=(2, 2)), Conv("b", 20, 9, (4, 4), (1, 1), (1, 2)))),
}


def with_logits(shape: Shape, layers: tuple[Layer, ...], classes: int = 5) -> Architecture:
    given = shape
    for layer in layers:
        given = layer.output(given)
    logits = Linear("logits", math.prod(given), classes, relu=False)
    return Architecture((*layers, Flatten(), logits), (shape[0], shape[1], shape[2]))


def as_ints(tensors: list[Tensor]) -> list[list[int]]:
    return [tensor.flatten().tolist() for tensor in tensors]


def check_steps(net: Architecture, bits: int, batches: list[int], dtype: torch.dtype, rate: Rate, seed: int) -> None:
    """Logits, gradients and weights of some steps, with looks at other images in between."""
    width, random = Bitwidth(bits), torch.Generator().manual_seed(seed)
    codes = random_codes(net, bits, seed)
    kernel, other = C99Kernel(net, width, codes), SimulatedKernel(net, width, codes)
    for step, batch in enumerate(batches):
        images = torch.randint(256, (batch, *net.input_shape), generator=random, dtype=torch.uint8).view(dtype)
        error = torch.randint(-(2**30), 2**30 + 1, (batch, net.classes), generator=random)
        assert torch.equal(kernel.forward(images.flip(0), record=False).flip(0), other.forward(images))
        assert torch.equal(kernel.forward(images), other.forward(images))
        for one in (kernel, other):
            one.learn(error, rate, Draws(Stream.of(seed, "test"), step), [None] * len(codes))
        assert as_ints(list(kernel.codes)) == as_ints(list(other.codes))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("bits", "dtype"), [(2, torch.int8), (8, torch.uint8), (12, torch.int8), (16, torch.uint8)])
def test_odd_networks_are_the_simulated_kernel_s(name: str, bits: int, dtype: torch.dtype) -> None:
    check_steps(with_logits(*SHAPES[name]), bits, [3, 1, 5], dtype, Rate(5, 3), bits)


@pytest.mark.parametrize("bits", range(2, 17))
def test_every_width_is_the_simulated_kernel_s(bits: int) -> None:
    layers = (Conv("a", 3, 9), MaxPool((3, 3), (2, 2)), Conv("b", 9, 6, relu=False))
    check_steps(with_logits((3, 9, 9), layers), bits, [4, 6, 1, 13], torch.uint8, Rate(3, bits - 7), bits)


@settings(max_examples=300, deadline=None)
@given(st.one_of(plain_architectures(channels=20), cases().map(lambda case: case.architecture), graphs()), st.data())
def test_any_network_is_the_simulated_kernel_s(net: Architecture, data: st.DataObject) -> None:
    bits, dtype = data.draw(st.integers(2, 16)), data.draw(st.sampled_from((torch.uint8, torch.int8)))
    batches = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    check_steps(net, bits, batches, dtype, data.draw(rates), data.draw(seeds))


def bytes_of(case: Case) -> tuple[Case, Tensor]:
    """The case with inputs that bytes stand for, and these."""
    random = np.random.default_rng(case.s)
    images = random.integers(0, 256, case.x.shape)
    codes = np.array([client.image_code(u, case.s) for u in range(256)])
    error = np.clip(case.error, -(2**30), 2**30)
    return replace(case, x=codes[images], error=error), torch.from_numpy(images).to(torch.uint8)


@settings(max_examples=120, deadline=None)
@given(st.one_of(cases(), cases(nets=graphs()), plain_architectures().flatmap(lambda net: plain_cases(net, 16))))
def test_logits_and_gradients_are_the_oracle_s(drawn: Case) -> None:
    case, images = bytes_of(drawn)
    kernel = C99Kernel(case.architecture, Bitwidth(case.s), [torch.from_numpy(codes) for codes in case.weights])
    tape = oracle.forward(case.architecture, case.s, case.weights, case.x)
    assert kernel.forward(images).tolist() == tape.logits.tolist()
    found = kernel.gradients(torch.from_numpy(case.error))
    assert [g.tolist() for g in found] == [g.tolist() for g in oracle.backward(tape, case.error)]


@pytest.mark.parametrize("bits", [2, 12, 13, 16])
def test_gradients_of_largest_codes(bits: int) -> None:
    """All codes at their ends: 512 products fill 31 bits, and there are more of them."""
    top = Bitwidth(bits).max_code
    net = with_logits((1, 25, 41), (Conv("a", 1, 1, (1, 1), padding=(0, 0), relu=False),), classes=2)
    weights = [torch.zeros(1, 1, 1, 1), torch.tensor([top, -top])[:, None].expand(2, 1025)]
    kernel = C99Kernel(net, Bitwidth(bits), weights)
    kernel.forward(torch.full((3, 1, 25, 41), 255, dtype=torch.uint8))
    first, _ = kernel.gradients(torch.tensor([[1, -1]] * 3))
    assert first.item() == 3 * 1025 * top * top


@pytest.mark.parametrize("count", [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_logits_of_many_images_are_those_of_a_batch(count: int) -> None:
    net, random = with_logits(*SHAPES["odd"]), torch.Generator().manual_seed(count)
    kernel = C99Kernel(net, Bitwidth(12), random_codes(net, 12))
    images = torch.randint(256, (count, *net.input_shape), generator=random, dtype=torch.uint8)
    logits = kernel.forward(images)
    assert len(set(logits.flatten().tolist())) > 20
    assert torch.equal(kernel.forward(images, record=False), logits)
    assert torch.equal(kernel.forward(images[:3], record=False), logits[:3])
    assert kernel.forward(images[:0]).shape == (0, net.classes)
