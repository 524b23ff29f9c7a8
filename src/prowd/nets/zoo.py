"""The architectures that prowd names: the paper's VGG-7, and small nets for digits, watches and other devices."""

from __future__ import annotations

from itertools import pairwise

from prowd.errors import ConfigError
from prowd.nets.architecture import Add, Architecture, AvgPool, Conv, Flatten, Layer, Linear, MaxPool, Pair, Take

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


def resnet8(input_shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Architecture:
    """16C3–(16C3–16C3)–(32C3/2–32C3)–(64C3/2–64C3)–average–classes, three residual blocks; MLPerf Tiny's, without batch
    norm. Where a block halves the image, its shortcut is a convolution of one pixel."""
    sizes = [_scaled(size, width) for size in (16, 16, 32, 64)]
    layers: list[Layer] = [Conv("conv1", input_shape[0], sizes[0])]
    for number, (inputs, outputs) in enumerate(pairwise(sizes), 1):
        start, stride = len(layers) - 1, 1 if number == 1 else 2
        layers.append(Conv(f"block{number}a", inputs, outputs, stride=(stride, stride)))
        layers.append(Conv(f"block{number}b", outputs, outputs, relu=False))
        if number == 1:
            layers.append(Add(start, relu=True))
            continue
        short = Conv(f"block{number}s", inputs, outputs, (1, 1), (stride, stride), (0, 0), relu=False)
        layers += [Take(start), short, Add(start + 2, relu=True)]
    image = input_shape[1], input_shape[2]
    for _ in range(2):
        image = (image[0] + 1) // 2, (image[1] + 1) // 2
    return Architecture((*layers, *_average(sizes[-1], image, classes)), input_shape)


def dscnn(input_shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Architecture:
    """64C3/2–4×(64 depthwise C3–64C1)–average–classes: depthwise separable convolutions, as in keyword spotting.

    No ReLU stands between the two: without batch norm it would halve the signal once more in each pair.
    """
    size = _scaled(64, width)
    layers: list[Layer] = [Conv("conv1", input_shape[0], size, stride=(2, 2))]
    for number in range(1, 5):
        layers.append(Conv(f"depth{number}", size, size, relu=False, groups=size))
        layers.append(Conv(f"point{number}", size, size, (1, 1), padding=(0, 0)))
    image = (input_shape[1] + 1) // 2, (input_shape[2] + 1) // 2
    return Architecture((*layers, *_average(size, image, classes)), input_shape)


MODELS = {"vgg7": vgg7, "digits": digits, "resnet8": resnet8, "dscnn": dscnn, "watch": watch}


def build(name: str, input_shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Architecture:
    """Build a named architecture for images of a shape."""
    if name not in MODELS:
        raise ConfigError(f"model: {name!r} is unknown; accepted: {', '.join(MODELS)}")
    return MODELS[name](input_shape, classes, width)


def _scaled(size: int, width: float) -> int:
    return max(1, round(size * width))


def _average(channels: int, image: Pair, classes: int) -> tuple[Layer, ...]:
    """The logits of the average over all pixels, which must be a power of two."""
    return AvgPool(image, image), Flatten(), Linear("fc", channels, classes, relu=False)


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
