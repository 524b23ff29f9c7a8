"""A network as the ``int8`` kernel sees it: convolutions with a pooling between some of them.

A linear layer is a convolution whose window is the whole image, so a network is a row of stages of one kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from prowd.nets.architecture import (
    Add,
    Architecture,
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

__all__ = ["INT32", "Stage", "plan", "unsupported"]

BYTE = 255
LARGEST = 127  # code of 8 bits
INT32 = 2**31 - 1
NO_POOL = (1, 1, 1, 1)
NAMES = {"avgpool": "an average pooling", "add": "an addition", "take": "a layer that goes on from an earlier one"}


@dataclass(frozen=True)
class Stage:
    """One weight layer, with the pooling before it: the facts that ``_native.Layer`` is built from, by their names."""

    inputs: int
    outputs: int
    image: Pair
    """Rows and columns of what it receives."""
    kernel: Pair
    stride: Pair
    padding: Pair
    pool: tuple[int, int, int, int]
    """Size and steps of the pooling window before the layer; of one place where there is none."""
    shift: int
    """log2 of 2α."""
    flat: bool
    """Whether its window is the whole image."""
    relu: bool
    signed: bool
    """Whether it receives codes of both signs."""
    first: bool
    """Whether it receives the images."""

    @property
    def positions(self) -> int:
        """Places of what it gives."""
        sides = zip(self.image, self.kernel, self.stride, self.padding, strict=True)
        return math.prod((side + 2 * padding - kernel) // stride + 1 for side, kernel, stride, padding in sides)


def unsupported(architecture: Architecture) -> str | None:
    """Why the kernel can't run a network, or None."""
    last: Layer | None = None
    for layer, shape in zip(architecture.layers, architecture.given, strict=True):
        reason = None
        if isinstance(layer, AvgPool | Add | Take):
            reason = NAMES[layer.kind]
        elif isinstance(layer, MaxPool):
            reason = _why_not_pool(layer, last)
        elif not isinstance(layer, Flatten):
            reason = _why_not_weights(layer, shape)
        if reason:
            return f"{reason} ({layer})"
        last = layer
    return None


def _why_not_pool(layer: MaxPool, last: Layer | None) -> str | None:
    if any(kernel > stride for kernel, stride in zip(layer.kernel, layer.stride, strict=True)):
        return "a pooling whose windows overlap"
    if math.prod(layer.kernel) > BYTE:
        return f"a pooling window of more than {BYTE} places"
    return None if isinstance(last, Conv) else "a pooling that does not follow a convolution"


def _why_not_weights(layer: WeightLayer, shape: Shape) -> str | None:
    if isinstance(layer, Conv) and layer.groups > 1:
        return "a convolution in groups"
    if isinstance(layer, Conv) and any(p >= k for p, k in zip(layer.padding, layer.kernel, strict=True)):
        return "a padding as large as the kernel"
    terms = max(math.prod(layer.shape[1:]), layer.shape[0] * math.prod(layer.shape[2:]))
    too_large = 2 * BYTE * terms > INT32 or 4 * LARGEST**2 * math.prod(shape[1:]) > INT32
    return "sums that int32 can't hold" if too_large else None


def plan(architecture: Architecture) -> list[Stage]:
    """Describe a network that is not ``unsupported`` as stages."""
    stages: list[Stage] = []
    held: tuple[int, ...] = architecture.input_shape  # as it lies in memory: never flattened
    pool = NO_POOL
    signed = True
    alphas = iter(architecture.alphas)
    for layer, shape in zip(architecture.layers, architecture.given, strict=True):
        if isinstance(layer, MaxPool):
            pool, held = (*layer.kernel, *layer.stride), shape
        if not isinstance(layer, Conv | Linear):
            continue
        image = held[1], held[2]
        stages.append(
            Stage(
                inputs=held[0],
                outputs=layer.outputs,
                image=image,
                kernel=layer.kernel if isinstance(layer, Conv) else image,
                stride=layer.stride if isinstance(layer, Conv) else (1, 1),
                padding=layer.padding if isinstance(layer, Conv) else (0, 0),
                pool=pool,
                shift=int(math.log2(2 * next(alphas))),
                flat=not isinstance(layer, Conv),
                relu=layer.relu,
                signed=signed,
                first=not stages,
            )
        )
        held, pool, signed = shape if isinstance(layer, Conv) else (layer.outputs, 1, 1), NO_POOL, not layer.relu
    return stages
