"""An architecture is described once, as data, and built for any width (Section 3.2, Appendix B).

A network is a plain sequence. Every weight layer (Conv, Linear) has no bias, carries its fixed scale α, and may end in
a ReLU; MaxPool and Flatten stand between them.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from prowd.errors import ConfigError

__all__ = [
    "Architecture",
    "Conv",
    "Flatten",
    "Layer",
    "Linear",
    "MaxPool",
    "WeightLayer",
    "alpha",
    "alpha_exponent",
    "fan_in",
    "gain_name",
    "init_limit",
    "weight_name",
]

Pair = tuple[int, int]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Conv:
    """2-d convolution without bias, optionally followed by ReLU."""

    name: str
    inputs: int
    outputs: int
    kernel: Pair = (3, 3)
    stride: Pair = (1, 1)
    padding: Pair = (1, 1)
    relu: bool = True
    kind: Literal["conv"] = "conv"

    @property
    def shape(self) -> Shape:
        """Shape of the weights."""
        return (self.outputs, self.inputs, *self.kernel)

    def output(self, shape: Shape) -> Shape:
        """Shape of the output for an input of ``shape`` (without the batch)."""
        _expect(self.name, len(shape) == 3 and shape[0] == self.inputs, shape, f"({self.inputs}, H, W)")
        return (self.outputs, *_window(self.name, shape, self.kernel, self.stride, self.padding))


@dataclass(frozen=True)
class Linear:
    """Fully connected layer without bias, optionally followed by ReLU."""

    name: str
    inputs: int
    outputs: int
    relu: bool = True
    kind: Literal["linear"] = "linear"

    @property
    def shape(self) -> Shape:
        """Shape of the weights."""
        return (self.outputs, self.inputs)

    def output(self, shape: Shape) -> Shape:
        """Shape of the output for an input of ``shape`` (without the batch)."""
        _expect(self.name, shape == (self.inputs,), shape, f"({self.inputs},)")
        return (self.outputs,)


@dataclass(frozen=True)
class MaxPool:
    """2-d max pooling."""

    kernel: Pair = (2, 2)
    stride: Pair = (2, 2)
    kind: Literal["maxpool"] = "maxpool"

    def output(self, shape: Shape) -> Shape:
        """Shape of the output for an input of ``shape`` (without the batch)."""
        _expect("maxpool", len(shape) == 3, shape, "(C, H, W)")
        return (shape[0], *_window("maxpool", shape, self.kernel, self.stride, (0, 0)))


@dataclass(frozen=True)
class Flatten:
    """Joins channels and pixels into one axis."""

    kind: Literal["flatten"] = "flatten"

    def output(self, shape: Shape) -> Shape:
        """Shape of the output for an input of ``shape`` (without the batch)."""
        return (math.prod(shape),)


WeightLayer = Conv | Linear
Layer = Conv | Linear | MaxPool | Flatten


@dataclass(frozen=True)
class Architecture:
    """A sequential network for inputs of one shape; the last weight layer gives the logits, one for each class."""

    layers: tuple[Layer, ...]
    input_shape: tuple[int, int, int]

    def __post_init__(self) -> None:
        shape: Shape = self.input_shape
        for layer in self.layers:
            shape = layer.output(shape)
        names = [layer.name for layer in self.weight_layers]
        last = self.layers[-1] if self.layers else None
        if not isinstance(last, Linear) or last.relu:
            raise ConfigError(
                f"model: the last layer is {last}; accepted: a Linear layer without ReLU, giving the logits"
            )
        if len(set(names)) != len(names):
            raise ConfigError(f"model: layer names {names} repeat; accepted: a name of its own for each weight layer")

    @cached_property
    def weight_layers(self) -> tuple[WeightLayer, ...]:
        """The layers that hold weights, in order."""
        return tuple(layer for layer in self.layers if isinstance(layer, Conv | Linear))

    @property
    def classes(self) -> int:
        """Number of logits."""
        return self.weight_layers[-1].outputs

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """Name and shape of every weight tensor."""
        return {weight_name(layer): layer.shape for layer in self.weight_layers}

    @cached_property
    def alphas(self) -> tuple[float, ...]:
        """The layer scales α (Appendix B); 2, 16, 16, 16, 16, 32, 32, 16 for the paper's VGG-7."""
        return tuple(alpha(layer) for layer in self.weight_layers)

    @cached_property
    def digest(self) -> int:
        """64 bits of a hash of layers and input shape, by which server and device know that they mean the same."""
        text = repr((self.input_shape, *(tuple(vars(layer).values()) for layer in self.layers)))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def weight_name(layer: WeightLayer) -> str:
    """Name under which a layer's weights travel."""
    return f"{layer.name}.weight"


def gain_name(layer: WeightLayer) -> str:
    """Name under which the weight-norm gains of Float32 clients travel."""
    return f"{layer.name}.gain"


def fan_in(layer: WeightLayer) -> int:
    """Number of products summed into one output."""
    return math.prod(layer.shape[1:])


def alpha(layer: WeightLayer) -> float:
    """α = max(1, Shift(0.75 / sqrt(3 / fan_in))), a power of two (Appendix B, never below 1)."""
    return float(1 << alpha_exponent(fan_in(layer)))


def alpha_exponent(fan_in: int) -> int:
    """log2 α in integers: α² is the power of four nearest in ratio to 3·fan_in/16, and at least 1."""
    exponent = 0
    while 3 * fan_in > 16 << (2 * exponent + 1):
        exponent += 1
    return exponent


def init_limit(layer: WeightLayer) -> float:
    """L = max(0.75, sqrt(3 / fan_in)): weights start uniform in (−L, L) (Appendix B)."""
    return max(0.75, math.sqrt(3.0 / fan_in(layer)))


def _expect(name: str, holds: bool, shape: Shape, accepted: str) -> None:
    if not holds:
        raise ConfigError(f"model: layer {name!r} receives a tensor of shape {shape}; accepted: {accepted}")


def _window(name: str, shape: Shape, kernel: Pair, stride: Pair, padding: Pair) -> Pair:
    if min(*kernel, *stride) < 1 or min(padding) < 0:
        found = f"kernel {kernel}, stride {stride}, padding {padding}"
        raise ConfigError(f"model: layer {name!r} has {found}; accepted: kernel and stride from 1, padding from 0")
    height, width = ((shape[1 + i] + 2 * padding[i] - kernel[i]) // stride[i] + 1 for i in (0, 1))
    _expect(name, height > 0 and width > 0, shape, f"at least {kernel[0]}×{kernel[1]} pixels, padding included")
    return height, width
