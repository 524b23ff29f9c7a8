"""Weight modules: layers of any shape, cut into images that φ can read (Appendix C).

A convolution [O, I, h, w] falls into (O/size)·(I/size) modules. Channel o of a module is one output channel; its
``size`` kernels are laid out as a k×k grid of h×w tiles, k = √size, in the order of the input channels. A linear layer
is a convolution with kernels of one entry. φ is fully convolutional, so that one φ reads modules of every shape:

    size 64:  64×64×3×3  →  64×24×24        size 16:  16×16×3×3  →  16×12×12        size 16:  16×16  →  16×4×4
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import accumulate

import torch
from torch import Tensor

from prowd.errors import ConfigError
from prowd.nets.architecture import Architecture, weight_name

__all__ = ["Kernel", "assemble", "by_kernel", "cut", "eligible", "join", "side", "split"]

Shape = tuple[int, ...]
Kernel = tuple[int, int]


def side(size: int) -> int:
    """k = √size, the side of the grid of kernels."""
    root = math.isqrt(max(size, 0))
    if root < 2 or root * root != size:
        raise ConfigError(f"dequantizer.module: {size} channels; accepted: the squares 4, 9, 16, 25, ... (paper: 64)")
    return root


def eligible(architecture: Architecture, size: int) -> tuple[str, ...]:
    """Names of the weights that pass through φ: all that fall into whole modules, but not the first weight layer."""
    side(size)
    layers = architecture.weight_layers[1:]
    return tuple(weight_name(layer) for layer in layers if not (layer.shape[0] % size or layer.shape[1] % size))


def by_kernel(shapes: Mapping[str, Shape], names: Iterable[str]) -> dict[Kernel, list[str]]:
    """Layers by the shape of their kernels: their modules are images of one size, which φ can read at once."""
    found: dict[Kernel, list[str]] = {}
    for name in names:
        found.setdefault(_kernel_of(shapes[name]), []).append(name)
    return found


def join(weights: Iterable[Tensor], size: int) -> Tensor:
    """The modules of several layers with kernels of one shape, in the layout in which a CPU is fastest."""
    modules = torch.cat([cut(weight, size) for weight in weights])
    return modules.contiguous(memory_format=torch.channels_last)


def split(modules: Tensor, shapes: Mapping[str, Shape]) -> dict[str, Tensor]:
    """The layers that modules make up; undoes ``join``."""
    size = modules.shape[1]
    ends = list(accumulate(shape[0] * shape[1] // size**2 for shape in shapes.values()))
    parts = zip(shapes.items(), modules.tensor_split(ends[:-1]), strict=True)
    return {name: assemble(part, shape) for (name, shape), part in parts}


def cut(weight: Tensor, size: int) -> Tensor:
    """Cut [O, I, h, w] or [O, I] into modules [n, size, k·h, k·w], ordered by output block, then input block."""
    k, (high, wide) = side(size), _kernel_of(tuple(weight.shape))
    rows, columns = _blocks(tuple(weight.shape), size)
    grid = weight.reshape(rows, size, columns, k, k, high, wide)  # o-block, o, i-block, i row, i column, y, x
    return grid.permute(0, 2, 1, 3, 5, 4, 6).reshape(rows * columns, size, k * high, k * wide)


def assemble(modules: Tensor, shape: Shape) -> Tensor:
    """Put weights of ``shape`` together again; undoes ``cut`` without loss."""
    size = modules.shape[1]
    k, (high, wide) = side(size), _kernel_of(shape)
    rows, columns = _blocks(shape, size)
    grid = modules.reshape(rows, columns, size, k, high, k, wide)
    return grid.permute(0, 2, 1, 3, 5, 4, 6).reshape(shape)


def _kernel_of(shape: Shape) -> Kernel:
    """Height and width of a layer's kernels, from the shape of its weights."""
    return (shape[2], shape[3]) if len(shape) == 4 else (1, 1)


def _blocks(shape: Shape, size: int) -> tuple[int, int]:
    """How many blocks of output and of input channels a layer has."""
    if len(shape) not in (2, 4) or shape[0] % size or shape[1] % size:
        raise ValueError(f"a weight of shape {shape} has no {size}-channel modules; accepted: multiples of {size}")
    return shape[0] // size, shape[1] // size
