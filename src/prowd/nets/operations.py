"""What a module of PyTorch is as a layer here. Modules in one dimension are those in two over images (C, L, 1)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from prowd.errors import ConfigError
from prowd.nets.layers import AvgPool, Conv, Flatten, Layer, Linear, MaxPool, Pair, Shape

__all__ = ["ADDITIONS", "FUNCTIONS", "METHODS", "NORMS", "NOTHING", "WEIGHTY", "as_layers", "refused"]

ACCEPTED = (
    "Conv1d, Conv2d, Linear, ReLU, MaxPool1d, MaxPool2d, AvgPool1d, AvgPool2d, AdaptiveAvgPool1d, AdaptiveAvgPool2d,"
    " Flatten, additions, Dropout and Identity"
)
WEIGHTY = (nn.Conv1d, nn.Conv2d, nn.Linear)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
NOTHING = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d)
ADDITIONS: tuple[object, ...] = (operator.add, operator.iadd, torch.add, "add", "add_")


def _flatten(start_dim: int = 0, end_dim: int = -1) -> nn.Module:
    return nn.Flatten(start_dim, end_dim)


def _mean(dim: int | tuple[int, ...] = (), keepdim: bool = False) -> nn.Module:
    """The average over all places, by what is written more often than it is imported."""
    dims = sorted(d + 4 if d < 0 else d for d in ((dim,) if isinstance(dim, int) else dim))
    if dims != [2, 3]:
        raise ConfigError(f"model: a mean over dimensions {dim}; accepted: the places of an image, (2, 3)")
    average = nn.AdaptiveAvgPool2d(1)
    return average if keepdim else nn.Sequential(average, nn.Flatten())


Maker = Callable[..., nn.Module]
FUNCTIONS: dict[object, Maker] = {
    F.relu: nn.ReLU,
    torch.relu: nn.ReLU,
    F.max_pool1d: nn.MaxPool1d,
    F.max_pool2d: nn.MaxPool2d,
    F.avg_pool1d: nn.AvgPool1d,
    F.avg_pool2d: nn.AvgPool2d,
    F.adaptive_avg_pool1d: nn.AdaptiveAvgPool1d,
    F.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
    F.dropout: lambda *_, **__: nn.Dropout(),
    torch.flatten: _flatten,
    torch.mean: _mean,
}
METHODS: dict[object, Maker] = {"relu": nn.ReLU, "relu_": nn.ReLU, "flatten": _flatten, "mean": _mean}


def refused(path: str, module: object, accepted: str = ACCEPTED) -> ConfigError:
    """Why something is not read."""
    return ConfigError(f"model: {path!r} is {module}; accepted: {accepted}")


def as_layers(path: str, module: nn.Module, shape: Shape) -> list[Layer]:
    """The layers that a module is, for what it receives; a ReLU is none of its own."""
    if isinstance(module, nn.Sequential):
        found: list[Layer] = []
        for part in module:
            found += as_layers(path, part, shape)
            shape = found[-1].output(shape)
        return found
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        return [_conv(path, module, shape)]
    if isinstance(module, nn.Linear):
        return [Linear(path, module.in_features, module.out_features, relu=False)]
    if isinstance(module, nn.Flatten):
        if module.start_dim != 1 or module.end_dim not in (-1, 2, 3) or (module.end_dim == 2 and shape[-1] != 1):
            raise refused(path, module, "Flatten from the first dimension after the batch to the last")
        return [Flatten()]
    return [_pool(path, module, shape)]


def _conv(path: str, module: nn.Conv1d | nn.Conv2d, shape: Shape) -> Conv:
    one = isinstance(module, nn.Conv1d)
    _expect_rows(path, module, shape, one)
    if any(step != 1 for step in module.dilation) or module.padding_mode != "zeros":
        raise refused(path, module, "a convolution with zero padding, without dilation")
    kernel, stride = _pair(module.kernel_size, one), _pair(module.stride, one)
    given: str | tuple[int, ...] = module.padding
    if given == "same":
        if any(size % 2 == 0 for size in kernel):
            raise refused(path, module, 'padding="same" with odd kernels, whose two sides are padded alike')
        padding = kernel[0] // 2, kernel[1] // 2
    else:
        padding = (0, 0) if isinstance(given, str) else _pair(given, one, 0)
    channels, groups = (module.in_channels, module.out_channels), module.groups
    return Conv(path, *channels, kernel, stride, padding, relu=False, groups=groups)


def _pool(path: str, module: nn.Module, shape: Shape) -> MaxPool | AvgPool:
    one = isinstance(module, nn.MaxPool1d | nn.AvgPool1d | nn.AdaptiveAvgPool1d)
    _expect_rows(path, module, shape, one)
    if isinstance(module, nn.MaxPool1d | nn.MaxPool2d):
        if _pair(module.padding, one, 0) != (0, 0) or _pair(module.dilation, one) != (1, 1) or module.ceil_mode:
            raise refused(path, module, "max pooling without padding, dilation or ceil_mode")
        return MaxPool(_pair(module.kernel_size, one), _pair(module.stride or module.kernel_size, one))
    if isinstance(module, nn.AvgPool1d | nn.AvgPool2d):
        if _pair(module.padding, one, 0) != (0, 0) or module.ceil_mode or getattr(module, "divisor_override", None):
            raise refused(path, module, "average pooling without padding, ceil_mode or another divisor")
        return AvgPool(_pair(module.kernel_size, one), _pair(module.stride or module.kernel_size, one))
    if isinstance(module, nn.AdaptiveAvgPool1d | nn.AdaptiveAvgPool2d) and len(shape) == 3:
        return _adaptive(path, module, shape, one)
    raise refused(path, module)


def _adaptive(path: str, module: nn.Module, shape: Shape, one: bool) -> AvgPool:
    """Windows side by side, where the images can be cut into them."""
    asked: Any = module.output_size
    sizes = (asked, 1 if one else asked) if isinstance(asked, int) else (*asked, 1)[:2]
    wanted = [side if size is None else size for side, size in zip(shape[1:], sizes, strict=True)]
    if any(size < 1 or side % size for side, size in zip(shape[1:], wanted, strict=True)):
        raise refused(path, module, f"a size that divides {shape[1]}×{shape[2]}, the images it receives")
    window = shape[1] // wanted[0], shape[2] // wanted[1]
    return AvgPool(window, window)


def _expect_rows(path: str, module: nn.Module, shape: Shape, one: bool) -> None:
    if one and (len(shape) != 3 or shape[2] != 1):
        raise refused(path, module, f"in one dimension, images of shape (C, L, 1); here it receives {shape}")


def _pair(value: Any, one: bool, default: int = 1) -> Pair:
    """Rows and columns; in one dimension there are rows only."""
    values = (value,) if isinstance(value, int) else tuple(value)
    if one:
        return values[0], default
    return values[0], values[-1]
