"""The layers that a network may have, as data: what each receives, gives and is made of.

Every weight layer (Conv, Linear) has no bias, and may end in a ReLU. A layer receives what the layer before it gives.
What is not a plain sequence is said by two more: ``Take`` goes on from an earlier output, ``Add`` adds one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from prowd.errors import ConfigError

__all__ = [
    "IMAGES",
    "Add",
    "AvgPool",
    "Conv",
    "Flatten",
    "Layer",
    "Linear",
    "MaxPool",
    "Pair",
    "Shape",
    "Take",
    "WeightLayer",
]

Pair = tuple[int, int]
Shape = tuple[int, ...]
IMAGES = -1  # the source that is no layer: what the network receives


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
    groups: int = 1
    """Channels are cut into so many groups, and outputs of one see inputs of the same only; depthwise: all of them."""

    @property
    def shape(self) -> Shape:
        """Shape of the weights."""
        return (self.outputs, self.inputs // self.groups, *self.kernel)

    def output(self, shape: Shape) -> Shape:
        """Shape of the output for an input of ``shape`` (without the batch)."""
        if self.groups < 1 or self.inputs % self.groups or self.outputs % self.groups:
            found = f"{self.groups} groups of {self.inputs} inputs and {self.outputs} outputs"
            raise ConfigError(f"model: layer {self.name!r} has {found}; accepted: a number that divides both")
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
class AvgPool:
    """2-d average pooling over windows of 2^k places, so that the division is a shift."""

    kernel: Pair = (2, 2)
    stride: Pair = (2, 2)
    kind: Literal["avgpool"] = "avgpool"

    @property
    def shift(self) -> int:
        """The k of 2^k places."""
        return math.prod(self.kernel).bit_length() - 1

    def output(self, shape: Shape) -> Shape:
        """Shape of the output for an input of ``shape`` (without the batch)."""
        _expect("avgpool", len(shape) == 3, shape, "(C, H, W)")
        given = _window("avgpool", shape, self.kernel, self.stride, (0, 0))
        places = math.prod(self.kernel)
        if places & (places - 1):
            found = f"windows of {self.kernel[0]}×{self.kernel[1]} = {places} places"
            reason = "a power of two, by which integers divide with a shift"
            raise ConfigError(f"model: layer 'avgpool' has {found}; accepted: {reason}")
        return (shape[0], *given)


@dataclass(frozen=True)
class Flatten:
    """Joins channels and pixels into one axis."""

    kind: Literal["flatten"] = "flatten"

    def output(self, shape: Shape) -> Shape:
        """Shape of the output for an input of ``shape`` (without the batch)."""
        return (math.prod(shape),)


@dataclass(frozen=True)
class Take:
    """Goes on from the output of an earlier layer, as a shortcut with weights of its own does."""

    source: int
    """The number of that layer, from 0; −1 is what the network receives."""
    kind: Literal["take"] = "take"

    def output(self, shape: Shape) -> Shape:
        """Shape of the output for an input of ``shape`` (without the batch)."""
        return shape


@dataclass(frozen=True)
class Add:
    """Adds the output of an earlier layer, clips the sum, and may end in a ReLU: the end of a residual block."""

    source: int
    """The number of that layer, from 0; −1 is what the network receives."""
    relu: bool = False
    kind: Literal["add"] = "add"

    def output(self, shape: Shape) -> Shape:
        """Shape of the output for an input of ``shape`` (without the batch)."""
        return shape


WeightLayer = Conv | Linear
Layer = Conv | Linear | MaxPool | AvgPool | Flatten | Take | Add


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
