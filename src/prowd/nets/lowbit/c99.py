"""The ``c99`` kernel: s-bit training of any width in the portable C of embedded/core, as a microcontroller runs it."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prowd.nets.architecture import (
    IMAGES,
    Add,
    Architecture,
    AvgPool,
    Conv,
    Flatten,
    Layer,
    MaxPool,
    Shape,
    Take,
    WeightLayer,
    alpha_exponent,
    fan_in,
)
from prowd.nets.inputs import code_table
from prowd.nets.lowbit import _core, update
from prowd.nets.lowbit.loss import logit_exponent
from prowd.numbers.bits import MAX_BITS, Bitwidth
from prowd.numbers.exponential import exponential_tables
from prowd.numbers.quantize import Rate, largest_magnitude

__all__ = ["C99Kernel", "cross_entropy", "describe", "why_not"]

CHUNK = 32  # images of a forward pass that nothing follows: few enough to stay in the caches
MOST_ERROR = 2**30  # of the logits
CONV, POOL, AVERAGE, ADD = 0, 1, 2, 3


class C99Kernel:
    """Weights as int16 codes, updated in place."""

    name = "c99"

    def __init__(self, architecture: Architecture, width: Bitwidth, codes: Sequence[Tensor]) -> None:
        self.width, self.classes, self.layers = width, architecture.classes, describe(architecture)
        self.codes = [tensor.to(torch.int16).clone(memory_format=torch.contiguous_format) for tensor in codes]
        self.nets: dict[bool, tuple[int, _core.Net]] = {}
        self.images = 0

    def forward(self, images: Tensor, *, record: bool = True) -> Tensor:
        """Compute the logit codes of a batch of images of bytes, keeping what ``learn`` needs."""
        if not len(images):
            return torch.empty(0, self.classes)
        self.images = len(images) if record else 0
        parts = [images] if record else torch.split(images, CHUNK)
        return torch.cat([self._forward(part, record) for part in parts])

    def learn(self, error: Tensor, rate: Rate, draws: update.Draws, additions: Sequence[Tensor | None]) -> None:
        """Update the weights by the integer error of the logits that ``forward`` gave."""
        if any(addition is not None for addition in additions):
            found = zip(self.codes, self.gradients(error), additions, strict=True)
            for layer, (codes, gradient, addition) in enumerate(found):
                codes.copy_(update.step(codes, gradient, rate, self.width, draws.words(layer, codes), addition))
        else:
            net = self._recorded()
            net.learn(_int32(error), rate.mantissa, rate.exponent, *draws.stream.key, draws.step)
        self.images = 0

    def gradients(self, error: Tensor) -> list[Tensor]:
        """Integer weight gradients, first layer first, from the error of the logits that ``forward`` gave."""
        found = np.empty(sum(codes.numel() for codes in self.codes), np.int64)
        self._recorded().gradients(_int32(error), found)
        parts = torch.split(torch.from_numpy(found), [codes.numel() for codes in self.codes])
        return [part.reshape(codes.shape) for part, codes in zip(parts, self.codes, strict=True)]

    def _recorded(self) -> _core.Net:
        if not self.images:
            raise RuntimeError("learn follows a forward pass that was recorded")
        return self.nets[True][1]

    def _forward(self, images: Tensor, record: bool) -> Tensor:
        logits = np.empty((len(images), self.classes), np.int16)
        table = code_table(self.width, images.dtype).numpy()
        bytes_ = images.contiguous().view(torch.uint8).numpy()
        self._net(len(images), record).forward(bytes_, table, len(images), logits)
        return torch.from_numpy(logits).float()

    def _net(self, images: int, record: bool) -> _core.Net:
        """A network with memory for so many images."""
        room, net = self.nets.get(record, (0, None))
        if net is None or images > room:
            weights = tuple(codes.numpy() for codes in self.codes)
            net = _core.Net(self.width.bits, self.layers, weights, images, record)
            self.nets[record] = images, net
        return net


def cross_entropy(logits: Tensor, labels: Tensor, width: Bitwidth, logit_scale: float) -> tuple[Tensor, Tensor]:
    """The same integers as ``loss.cross_entropy``, twenty times as fast on a small batch."""
    exponent = logit_exponent(width, logit_scale)
    errors = np.empty(tuple(logits.shape), np.int32)
    codes, classes = logits.to(torch.int16).contiguous().numpy(), labels.to(torch.int32).numpy()
    low, high = _tables(exponent)
    total = _core.cross_entropy(low, high, exponent, codes, classes, len(codes), codes.shape[1], errors)
    return torch.tensor(total), torch.from_numpy(errors)


@functools.cache
def _tables(exponent: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    low, high = (table.numpy().astype(np.uint32) for table in exponential_tables(exponent))
    return low, high


def describe(architecture: Architecture) -> tuple[tuple[int, ...], ...]:
    """The layers as the C code knows them (``prowd_layer``): a linear layer is a convolution of one pixel.

    Flatten and Take are none; a layer says how far before the last one lies what it receives.
    """
    found: list[tuple[int, ...]] = []
    values = {IMAGES: 0}  # what a layer gives, by the number of C layers up to there
    for number, (layer, sources) in enumerate(zip(architecture.layers, architecture.reads, strict=True)):
        if not isinstance(layer, Flatten | Take):
            back = [len(found) - values[source] for source in sources]
            facts = _facts(layer, architecture.received[number], architecture.given[number])
            found.append((*facts, back[0], back[-1] if isinstance(layer, Add) else 0))
            values[number] = len(found)
        else:
            values[number] = values[sources[0]]
    return tuple(found)


def _facts(layer: Layer, shape: Shape, given: Shape) -> tuple[int, ...]:
    """What a layer is by itself."""
    if isinstance(layer, MaxPool):
        return (POOL, *shape, *given, *layer.kernel, *layer.stride, 0, 0, 0, 0, 1)
    if isinstance(layer, AvgPool):
        return (AVERAGE, *shape, *given, *layer.kernel, *layer.stride, 0, 0, layer.shift, 0, 1)
    if isinstance(layer, Add):
        pixels = (*shape, 1, 1)[:3]  # of a vector: one
        return (ADD, *pixels, *pixels, 1, 1, 1, 1, 0, 0, 0, int(layer.relu), 1)
    if isinstance(layer, Conv):
        return (CONV, *shape, *given, *layer.kernel, *layer.stride, *layer.padding, *_scale(layer), layer.groups)
    if isinstance(layer, Flatten | Take):
        raise TypeError(f"layer {layer} computes nothing")
    return (CONV, math.prod(shape), 1, 1, *given, 1, 1, 1, 1, 1, 1, 0, 0, *_scale(layer), 1)


def why_not(architecture: Architecture) -> str | None:
    """Why the kernel can't run a network, or None: its sums must fit 32 bits at 16 bits a code."""
    weights = tuple(np.zeros(layer.shape, np.int16) for layer in architecture.weight_layers)
    try:
        _core.Net(MAX_BITS, describe(architecture), weights, 1, False)
    except ValueError as error:
        return str(error)
    return None


def _scale(layer: WeightLayer) -> tuple[int, int]:
    """log2 of 2α, and whether a ReLU follows."""
    return alpha_exponent(fan_in(layer)) + 1, int(layer.relu)


def _int32(error: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    largest = largest_magnitude(error)
    if largest > MOST_ERROR:
        raise ValueError(f"errors up to {largest}; accepted: up to {MOST_ERROR}")
    return error.to(torch.int32).contiguous().numpy()
