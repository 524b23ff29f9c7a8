"""The ``int8`` kernel: s-bit training (s ≤ 8) in the integer dot products of the CPU. One thread, no floats, exact.

The same integers as the ``simulated`` kernel. int32 sums can't overflow: forward |Σ t·a| ≤ fan_in · 255 and backward
|Σ t·e| ≤ fan_out · 255, which the sizes of a network keep below 2^31; a weight gradient |Σ e·a| ≤ positions · (S−1)²
is summed over as many images as stay below it, and these sums in int64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prowd.nets.architecture import Architecture
from prowd.nets.lowbit import _native, update
from prowd.nets.lowbit.buffers import Buffers, Sums, Ternary, TrainingBuffers
from prowd.nets.lowbit.simulated import normalise
from prowd.nets.lowbit.stages import INT32, OFFSET, Stage, plan
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Rate, shift_exponent

__all__ = ["Int8Kernel", "instruction_sets"]

INT16 = 2**15 - 1
CHUNK = 32  # images of a forward pass that nothing follows: few enough to stay in the caches
PLAIN, SIGNED, PARTS = 0, 1, 2


def instruction_sets() -> list[str]:
    """The instruction sets of this CPU that make the kernel fast, fastest first."""
    return [name for name, _, _ in _native.kernels() if name != "portable"]


class Int8Kernel:
    """Weights as int16 codes, updated in place; buffers are made once and used in every step."""

    def __init__(
        self, architecture: Architecture, width: Bitwidth, codes: Sequence[Tensor], instructions: str | None = None
    ) -> None:
        instructions = instructions or instruction_sets()[0]
        self.name = f"int8 ({instructions})"
        self.width, self.classes = width, architecture.classes
        self.codes = [tensor.to(torch.int16).clone(memory_format=torch.contiguous_format) for tensor in codes]
        self.stages = plan(architecture)
        self.number, self.lanes = {name: (number, lanes) for name, number, lanes in _native.kernels()}[instructions]
        self.buffers: list[Buffers] = []
        self.training: list[TrainingBuffers] = []
        self.room = 0
        self.images = 0
        self.packed = self.recorded = False

    def forward(self, images: Tensor, *, record: bool = True) -> Tensor:
        """Compute the logit codes of a batch of images in [−1, 1], keeping what ``learn`` needs."""
        if not len(images):
            return torch.empty(0, self.classes)
        self._make_room(len(images) if record else min(len(images), CHUNK), record)
        self._pack()
        if not record:
            return torch.cat([self._forward(part, record) for part in torch.split(images, CHUNK)])
        logits = self._forward(images, record)
        for stage, buffers, training in zip(self.stages, self.buffers, self.training, strict=True):
            _native.interleave(
                buffers.received.data, self.images, buffers.received.area, stage.padded_inputs, training.inputs,
                PARTS if stage.signed else PLAIN, training.received_fours.data,
            )  # fmt: skip
        return logits

    def learn(self, error: Tensor, rate: Rate, random: torch.Generator, additions: Sequence[Tensor | None]) -> None:
        """Update the weights by the error of the logits that ``forward`` gave."""
        gradients = self._backward(error)
        for stage, training, codes, (gradient, largest), addition in zip(
            self.stages, self.training, self.codes, gradients, additions, strict=True
        ):
            if addition is None and gradient.dtype == np.int32:
                uniform = torch.rand(codes.shape, generator=random, dtype=torch.float32)
                factor = rate.mantissa, rate.exponent - shift_exponent(largest)
                _native.update(
                    codes.numpy(), stage.weights, gradient, training.inputs, factor, uniform.numpy(),
                    self.width.max_code,
                )  # fmt: skip
            else:
                found = torch.from_numpy(_as_weights(stage, gradient)).reshape(codes.shape)
                codes.copy_(update.step(codes, found, rate, self.width, random, addition))
        self.packed = self.recorded = False

    def gradients(self, error: Tensor) -> list[Tensor]:
        """Integer weight gradients, first layer first, from the error of the logits that ``forward`` gave."""
        found = [_as_weights(stage, g) for stage, (g, _) in zip(self.stages, self._backward(error), strict=True)]
        return [torch.from_numpy(g).reshape(codes.shape) for g, codes in zip(found, self.codes, strict=True)]

    def _make_room(self, images: int, training: bool) -> None:
        if images > self.room:
            self.room, self.training, self.packed = images, [], False
            self.buffers = Buffers.of(self.stages, images)
        if training and not self.training:
            self.packed = False
            pairs = zip(self.stages, self.buffers, strict=True)
            self.training = [TrainingBuffers(stage, buffers, self.lanes) for stage, buffers in pairs]

    def _pack(self) -> None:
        """Lay the ternary weights out as the products take them, once a step."""
        if self.packed:
            return
        limit = self.width.steps // 2  # Q_Int2: ±1 where |2q| > 2^(s−2), halves to even
        for number, (stage, buffers, codes) in enumerate(zip(self.stages, self.buffers, self.codes, strict=True)):
            back = self.training[number].packed if self.training else None
            offset = self.width.max_code if stage.paired else OFFSET if stage.signed else 0
            _native.pack(
                self.number, codes.numpy(), stage.weights, limit, offset, stage.flat, stage.paired, buffers.ternary,
                buffers.weights, buffers.start, *(back or (None, None)),
            )  # fmt: skip
        self.packed = True

    def _forward(self, images: Tensor, record: bool) -> Tensor:
        self.images, self.recorded = len(images), record
        first, grid = self.stages[0], self.buffers[0].received
        floats = images.to(torch.float32).contiguous().numpy()
        _native.load_images(
            floats, first.inputs, self.width.steps, grid.data, grid.inside, grid.strides, (self.images, *first.image)
        )
        for stage, buffers in zip(self.stages, self.buffers, strict=True):
            following = self.stages[stage.index + 1] if stage.index + 1 < len(self.stages) else None
            pool = following.pool if following else None
            pooled = not record and stage.pools(pool)
            grid, given = buffers.received, self.buffers[stage.index + 1].received if pooled else buffers.given
            rows, row = (1, stage.taps) if stage.flat else stage.kernel  # a row of a window lies in one piece
            _native.forward(
                self.number, grid.data, grid.steps(stage.stride), (self.images, *stage.positions), rows,
                grid.strides[1], row * stage.padded_inputs, self._run(stage), buffers.weights, buffers.start,
                stage.padded_outputs, given.data, given.inside, given.strides,
                buffers.given_passes if record else None, stage.shift, self.width.max_code, stage.relu, buffers.room,
                pooled,
            )  # fmt: skip
            if following and pool and not pooled:
                self._pool(buffers, following, self.buffers[following.index], record)
        codes = self.buffers[-1].given.data[: self.images, 0, 0, : self.classes]
        return torch.from_numpy(codes.astype(np.float32) - OFFSET)

    def _run(self, stage: Stage | None = None) -> int:
        """How many pairs of products with ternary weights a 16-bit sum can hold: of a stage's inputs, or of errors."""
        above = OFFSET if stage is None or stage.signed else self.width.max_code if stage.paired else 0
        return INT16 // (2 * (self.width.max_code + above))

    def _pool(self, before: Buffers, stage: Stage, buffers: Buffers, record: bool) -> None:
        grid = buffers.received
        _native.pool(
            before.given.data, before.given_passes if record else None, before.given.strides, stage.window, grid.data,
            grid.inside, grid.strides, (self.images, *stage.image, stage.padded_inputs), buffers.passes,
            buffers.winners,
        )  # fmt: skip

    def _backward(self, error: Tensor) -> list[tuple[NDArray[np.signedinteger], int]]:
        """Gradients as [output][tap][input], padded, and their largest magnitudes; first layer first."""
        if not self.recorded:
            raise RuntimeError("learn follows a forward pass that was recorded")
        found: list[tuple[NDArray[np.signedinteger], int]] = []
        last = self.training[-1].errors.data
        passes = torch.from_numpy(self.buffers[-1].given_passes[: self.images, 0, 0, : self.classes] != 0)
        codes = normalise(error * passes, self.width).numpy()
        last[: self.images, 0, 0, : self.classes] = (codes + OFFSET).astype(np.uint8)
        for stage, buffers, training in zip(
            reversed(self.stages), reversed(self.buffers), reversed(self.training), strict=True
        ):
            found.append(self._gradient(stage, training))
            if training.packed:
                self._error_below(stage, buffers, training, *training.packed)
        return found[::-1]

    def _gradient(self, stage: Stage, training: TrainingBuffers) -> tuple[NDArray[np.signedinteger], int]:
        """Σ e·a, over chunks of images that int32 can hold."""
        errors = training.errors
        _native.interleave(
            errors.data, self.images, errors.area, stage.padded_outputs, stage.padded_outputs, SIGNED,
            training.error_fours.data,
        )  # fmt: skip
        fours = -(-self.images // 4)
        chunk = INT32 // (4 * math.prod(stage.positions) * self.width.max_code**2)
        if fours <= chunk:
            return training.gradient, self._gradient_of(stage, training, 0, fours)
        total = np.zeros(training.gradient.shape, np.int64)
        for first in range(0, fours, chunk):
            self._gradient_of(stage, training, first, min(chunk, fours - first))
            total += training.gradient
        return total, int(np.abs(total[..., : stage.inputs]).max())

    def _gradient_of(self, stage: Stage, training: TrainingBuffers, first: int, fours: int) -> int:
        training.gradient.fill(0)
        a, e = training.received_fours, training.error_fours
        _native.gradient(
            self.number, a.data[first:], a.steps(stage.stride), a.block, e.data[first:], e.inside,
            e.steps(stage.stride), e.block, (fours, *stage.positions), stage.kernel, a.strides[1:], training.inputs,
            stage.padded_outputs, self.width.max_code, training.gradient,
        )  # fmt: skip
        rows = training.gradient.shape[0] * training.gradient.shape[1]
        return _native.join_gradient(training.gradient, rows, stage.padded_inputs, training.inputs, stage.signed)

    def _error_below(
        self, stage: Stage, buffers: Buffers, training: TrainingBuffers, weights: Ternary, start: Sums
    ) -> None:
        """Σ t·e where gradients pass, then its codes where the layer below gave the values."""
        grid, passes = training.errors, buffers.passes
        positions, outputs, (rows, row) = (self.images, *stage.image), stage.padded_inputs, stage.kernel
        if stage.flat:
            positions, outputs, (rows, row) = (self.images, 1, 1), stage.taps * stage.padded_inputs, (1, 1)
        largest = _native.backward(
            self.number, grid.data, grid.strides, positions, rows, grid.strides[1], row * stage.padded_outputs,
            self._run(), weights, start, outputs, training.below, passes,
        )  # fmt: skip
        below, before = self.training[stage.index - 1].errors, self.stages[stage.index - 1]
        _native.spread(
            training.below, self.width.bits - 1 - shift_exponent(largest), self.width.max_code, buffers.winners,
            stage.window, below.data, below.inside, below.steps(before.stride),
            (self.images, *stage.image, stage.padded_inputs),
        )  # fmt: skip


def _as_weights(stage: Stage, gradient: NDArray[np.signedinteger]) -> NDArray[np.int64]:
    """[output][tap][input] as the weights lie: [output][input][tap], without padding."""
    return np.ascontiguousarray(gradient[: stage.outputs, :, : stage.inputs].transpose(0, 2, 1)).astype(np.int64)
