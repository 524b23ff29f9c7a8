"""The int8 kernel in every instruction set of this CPU, compared with the oracle. Imported where there is one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from prowd.nets.architecture import Architecture
from prowd.nets.lowbit import _native, update
from prowd.nets.lowbit.int8 import Int8Kernel
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Rate
from prowd.numbers.streams import Stream
from tests.kernels import as_bytes
from tests.reference import integer_oracle as oracle
from tests.reference.integer_oracle import Ints
from tests.reference.networks import Case, fill

Additions = Sequence[Tensor | None]


def errors_of(error: Ints) -> Tensor:
    return torch.from_numpy(error)


def draws_of(seed: int) -> update.Draws:
    """The first step of the stream that the oracle's ``words`` are of."""
    return update.Draws(Stream.of(seed, "test"), 0)


def as_codes(weights: Sequence[Ints]) -> list[Tensor]:
    return [torch.from_numpy(codes).to(torch.int16) for codes in weights]


def as_ints(tensor: Tensor) -> Ints:
    whole = tensor.to(torch.int64)
    assert torch.equal(whole.double(), tensor.double()), "not integers"
    return np.asarray(whole.numpy())


def assert_same(tensor: Tensor, expected: Ints, where: str) -> None:
    np.testing.assert_array_equal(as_ints(tensor), expected, where, strict=True)


def assert_all_same(tensors: Sequence[Tensor], expected: Sequence[Ints], where: str) -> None:
    for tensor, integers in zip(tensors, expected, strict=True):
        assert_same(tensor, integers, where)


def kernels(case: Case) -> list[Int8Kernel]:
    """One for each instruction set."""
    return [Int8Kernel(case.architecture, Bitwidth(case.s), as_codes(case.weights), name) for name in _native.kernels()]


def expect(case: Case) -> tuple[Ints, list[Ints]]:
    """Logits and gradients of the oracle."""
    tape = oracle.forward(case.architecture, case.s, case.weights, case.x)
    return tape.logits, oracle.backward(tape, case.error)


def check(case: Case) -> list[Ints]:
    """Compare logits and gradients; return the gradients."""
    logits, gradients = expect(case)
    for kernel in kernels(case):
        assert_same(kernel.forward(as_bytes(case.x, case.s), record=False), logits, kernel.name)
        assert_same(kernel.forward(as_bytes(case.x, case.s)), logits, kernel.name)
        assert_all_same(kernel.gradients(errors_of(case.error)), gradients, kernel.name)
    return gradients


def random_case(net: Architecture, s: int, batch: int) -> Case:
    random = np.random.default_rng(batch)
    weights = [fill("random", shape, s, random) for shape in net.shapes.values()]
    x = fill("random", (batch, *net.input_shape), s, random)
    return Case(net, s, weights, x, fill("random", (batch, net.classes), s, random))


def stepped(case: Case, gradients: list[Ints], rate: Rate, seed: int, additions: Additions) -> list[Ints]:
    """The weights after an update with these gradients."""
    width, draws = Bitwidth(case.s), draws_of(seed)
    layers = enumerate(zip(as_codes(case.weights), gradients, additions, strict=True))
    return [
        as_ints(update.step(codes, errors_of(g), rate, width, draws.words(layer, codes), extra))
        for layer, (codes, g, extra) in layers
    ]


def learn(kernel: Int8Kernel, case: Case, rate: Rate, seed: int, additions: Additions) -> list[Tensor]:
    kernel.forward(as_bytes(case.x, case.s))
    kernel.learn(errors_of(case.error), rate, draws_of(seed), additions)
    return kernel.codes
