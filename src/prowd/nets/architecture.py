"""An architecture is described once, as data, and built for any width (Section 3.2, Appendix B).

A network is a row of layers; every weight layer carries its fixed scale α.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

from prowd.errors import ConfigError
from prowd.nets.layers import (
    IMAGES,
    Add,
    AvgPool,
    Conv,
    Flatten,
    Layer,
    Linear,
    MaxPool,
    Pair,
    Shape,
    Take,
    WeightLayer,
)

__all__ = [
    "IMAGES",
    "Add",
    "Architecture",
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
    "alpha",
    "alpha_exponent",
    "fan_in",
    "gain_name",
    "init_limit",
    "weight_name",
]


@dataclass(frozen=True)
class Architecture:
    """A network for inputs of one shape; the last weight layer gives the logits, one for each class."""

    layers: tuple[Layer, ...]
    input_shape: tuple[int, int, int]

    def __post_init__(self) -> None:
        self._check_uses(len(self.given) - 1)
        names = [layer.name for layer in self.weight_layers]
        last = self.layers[-1] if self.layers else None
        if not isinstance(last, Linear) or last.relu:
            raise ConfigError(
                f"model: the last layer is {last}; accepted: a Linear layer without ReLU, giving the logits"
            )
        if len(set(names)) != len(names):
            raise ConfigError(f"model: layer names {names} repeat; accepted: a name of its own for each weight layer")

    def _check_uses(self, last: int) -> None:
        read = {source for sources in self.reads for source in sources}
        for number in range(last):
            if number not in read:
                raise ConfigError(f"model: nobody uses what layer {number} gives, {self.layers[number]}")

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """For each layer the numbers of those whose outputs it receives; −1 is what the network receives."""
        found: list[tuple[int, ...]] = []
        for number, layer in enumerate(self.layers):
            if isinstance(layer, Take | Add) and not IMAGES <= layer.source < number:
                accepted = f"a source from {IMAGES} to {number - 1}, one of the layers before"
                raise ConfigError(f"model: layer {number} is {layer}; accepted: {accepted}")
            before = number - 1
            if isinstance(layer, Take):
                found.append((layer.source,))
            else:
                found.append((before, layer.source) if isinstance(layer, Add) else (before,))
        return tuple(found)

    @cached_property
    def held(self) -> frozenset[int]:
        """Layers whose outputs are asked for again later, by others than the layer that follows; −1 as above."""
        return frozenset(layer.source for layer in self.layers if isinstance(layer, Take | Add))

    @cached_property
    def given(self) -> tuple[Shape, ...]:
        """Shape of the output of each layer, without the batch."""
        shapes: dict[int, Shape] = {IMAGES: self.input_shape}
        for number, (layer, sources) in enumerate(zip(self.layers, self.reads, strict=True)):
            first, *others = (shapes[source] for source in sources)
            if any(other != first for other in others):
                found = f"adds tensors of shapes {first} and {others[0]}"
                raise ConfigError(f"model: layer {number} {found}; accepted: equal shapes")
            shapes[number] = layer.output(first)
        return tuple(shapes[number] for number in range(len(self.layers)))

    @cached_property
    def received(self) -> tuple[Shape, ...]:
        """Shape of what each layer receives, without the batch."""
        return tuple(self.input_shape if source == IMAGES else self.given[source] for source, *_ in self.reads)

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
        text = repr((self.input_shape, *map(_facts, self.layers)))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def _facts(layer: Layer) -> tuple[object, ...]:
    """What a layer is; one group is no fact, so that networks without groups keep the digest they always had."""
    return tuple(value for name, value in vars(layer).items() if (name, value) != ("groups", 1))


def weight_name(layer: WeightLayer) -> str:
    """Name under which a layer's weights travel."""
    return f"{layer.name}.weight"


def gain_name(layer: WeightLayer) -> str:
    """Name under which the weight-norm gains of Float32 clients travel."""
    return f"{layer.name}.gain"


def fan_in(layer: WeightLayer) -> int:
    """Number of products summed into one output: those of its own group."""
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
