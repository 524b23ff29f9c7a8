"""What a device will do for a server, at most: local steps and memory, checked before anything is allocated.

A server chooses the network, the batch and the steps; without limits it could ask a device for all of its memory.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from prowd.device.training import EVALUATION_BATCH
from prowd.errors import ConfigError
from prowd.nets.architecture import Architecture, Conv, Flatten
from prowd.nets.lowbit.kernels import INT8_BITS, KernelChoice, why_not_c99, why_not_int8
from prowd.numbers.bits import Bitwidth

__all__ = ["MEGABYTE", "MOST_STEPS", "Limits", "Load", "memory_needed"]

MOST_STEPS = 100_000
MEGABYTE = 10**6
Arithmetic = Literal["float32", "compiled", "simulated"]

# Bytes for each weight (with the messages it travels in), for each entry of an image's activations in a step, and in a
# measurement: a little more than the peaks that tests/unit/device/test_limits.py measures.
BYTES: dict[Arithmetic, tuple[int, int, int]] = {
    "float32": (56, 16, 10),
    "compiled": (40, 14, 8),
    "simulated": (112, 44, 24),
}
CHUNK = 32  # images that compiled kernels measure at once
CHANNELS, OF_IMAGES = 16, 4  # to a multiple of which they round channels up
DOUBLE = 2**16  # products beyond which a simulated sum goes through float64, its windows laid out for a whole batch
PIXEL = 100  # bytes for each entry of a batch of images as they are augmented
ORDER = 24  # bytes for each example of the steps' batches, whose order is drawn at once


@dataclass(frozen=True)
class Load:
    """What a device is asked to do: batches of training images, so many steps, and images to measure on."""

    steps: int
    batch: int
    tests: int


@dataclass(frozen=True)
class Limits:
    """The most that an operator lets a server ask of a device."""

    steps: int
    memory: int
    """Bytes."""

    @classmethod
    def of_this_machine(cls) -> Limits:
        """Half of the memory that is built in."""
        return cls(MOST_STEPS, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)

    def check(
        self, network: Architecture, width: Bitwidth, load: Load, kernel: KernelChoice, device: torch.device
    ) -> None:
        """Refuse what goes beyond; to find out which kernel there is takes memory, so the least is looked at first."""
        if load.steps > self.steps:
            raise ConfigError(f"steps: {load.steps}; accepted: up to {self.steps}, the limit of this device")
        if width.is_float:
            self._check_memory(network, "float32", load)
        elif kernel == "simulated":
            self._check_memory(network, "simulated", load)
        else:
            self._check_memory(network, "compiled", load)
            if not _is_compiled(network, width, device):
                self._check_memory(network, "simulated", load)

    def check_message(self, size: int) -> None:
        """Refuse a task whose tensors, unpacked, would go beyond: five weights a byte, two bytes a weight."""
        if size > self.memory // 16:
            raise ConfigError(
                f"a task of {size} bytes; accepted: up to {self.memory // 16}, by the memory of this device"
            )

    def _check_memory(self, network: Architecture, arithmetic: Arithmetic, load: Load) -> None:
        needed = memory_needed(network, arithmetic, load)
        if needed > self.memory:
            found = f"about {_megabytes(needed)} MB for {network.parameters} weights in batches of {load.batch}"
            raise ConfigError(
                f"memory: {found}; accepted: up to {_megabytes(self.memory)} MB, the limit of this device"
            )


def memory_needed(network: Architecture, arithmetic: Arithmetic, load: Load) -> int:
    """About the most bytes that a local round takes at once, beyond the program and the device's data."""
    weight, trained, measured = BYTES[arithmetic]
    sizes = list(_sizes(network, CHANNELS if arithmetic == "compiled" else 1))
    tests = min(load.tests, CHUNK if arithmetic == "compiled" else EVALUATION_BATCH)
    step = load.batch * (sum(size for size, _, _ in sizes) * trained + math.prod(network.input_shape) * PIXEL)
    measurement = tests * max(size for size, _, _ in sizes) * measured
    windows = 0
    if arithmetic == "simulated":
        images = max(load.batch, tests)
        windows = max(window * (16 * images if double else 32) for _, window, double in sizes)
    elif arithmetic == "float32":
        windows = max(window * 8 for _, window, _ in sizes)
    order = load.steps * load.batch * ORDER
    return _weights(network, arithmetic) * weight + max(step, measurement) + windows + order


def _sizes(network: Architecture, channels: int) -> Iterator[tuple[int, int, bool]]:
    """Of every layer, for one image: entries it receives, padding included, and gives; its windows, laid out."""
    shape: tuple[int, ...] = network.input_shape
    multiple = min(channels, OF_IMAGES)  # of the layer that receives the images
    for layer in network.layers:
        given = layer.output(shape)
        size, window, terms = math.prod(shape) + _up(given[0], channels) * math.prod(given[1:]), 0, 0
        if isinstance(layer, Conv):
            taps = math.prod(layer.kernel)
            window, terms = math.prod(given[1:]) * taps * layer.inputs, taps * max(layer.inputs, layer.outputs)
            padded = [n + 2 * pad for n, pad in zip(shape[1:], layer.padding, strict=True)]
            size += _up(shape[0], multiple) * math.prod(padded) - math.prod(shape)
            multiple = channels
        yield 0 if isinstance(layer, Flatten) else size, window, terms > DOUBLE
        shape = given


def _weights(network: Architecture, arithmetic: Arithmetic) -> int:
    """Entries of all weights, as they lie in memory."""
    if arithmetic != "compiled":
        return network.parameters
    return sum(_up(a, CHANNELS) * _up(b, CHANNELS) * math.prod(rest) for a, b, *rest in network.shapes.values())


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _is_compiled(network: Architecture, width: Bitwidth, device: torch.device) -> bool:
    int8 = width.bits <= INT8_BITS and why_not_int8(device, network) is None
    return int8 or why_not_c99(device, network) is None


def _megabytes(count: int) -> int:
    return -(-count // MEGABYTE)
