"""The memory that a stage of the ``int8`` kernel computes in: made once, used in every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prowd.nets.architecture import Pair
from prowd.nets.lowbit.stages import CHANNELS, OFFSET, Stage

__all__ = ["Buffers", "Grid", "Sums", "Ternary", "TrainingBuffers"]

Bytes = NDArray[np.uint8]
Sums = NDArray[np.int32]
Ternary = NDArray[np.int8]


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
        self.weights: Ternary = np.empty(weights // 3 * 4 if stage.paired else weights, np.int8)
        self.start: Sums = np.empty(stage.padded_outputs * (4 if stage.paired else 1), np.int32)
        self.room: Bytes | None = np.empty(stage.pairing_room(images), np.uint8) if stage.paired else None

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
            self.packed = np.empty_like(forward.ternary), np.empty(sums, np.int32)


def _steps(strides: tuple[int, int, int], stride: Pair) -> tuple[int, int, int]:
    return strides[0], strides[1] * stride[0], strides[2] * stride[1]
