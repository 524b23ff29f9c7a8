"""Random small networks with codes for them, as hypothesis strategies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from prowd.errors import ConfigError
from prowd.models.architecture import Architecture, Conv, Flatten, Layer, Linear, MaxPool, Shape
from tests.reference.integer_oracle import Ints, max_code

POOLS = (MaxPool(), MaxPool((3, 3), (2, 2)), MaxPool((3, 3), (1, 1)), MaxPool((2, 1), (1, 2)))
FILLS = ("random", "extreme", "largest", "smallest", "zero", "sparse", "coarse")


@dataclass(frozen=True)
class Case:
    """A network, its weight codes, a batch of input codes and an error of its logits."""

    architecture: Architecture
    s: int
    weights: list[Ints]
    x: Ints
    error: Ints


def fill(kind: str, shape: tuple[int, ...], s: int, random: np.random.Generator) -> Ints:
    """s-bit codes: evenly spread, all at the ends (so sums saturate), zero, mostly zero, or full of rounding ties."""
    top = max_code(s)
    if kind == "random":
        return random.integers(-top, top + 1, shape)
    if kind == "extreme":
        return random.choice(np.array([-top, top]), shape)
    if kind == "sparse":
        return np.where(random.integers(0, 8, shape) == 0, random.integers(-top, top + 1, shape), 0)
    if kind == "coarse":  # multiples of S/4, the ternary thresholds
        return np.clip(random.integers(-4, 5, shape) * ((top + 1) // 4), -top, top)
    return np.full(shape, {"largest": top, "smallest": -top, "zero": 0}[kind], np.int64)


@st.composite
def architectures(draw: st.DrawFn, side: int = 6, channels: int = 3) -> Architecture:
    """Up to three convolutions and pools in any order that fits, then one or two linear layers."""
    small = st.integers(1, channels)
    kernels, strides = st.tuples(st.integers(1, 3), st.integers(1, 3)), st.tuples(st.integers(1, 2), st.integers(1, 2))
    input_shape = (draw(small), draw(st.integers(2, side)), draw(st.integers(2, side)))
    shape: Shape = input_shape
    layers: list[Layer] = []
    for number in range(draw(st.integers(0, 3))):
        kernel = draw(kernels)
        padding = (draw(st.integers(0, kernel[0])), draw(st.integers(0, kernel[1])))
        conv = Conv(f"conv{number}", shape[0], draw(small), kernel, draw(strides), padding, relu=draw(st.booleans()))
        choices: tuple[Layer, ...] = (conv, conv, *POOLS)
        layer = draw(st.sampled_from(choices))
        try:
            shape = layer.output(shape)
        except ConfigError:  # too few pixels left
            continue
        layers.append(layer)
    layers.append(Flatten())
    width = int(np.prod(shape))
    if draw(st.booleans()):
        hidden = draw(st.integers(1, 5))
        layers.append(Linear("hidden", width, hidden, relu=draw(st.booleans())))
        width = hidden
    layers.append(Linear("logits", width, draw(st.integers(1, 4)), relu=False))
    return Architecture(tuple(layers), input_shape)


@st.composite
def cases(draw: st.DrawFn, side: int = 6, channels: int = 3) -> Case:
    """A network of random width with random codes; errors of the logits are integers of any size up to 2^40."""
    architecture = draw(architectures(side, channels))
    s = draw(st.integers(2, 16))
    batch = draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = st.sampled_from(FILLS)
    weights = [fill(draw(kinds), shape, s, random) for shape in architecture.shapes.values()]
    x = fill(draw(kinds), (batch, *architecture.input_shape), s, random)
    error = fill(draw(kinds), (batch, architecture.classes), draw(st.integers(2, 41)), random)
    return Case(architecture, s, weights, x, error)
