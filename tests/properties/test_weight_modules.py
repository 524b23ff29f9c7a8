"""Weight modules against loops: nothing is lost and no kernel is split."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prowd.errors import ConfigError
from prowd.methods.prowd.dequantizer import assemble, cut, eligible
from prowd.nets import Architecture, Conv, Flatten, Linear, build

sizes = st.sampled_from([4, 9, 16, 64])
blocks = st.integers(1, 3)
kernels = st.sampled_from([(3, 3), (1, 1), (5, 1), (2, 3), ()])
"""Shapes of kernels; those of a linear layer have none."""


def numbered(outputs: int, inputs: int, kernel: tuple[int, ...]) -> Tensor:
    """A weight whose entries are all different."""
    shape = (outputs, inputs, *kernel)
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)


def slow_cut(weight: Tensor, size: int) -> Tensor:
    """Kernel by kernel, as Appendix C draws it."""
    k, modules = math.isqrt(size), []
    high, wide = weight.shape[2:] if weight.dim() == 4 else (1, 1)
    for first_output in range(0, weight.shape[0], size):
        for first_input in range(0, weight.shape[1], size):
            module = torch.zeros(size, k * high, k * wide)
            for channel in range(size):
                for kernel in range(size):
                    y, x = high * (kernel // k), wide * (kernel % k)
                    module[channel, y : y + high, x : x + wide] = weight[first_output + channel, first_input + kernel]
            modules.append(module)
    return torch.stack(modules)


@settings(deadline=None, max_examples=30)
@given(sizes, blocks, blocks, kernels)
def test_assemble_undoes_cut(size: int, rows: int, columns: int, kernel: tuple[int, ...]) -> None:
    weight = numbered(rows * size, columns * size, kernel)
    modules = cut(weight, size)
    k, (high, wide) = math.isqrt(size), kernel or (1, 1)
    assert modules.shape == (rows * columns, size, k * high, k * wide)
    assert torch.equal(assemble(modules, tuple(weight.shape)), weight)
    assert torch.equal(cut(assemble(modules, tuple(weight.shape)), size), modules)


@settings(deadline=None, max_examples=15)
@given(st.sampled_from([4, 9, 16]), blocks, blocks, kernels)
def test_cut_against_the_loop(size: int, rows: int, columns: int, kernel: tuple[int, ...]) -> None:
    weight = numbered(rows * size, columns * size, kernel)
    assert torch.equal(cut(weight, size), slow_cut(weight, size))


@pytest.mark.parametrize("shape", [(16, 8, 3, 3), (8, 16, 3, 3), (16, 8), (16, 16, 3)])
def test_shapes_without_modules(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="16-channel modules"):
        cut(torch.zeros(shape), 16)


@pytest.mark.parametrize("size", [-4, 0, 1, 2, 8, 63])
def test_sizes_that_are_no_grid(size: int) -> None:
    with pytest.raises(ConfigError, match=r"dequantizer\.module"):
        eligible(build("digits", (1, 8, 8), 10), size)


def test_which_layers_have_modules() -> None:
    assert eligible(build("vgg7", (3, 32, 32), 10), 64) == (
        *(f"conv{n}.weight" for n in range(2, 7)),
        "fc1.weight",
    )
    assert eligible(build("digits", (1, 8, 8), 10), 16) == ("conv2.weight", "conv3.weight", "fc1.weight")
    assert eligible(build("digits", (1, 8, 8), 10), 64) == ("fc1.weight",)
    layers = (
        Conv("first", 16, 16),
        Conv("one", 16, 16, kernel=(1, 1), padding=(0, 0)),
        Conv("odd", 16, 24),
        Conv("back", 24, 16),
        Conv("good", 16, 32, stride=(2, 2)),
        Flatten(),
        Linear("fc", 32 * 16, 2, relu=False),
    )
    assert eligible(Architecture(layers, (16, 8, 8)), 16) == ("one.weight", "good.weight")
