"""Random small networks with codes for them, as hypothesis strategies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from prowd.errors import ConfigError
from prowd.nets.architecture import Add, Architecture, AvgPool, Conv, Flatten, Layer, Linear, MaxPool, Shape, Take
from tests.reference.integer_oracle import Ints, max_code

POOLS = (MaxPool(), MaxPool((3, 3), (2, 2)), MaxPool((3, 3), (1, 1)), MaxPool((2, 1), (1, 2)))
AVERAGES = (AvgPool(), AvgPool((2, 2), (1, 1)), AvgPool((1, 2), (2, 1)), AvgPool((4, 1), (1, 1)))
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
def graphs(draw: st.DrawFn, side: int = 6) -> Architecture:
    """Up to four parts, each a grouped convolution, a pooling or a residual block, then linear layers, one of them
    with a shortcut perhaps."""
    shape: Shape = (draw(st.sampled_from((1, 2, 4))), draw(st.integers(1, side)), draw(st.integers(1, side)))
    input_shape, layers = (shape[0], shape[1], shape[2]), list[Layer]()
    for number in range(draw(st.integers(1, 4))):
        some: list[Layer]
        match draw(st.sampled_from(("block", "block", "conv", "pool", "again"))):
            case "block":
                some = _block(draw, f"b{number}", shape, len(layers))
            case "conv":
                some = [_grouped(draw, f"c{number}", shape, draw(st.integers(1, 2)))]
            case "pool":
                some = [draw(st.one_of(st.sampled_from(AVERAGES), st.sampled_from(POOLS)))]
            case _:  # what was there before the last layer, added once more
                some = [Add(draw(st.integers(-1, len(layers) - 1)), draw(st.booleans()))]
        try:
            shape = _after(layers, some, input_shape)
        except ConfigError:  # too few pixels left, or another shape
            continue
        layers += some
    width = int(np.prod(shape))
    layers.append(Flatten())
    if draw(st.booleans()):
        layers += [Linear("same", width, width, relu=draw(st.booleans())), Add(len(layers) - 1, draw(st.booleans()))]
    layers.append(Linear("logits", width, draw(st.integers(1, 4)), relu=False))
    return Architecture(tuple(layers), input_shape)


def _after(layers: list[Layer], some: list[Layer], input_shape: tuple[int, int, int]) -> Shape:
    """The shape that layers give after others, or an error."""
    shapes: list[Shape] = [input_shape]
    for layer in (*layers, *some):  # places in the list are one ahead of the layers' numbers
        if isinstance(layer, Take):
            shapes.append(shapes[layer.source + 1])
        elif isinstance(layer, Add):
            if shapes[-1] != shapes[layer.source + 1]:
                raise ConfigError("shapes")
            shapes.append(shapes[-1])
        else:
            shapes.append(layer.output(shapes[-1]))
    return shapes[-1]


def _grouped(draw: st.DrawFn, name: str, shape: Shape, stride: int) -> Conv:
    """A convolution in groups; depthwise where every input is one. It keeps the size of the image at stride 1."""
    groups = draw(st.sampled_from([n for n in (1, 2, 4) if shape[0] % n == 0]))
    outputs = groups * draw(st.integers(1, 2))
    kernel = draw(st.sampled_from((1, 3))), draw(st.sampled_from((1, 3)))
    padding = kernel[0] // 2, kernel[1] // 2
    relu = draw(st.booleans())
    return Conv(name, shape[0], outputs, kernel, (stride, stride), padding, relu=relu, groups=groups)


def _block(draw: st.DrawFn, name: str, shape: Shape, number: int) -> list[Layer]:
    """A residual block after ``number`` layers; its shortcut has weights where the shape changes, or at random."""
    stride, start = draw(st.integers(1, 2)), number - 1
    first = _grouped(draw, f"{name}a", shape, stride)
    second = Conv(f"{name}b", first.outputs, draw(st.sampled_from((1, 2, 4))), relu=draw(st.booleans()))
    body: list[Layer] = [first, second] if draw(st.booleans()) else [first]
    outputs = body[-1].outputs  # type: ignore[union-attr]
    if stride == 1 and outputs == shape[0] and draw(st.booleans()):
        return [*body, Add(start, draw(st.booleans()))]
    end = start + len(body)
    short = Conv(f"{name}s", shape[0], outputs, (1, 1), (stride, stride), (0, 0), relu=draw(st.booleans()))
    return [*body, Take(start), short, Add(end, draw(st.booleans()))]


@st.composite
def cases(
    draw: st.DrawFn, side: int = 6, channels: int = 3, nets: st.SearchStrategy[Architecture] | None = None
) -> Case:
    """A network of random width with random codes; errors of the logits are integers of any size up to 2^40."""
    architecture = draw(architectures(side, channels) if nets is None else nets)
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
