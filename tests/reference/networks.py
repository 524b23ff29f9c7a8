"""Random small networks with codes for them, as hypothesis strategies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from prowd.errors import ConfigError
from prowd.nets.architecture import Architecture, Conv, Flatten, Layer, Linear, MaxPool, Shape
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
    return _case(draw, architecture, draw(st.integers(2, 16)), draw(st.integers(1, 4)), FILLS)


def _case(draw: st.DrawFn, architecture: Architecture, s: int, batch: int, fills: tuple[str, ...]) -> Case:
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = st.sampled_from(fills)
    weights = [fill(draw(kinds), shape, s, random) for shape in architecture.shapes.values()]
    x = fill(draw(kinds), (batch, *architecture.input_shape), s, random)
    error = fill(draw(kinds), (batch, architecture.classes), draw(st.integers(2, 41)), random)
    return Case(architecture, s, weights, x, error)


# --- networks of the int8 kernel -------------------------------------------------------------------------------------


def pairs(least: int, most: int) -> st.SearchStrategy[tuple[int, int]]:
    """Rows and columns."""
    return st.tuples(st.integers(least, most), st.integers(least, most))


@st.composite
def plain_architectures(draw: st.DrawFn, side: int = 8, channels: int = 40) -> Architecture:
    """Up to three convolutions padded by less than their kernels, with or without a pool whose windows do not overlap,
    then up to three linear layers."""
    some = st.one_of(st.integers(1, 5), st.integers(1, channels))
    input_shape = (draw(some), *draw(st.one_of(pairs(4, side), pairs(1, side))))
    shape: Shape = input_shape
    layers: list[Layer] = []
    for number in range(draw(st.sampled_from((2, 1, 3, 0)))):
        kernel, window, gap = draw(pairs(1, 5)), draw(pairs(1, 3)), draw(pairs(0, 1))
        padding = (draw(st.integers(0, kernel[0] - 1)), draw(st.integers(0, kernel[1] - 1)))
        conv = Conv(f"conv{number}", shape[0], draw(some), kernel, draw(pairs(1, 3)), padding, relu=draw(st.booleans()))
        pool = MaxPool(window, (window[0] + gap[0], window[1] + gap[1]))
        for layer in (conv, pool) if draw(st.booleans()) else (conv,):
            try:
                shape = layer.output(shape)
            except ConfigError:  # too few pixels left
                break
            layers.append(layer)
    layers.append(Flatten())
    width = int(np.prod(shape))
    for number in range(draw(st.integers(0, 2))):
        hidden = draw(some)
        layers.append(Linear(f"hidden{number}", width, hidden, relu=draw(st.booleans())))
        width = hidden
    return Architecture((*layers, Linear("logits", width, draw(some), relu=False)), input_shape)


@st.composite
def plain_cases(draw: st.DrawFn, architecture: Architecture, s: int) -> Case:
    """Codes for such a network, most of them far from zero, in batches that four does not always divide."""
    return _case(draw, architecture, s, draw(st.integers(1, 9)), (*FILLS, *3 * ("random", "extreme", "coarse")))
