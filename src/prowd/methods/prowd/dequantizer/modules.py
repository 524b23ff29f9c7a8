"""Weight modules: convolutions of any shape, cut into images of one shape that φ can read (Appendix C).

A 3×3 convolution [O, I, 3, 3] falls into (O/size)·(I/size) modules. Channel o of a module is one output channel; its
``size`` kernels are laid out as a k×k grid of 3×3 tiles, k = √size, in the order of the input channels:

    size 64:  64×64×3×3  →  64×24×24        size 16:  16×16×3×3  →  16×12×12
"""

from __future__ import annotations

import math

from torch import Tensor

from prowd.errors import ConfigError
from prowd.nets.architecture import Architecture, Conv, weight_name

__all__ = ["assemble", "cut", "eligible", "side"]

KERNEL = 3


def side(size: int) -> int:
    """k = √size, the side of the grid of kernels."""
    root = math.isqrt(max(size, 0))
    if root < 2 or root * root != size:
        raise ConfigError(f"dequantizer.module: {size} channels; accepted: the squares 4, 9, 16, 25, ... (paper: 64)")
    return root


def eligible(architecture: Architecture, size: int) -> tuple[str, ...]:
    """Names of the weights that pass through φ: 3×3 convolutions into whole modules, but not the first weight layer."""
    side(size)
    return tuple(
        weight_name(layer)
        for layer in architecture.weight_layers[1:]
        if isinstance(layer, Conv)
        and layer.kernel == (KERNEL, KERNEL)
        and layer.inputs % size == 0
        and layer.outputs % size == 0
    )


def cut(weight: Tensor, size: int) -> Tensor:
    """Cut [O, I, 3, 3] into modules [n, size, 3k, 3k], ordered by output block, then input block."""
    k = side(size)
    rows, columns = _blocks(tuple(weight.shape), size)
    grid = weight.reshape(rows, size, columns, k, k, KERNEL, KERNEL)  # o-block, o, i-block, i row, i column, y, x
    return grid.permute(0, 2, 1, 3, 5, 4, 6).reshape(rows * columns, size, k * KERNEL, k * KERNEL)


def assemble(modules: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Put a convolution of ``shape`` together again; undoes ``cut`` without loss."""
    size = modules.shape[1]
    k = side(size)
    rows, columns = _blocks(shape, size)
    grid = modules.reshape(rows, columns, size, k, KERNEL, k, KERNEL)
    return grid.permute(0, 2, 1, 3, 5, 4, 6).reshape(shape)


def _blocks(shape: tuple[int, ...], size: int) -> tuple[int, int]:
    """How many blocks of output and of input channels a convolution has."""
    if len(shape) != 4 or shape[2:] != (KERNEL, KERNEL) or shape[0] % size or shape[1] % size:
        raise ValueError(f"a weight of shape {shape} has no {size}-channel modules; accepted: multiples of {size}, 3×3")
    return shape[0] // size, shape[1] // size
