"""A network as the ``int8`` kernel sees it: convolutions with a pooling between some of them, and their buffers.

A linear layer is a convolution whose window is the whole image, so a network is a row of stages of one kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prowd.models.architecture import Architecture, Conv, Flatten, Layer, MaxPool, Pair

__all__ = ["Buffers", "Grid", "Stage", "Sums", "Ternary", "TrainingBuffers", "plan", "unsupported"]

CHANNELS = 16  # channels are padded to a multiple of this; those of the images to a multiple of 4
OFFSET = 128  # a signed code lies in a byte as 128 + code
BYTE = 255
INT32 = 2**31 - 1
Bytes = NDArray[np.uint8]
Sums = NDArray[np.int32]
Ternary = NDArray[np.int8]


@dataclass(frozen=True)
class Stage:
    """One weight layer, with the pooling before it."""

    index: int
    outputs: int
    inputs: int
    image: Pair
    """Rows and columns of what it receives."""
    positions: Pair
    """Rows and columns of what it gives."""
    kernel: Pair
    stride: Pair
    padding: Pair
    flat: bool
    """Whether its window is the whole image."""
    relu: bool
    signed: bool
    """Whether it receives codes of both signs."""
    shift: int
    """log2 of 2α."""
    pool: MaxPool | None
    """The pooling between the layer before and this one."""

    @property
    def padded_inputs(self) -> int:
        """Input channels as they lie in memory."""
        return _up(self.inputs, CHANNELS if self.index else 4)

    @property
    def padded_outputs(self) -> int:
        """Output channels as they lie in memory."""
        return _up(self.outputs, CHANNELS)

    @property
    def taps(self) -> int:
        """Places of the window."""
        return math.prod(self.kernel)

    @property
    def weights(self) -> tuple[int, int, int, int, int]:
        """The shape of the weights, as the native functions take it."""
        return self.outputs, self.inputs, self.taps, self.padded_outputs, self.padded_inputs

    @property
    def window(self) -> tuple[int, int, int, int]:
        """Size and steps of the pooling window before the layer; of one place where there is none."""
        return (*self.pool.kernel, *self.pool.stride) if self.pool else (1, 1, 1, 1)

    def gradient_inputs(self, lanes: int) -> int:
        """Input channels of the weight gradient: signed codes come in two parts, and a block may be one vector."""
        both = 2 * self.padded_inputs
        if not self.signed:
            return self.padded_inputs
        return both if both == lanes else _up(both, CHANNELS)


def unsupported(architecture: Architecture) -> str | None:
    """Why the kernel can't run a network, or None."""
    shape: tuple[int, ...] = architecture.input_shape
    last: Layer | None = None
    for layer in architecture.layers:
        shape = layer.output(shape)
        if isinstance(layer, MaxPool):
            if any(kernel > stride for kernel, stride in zip(layer.kernel, layer.stride, strict=True)):
                return f"a pooling whose windows overlap ({layer})"
            if math.prod(layer.kernel) > BYTE:
                return f"a pooling window of more than {BYTE} places ({layer})"
            if not isinstance(last, Conv):
                return f"a pooling that does not follow a convolution ({layer})"
        elif not isinstance(layer, Flatten):
            if isinstance(layer, Conv) and any(p >= k for p, k in zip(layer.padding, layer.kernel, strict=True)):
                return f"a padding as large as the kernel ({layer})"
            terms = max(math.prod(layer.shape[1:]), layer.shape[0] * math.prod(layer.shape[2:]))
            if 2 * BYTE * terms > INT32 or 4 * (OFFSET - 1) ** 2 * math.prod(shape[1:]) > INT32:
                return f"sums that int32 can't hold ({layer})"
        last = layer
    return None


def plan(architecture: Architecture) -> list[Stage]:
    """Describe a network as stages."""
    stages: list[Stage] = []
    shape: tuple[int, ...] = architecture.input_shape
    held: tuple[int, ...] = shape  # as it lies in memory: never flattened
    pool: MaxPool | None = None
    signed = True
    alphas = iter(architecture.alphas)
    for layer in architecture.layers:
        shape = layer.output(shape)
        if isinstance(layer, MaxPool):
            pool, held = layer, shape
            continue
        if isinstance(layer, Flatten):
            continue
        given = shape if isinstance(layer, Conv) else (layer.outputs, 1, 1)
        stages.append(
            Stage(
                index=len(stages),
                outputs=layer.outputs,
                inputs=held[0],
                image=(held[1], held[2]),
                positions=(given[1], given[2]),
                kernel=layer.kernel if isinstance(layer, Conv) else (held[1], held[2]),
                stride=layer.stride if isinstance(layer, Conv) else (1, 1),
                padding=layer.padding if isinstance(layer, Conv) else (0, 0),
                flat=not isinstance(layer, Conv),
                relu=layer.relu,
                signed=signed,
                shift=int(math.log2(2 * next(alphas))),
                pool=pool,
            )
        )
        held, pool, signed = given, None, not layer.relu
    return stages


class Grid:
    """Images with borders: [image][row][column][channel], and where their inside lies."""

    def __init__(self, images: int, rows: int, columns: int, channels: int, before: Pair, blank: int) -> None:
        self.images, self.channels, self.before = images, channels, before
        self.columns, self.area = columns, rows * columns
        self.strides = (rows * columns * channels, columns * channels, channels)
        self.inside = before[0] * self.strides[1] + before[1] * self.strides[2]
        self.data: Bytes = np.full((images, rows, columns, channels), blank, np.uint8)

    def steps(self, stride: Pair) -> tuple[int, int, int]:
        """Bytes from position to position where only every stride-th row and column counts."""
        return _steps(self.strides, stride)


@dataclass(frozen=True)
class Fours:
    """The images of a grid, four a lane: [image / 4][block][row][column][channel][4], in blocks of 16 channels."""

    data: Bytes
    strides: tuple[int, int, int]
    block: int
    inside: int

    @staticmethod
    def of(grid: Grid, channels: int) -> Fours:
        """Make room for a grid's images, with so many channels."""
        column = 4 * min(channels, CHANNELS)
        strides = (4 * grid.area * channels, grid.columns * column, column)
        inside = grid.before[0] * strides[1] + grid.before[1] * strides[2]
        data = np.empty((-(-grid.images // 4), strides[0]), np.uint8)
        return Fours(data, strides, grid.area * column, inside)

    def steps(self, stride: Pair) -> tuple[int, int, int]:
        """Bytes from position to position where only every stride-th row and column counts."""
        return _steps(self.strides, stride)


class Buffers:
    """What a forward pass of one stage needs, for so many images; borders are filled once and never written."""

    def __init__(self, stage: Stage, images: int, following: tuple[Stage, Buffers] | None) -> None:
        (rows, columns), (down, right) = stage.image, stage.padding
        blank = OFFSET if stage.signed else 0
        self.received = Grid(images, rows + 2 * down, columns + 2 * right, stage.padded_inputs, stage.padding, blank)
        self.passes: Bytes = np.empty((images, rows, columns, stage.padded_inputs), np.uint8)
        """Where gradients pass through the layer before, seen from here."""
        self.winners: Bytes | None = np.empty_like(self.passes) if stage.pool else None
        if following and not following[0].pool:
            self.given, self.given_passes = following[1].received, following[1].passes
        else:
            self.given = Grid(images, *stage.positions, stage.padded_outputs, (0, 0), 0)
            self.given_passes = np.empty_like(self.given.data)
        weights = stage.padded_outputs * stage.taps * stage.padded_inputs
        self.ternary: Ternary = np.empty(weights, np.int8)
        self.weights: Ternary = np.empty(weights, np.int8)
        self.start: Sums = np.empty(stage.padded_outputs, np.int32)

    @staticmethod
    def of(stages: Sequence[Stage], images: int) -> list[Buffers]:
        """Make the buffers of a whole network."""
        made: list[Buffers] = []
        following: tuple[Stage, Buffers] | None = None
        for stage in reversed(stages):
            made.append(Buffers(stage, images, following))
            following = stage, made[-1]
        return made[::-1]


class TrainingBuffers:
    """What the backward pass of one stage needs besides."""

    def __init__(self, stage: Stage, forward: Buffers, lanes: int) -> None:
        images = forward.received.images
        (rows, columns), (high, wide) = stage.image, stage.kernel
        size, before = (rows + high - 1, columns + wide - 1), (high - 1 - stage.padding[0], wide - 1 - stage.padding[1])
        if stage.flat:
            size, before = (1, 1), (0, 0)
        self.errors = Grid(images, *size, stage.padded_outputs, before, OFFSET)
        self.error_fours = Fours.of(self.errors, stage.padded_outputs)
        self.inputs = stage.gradient_inputs(lanes)
        self.received_fours = Fours.of(forward.received, self.inputs)
        self.gradient: Sums = np.empty((stage.padded_outputs, stage.taps, self.inputs), np.int32)
        self.packed: tuple[Ternary, Sums] | None = None
        """Weights of the backward pass and where its sums start; nobody asks for the error of the images."""
        self.below: Sums = np.empty(forward.passes.shape if stage.index else 0, np.int32)
        if stage.index:
            sums = stage.padded_inputs * (stage.taps if stage.flat else 1)
            self.packed = np.empty_like(forward.weights), np.empty(sums, np.int32)


def _steps(strides: tuple[int, int, int], stride: Pair) -> tuple[int, int, int]:
    return strides[0], strides[1] * stride[0], strides[2] * stride[1]


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
