"""Reads a user's own ``nn.Sequential`` as an architecture."""

from __future__ import annotations

import warnings
from dataclasses import replace

from torch import nn

from prowd.errors import ConfigError
from prowd.nets.architecture import Architecture, Conv, Flatten, Layer, Linear, MaxPool, Pair

__all__ = ["describe", "weight_modules"]

ACCEPTED = "Conv2d, Linear, ReLU, MaxPool2d and Flatten"


def describe(net: nn.Sequential, input_shape: tuple[int, int, int]) -> Architecture:
    """Describe a network of Conv2d, Linear, ReLU, MaxPool2d and Flatten; nested Sequentials are joined."""
    if not isinstance(net, nn.Sequential) or type(net).forward is not nn.Sequential.forward:
        raise ConfigError(
            f"model: {type(net).__name__} is not a plain nn.Sequential; accepted: layers in a row, {ACCEPTED}"
        )
    layers: list[Layer] = []
    seen: set[nn.Module] = set()
    for path, module in _flat(net):
        if module in seen and any(True for _ in module.parameters()):
            raise ConfigError(f"model: {path!r} is a layer used twice; accepted: weights of its own for each layer")
        seen.add(module)
        if isinstance(module, nn.ReLU):
            _attach_relu(path, layers)
        else:
            layers.append(_describe(path, module))
    biased = [path for path, module in weight_modules(net).items() if module.bias is not None]
    if biased:
        warnings.warn(f"low-bit layers have no bias; that of {', '.join(biased)} is left out", stacklevel=3)
    return Architecture(tuple(layers), input_shape)


def weight_modules(net: nn.Sequential) -> dict[str, nn.Conv2d | nn.Linear]:
    """The modules that hold weights, by the names ``describe`` gives them."""
    return {path: module for path, module in _flat(net) if isinstance(module, nn.Conv2d | nn.Linear)}


def _flat(net: nn.Sequential, prefix: str = "") -> list[tuple[str, nn.Module]]:
    flat: list[tuple[str, nn.Module]] = []
    for name, module in zip(net._modules, net, strict=True):  # named_children() leaves out a module used twice
        flat += _flat(module, f"{prefix}{name}.") if isinstance(module, nn.Sequential) else [(prefix + name, module)]
    return flat


def _attach_relu(path: str, layers: list[Layer]) -> None:
    """Move a ReLU into the weight layer before it; max pooling in between commutes with it."""
    at = len(layers) - 1
    while at >= 0 and isinstance(layers[at], MaxPool | Flatten):
        at -= 1
    layer = layers[at] if at >= 0 else None
    if not isinstance(layer, Conv | Linear):
        raise ConfigError(f"model: ReLU {path!r} has no layer before it; accepted: a ReLU after Conv2d or Linear")
    layers[at] = replace(layer, relu=True)


def _describe(path: str, module: nn.Module) -> Layer:
    if isinstance(module, nn.Conv2d):
        return _conv(path, module)
    if isinstance(module, nn.Linear):
        return Linear(path, module.in_features, module.out_features, relu=False)
    if isinstance(module, nn.MaxPool2d):
        plain = _pair(module.padding) == (0, 0) and _pair(module.dilation) == (1, 1) and not module.ceil_mode
        if not plain:
            raise ConfigError(
                f"model: {path!r} is {module}; accepted: MaxPool2d without padding, dilation or ceil_mode"
            )
        return MaxPool(_pair(module.kernel_size), _pair(module.stride or module.kernel_size))
    if isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) in {(1, -1), (1, 3)}:
        return Flatten()
    raise ConfigError(f"model: {path!r} is {module}; accepted: {ACCEPTED}")


def _conv(path: str, module: nn.Conv2d) -> Conv:
    plain = module.groups == 1 and _pair(module.dilation) == (1, 1) and module.padding_mode == "zeros"
    if not plain or isinstance(module.padding, str):
        raise ConfigError(
            f"model: {path!r} is {module}; accepted: Conv2d with numeric zero padding, without groups or dilation"
        )
    kernel, stride, padding = _pair(module.kernel_size), _pair(module.stride), _pair(module.padding)
    return Conv(path, module.in_channels, module.out_channels, kernel, stride, padding, relu=False)


def _pair(value: int | tuple[int, ...]) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
