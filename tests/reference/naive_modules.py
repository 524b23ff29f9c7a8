"""The weight dataset of Appendix C transcribed naively: where every entry of every weight is in which module."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from prowd.nets import Architecture, Conv, Linear

__all__ = ["Kernel", "Place", "places", "read", "write"]

Kernel = tuple[int, int]
"""Height and width of kernels; those of a linear layer are 1 × 1."""
Place = tuple[str, int, int]
"""Name of a weight tensor, and the first output and input channel of a module in it."""
Theta = dict[str, Tensor]


def places(architecture: Architecture, size: int) -> dict[Kernel, list[Place]]:
    """Every module of a net, by the shape of its kernels: layers of whole modules, but not the first with weights."""
    found: dict[Kernel, list[Place]] = {}
    weighty = [layer for layer in architecture.layers if isinstance(layer, Conv | Linear)]
    for layer in weighty[1:]:
        if layer.inputs % size == layer.outputs % size == 0:
            kernel = layer.kernel if isinstance(layer, Conv) else (1, 1)
            for o in range(0, layer.outputs, size):
                for i in range(0, layer.inputs, size):
                    found.setdefault(kernel, []).append((f"{layer.name}.weight", o, i))
    return found


def pixel(number: int, y: int, x: int, size: int, kernel: Kernel) -> Kernel:
    """Where entry (y, x) of one of the kernels of an output channel is in the picture of a module."""
    row, column = divmod(number, math.isqrt(size))
    return row * kernel[0] + y, column * kernel[1] + x


def entries(size: int, kernel: Kernel) -> Iterator[tuple[int, int, int, int]]:
    """Output channel, input channel, row and column of every weight of a module."""
    return itertools.product(range(size), range(size), range(kernel[0]), range(kernel[1]))


def read(weights: Theta, place: Place, size: int, kernel: Kernel) -> Tensor:
    """The module at a place: [size, k·h, k·w]."""
    name, o, i = place
    k = math.isqrt(size)
    module = torch.zeros(size, k * kernel[0], k * kernel[1], dtype=torch.float64)
    for channel, number, y, x in entries(size, kernel):
        at = (y, x) if weights[name].dim() == 4 else ()
        module[(channel, *pixel(number, y, x, size, kernel))] = weights[name][(o + channel, i + number, *at)]
    return module


def write(weights: Theta, place: Place, module: Tensor, kernel: Kernel) -> None:
    """Put a module in its place."""
    name, o, i = place
    for channel, number, y, x in entries(len(module), kernel):
        at = (y, x) if weights[name].dim() == 4 else ()
        found = module[(channel, *pixel(number, y, x, len(module), kernel))]
        weights[name][(o + channel, i + number, *at)] = found
