"""The architectures that prowd names: the paper's VGG-7, a small net for the digits and one for a watch."""

from __future__ import annotations

from prowd.errors import ConfigError
from prowd.nets.architecture import Architecture, Conv, Flatten, Layer, Linear, MaxPool

__all__ = ["MODELS", "build"]


def vgg7(input_shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Architecture:
    """128C3×2–MP2–256C3×2–MP2–512C3×2–MP2–1024FC–classes, as in WAGE; ``width`` multiplies every inner size."""
    sizes = [_scaled(size, width) for size in (128, 128, 256, 256, 512, 512)]
    return _stack(input_shape, sizes, pool_after={1, 3, 5}, hidden=_scaled(1024, width), classes=classes)


def digits(input_shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Architecture:
    """16C3–32C3–MP2–64C3–MP2–128FC–classes: enough for 8×8 digits and fast on one core."""
    sizes = [_scaled(size, width) for size in (16, 32, 64)]
    return _stack(input_shape, sizes, pool_after={1, 2}, hidden=_scaled(128, width), classes=classes)


def watch(input_shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Architecture:
    """16C5–MP2–16C5–MP2–32C5–MP2–32C5–MP4–64FC–classes over time, for windows (channels, samples, 1) of a sensor."""
    channels, length, _ = input_shape
    layers: list[Layer] = []
    for index, (size, pool) in enumerate(((16, 2), (16, 2), (32, 2), (32, 4))):
        outputs = _scaled(size, width)
        layers += [Conv(f"conv{index + 1}", channels, outputs, (5, 1), (1, 1), (2, 0)), MaxPool((pool, 1), (pool, 1))]
        channels, length = outputs, length // pool
    if length < 1 or input_shape[2] != 1:
        raise ConfigError(f"model: inputs of {input_shape}; accepted: (channels, samples, 1), at least 32 samples")
    hidden = _scaled(64, width)
    layers += [Flatten(), Linear("fc1", channels * length, hidden), Linear("fc2", hidden, classes, relu=False)]
    return Architecture(tuple(layers), input_shape)


MODELS = {"vgg7": vgg7, "digits": digits, "watch": watch}


def build(name: str, input_shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Architecture:
    """Build a named architecture for images of a shape."""
    if name not in MODELS:
        raise ConfigError(f"model: {name!r} is unknown; accepted: {', '.join(MODELS)}")
    return MODELS[name](input_shape, classes, width)


def _scaled(size: int, width: float) -> int:
    return max(1, round(size * width))


def _stack(
    input_shape: tuple[int, int, int], sizes: list[int], pool_after: set[int], hidden: int, classes: int
) -> Architecture:
    layers: list[Layer] = []
    channels, height, width = input_shape
    for index, size in enumerate(sizes):
        layers.append(Conv(f"conv{index + 1}", channels, size))
        channels = size
        if index in pool_after:
            layers.append(MaxPool())
            height, width = height // 2, width // 2
    if min(height, width) < 1:
        raise ConfigError(
            f"model: images of {input_shape} shrink to nothing; accepted: at least {2 ** len(pool_after)} px"
        )
    layers += [Flatten(), Linear("fc1", channels * height * width, hidden), Linear("fc2", hidden, classes, relu=False)]
    return Architecture(tuple(layers), input_shape)
