"""The ``int8`` kernel: s-bit training (s ≤ 8) in the integer dot products of the CPU. One thread, no floats, exact.

The same integers as the ``simulated`` kernel. int32 sums can't overflow: forward |Σ t·a| ≤ fan_in · 255 and backward
|Σ t·e| ≤ fan_out · 255, which the sizes of a network keep below 2^31; a weight gradient |Σ e·a| ≤ positions · (S−1)²
is summed over as many images as stay below it, and these sums in int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prowd.nets.architecture import Architecture
from prowd.nets.inputs import code_table
from prowd.nets.lowbit import _native, update
from prowd.nets.lowbit.simulated import normalise
from prowd.nets.lowbit.stages import INT32, plan
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Rate, shift_exponent

__all__ = ["Int8Kernel", "instruction_sets"]

CHUNK = 32  # images of a forward pass that nothing follows: few enough to stay in the caches


def instruction_sets() -> list[str]:
    """The instruction sets of this CPU that make the kernel fast, fastest first."""
    return [name for name in _native.kernels() if name != "portable"]


def _as_bytes(codes: NDArray[Any]) -> NDArray[np.uint8]:
    """Signed codes as they lie in memory, which depends on what the instructions of a CPU multiply."""
    return (codes.astype(np.int16) + _native.OFFSET).astype(np.uint8)


class Int8Kernel:
    """Weights as int16 codes, updated in place; layers are built once and used in every step."""

    def __init__(
        self, architecture: Architecture, width: Bitwidth, codes: Sequence[Tensor], instructions: str | None = None
    ) -> None:
        self.instructions = instructions or instruction_sets()[0]
        self.name = f"int8 ({self.instructions})"
        self.width, self.classes = width, architecture.classes
        self.codes = [tensor.to(torch.int16).clone(memory_format=torch.contiguous_format) for tensor in codes]
        self.stages = plan(architecture)
        self.layers: list[_native.Layer] = []
        self.room = 0
        self.images = 0
        self.training = self.packed = self.recorded = False

    def forward(self, images: Tensor, *, record: bool = True) -> Tensor:
        """Compute the logit codes of a batch of images of bytes, keeping what ``learn`` needs."""
        if not len(images):
            return torch.empty(0, self.classes)
        self._make_room(len(images) if record else min(len(images), CHUNK), record)
        if not self.packed:
            for layer in self.layers:
                layer.pack()
            self.packed = True
        if record:
            return self._forward(images, record)
        return torch.cat([self._forward(part, record) for part in torch.split(images, CHUNK)])

    def learn(self, error: Tensor, rate: Rate, draws: update.Draws, additions: Sequence[Tensor | None]) -> None:
        """Update the weights by the integer error of the logits that ``forward`` gave."""
        gradients = self._backward(error)
        for number, (layer, codes, (gradient, largest), addition) in enumerate(
            zip(self.layers, self.codes, gradients, additions, strict=True)
        ):
            if addition is None and gradient.dtype == np.int32:
                layer.update(rate.mantissa, rate.exponent, largest, *draws.stream.key, draws.step, number)
            else:
                found = self._as_weights(number, gradient)
                words = draws.words(number, codes)
                codes.copy_(update.step(codes, found, rate, self.width, words, addition))
        self.packed = self.recorded = False

    def gradients(self, error: Tensor) -> list[Tensor]:
        """Integer weight gradients, first layer first, from the error of the logits that ``forward`` gave."""
        return [self._as_weights(number, gradient) for number, (gradient, _) in enumerate(self._backward(error))]

    def _make_room(self, images: int, training: bool) -> None:
        """Build the layers, last first: each writes what it gives to where the following receives it."""
        if images <= self.room and training <= self.training:
            return
        room, training = max(images, self.room), training or self.training
        layers: list[_native.Layer] = []
        for stage, codes in zip(reversed(self.stages), reversed(self.codes), strict=True):
            layer = _native.Layer(
                self.instructions, codes.numpy(), images=room, largest=self.width.max_code, training=training,
                following=layers[0] if layers else None, **asdict(stage),
            )  # fmt: skip
            layers.insert(0, layer)
        self.layers, self.room, self.training, self.packed = layers, room, training, False

    def _forward(self, images: Tensor, record: bool) -> Tensor:
        self.images, self.recorded = len(images), record
        table = _as_bytes(code_table(self.width, images.dtype).numpy())
        self.layers[0].load(images.contiguous().view(torch.uint8).numpy(), table, self.images)
        for layer in self.layers:
            layer.forward(self.images, record)
        return torch.from_numpy((self._logits("given") - np.uint8(_native.OFFSET)).view(np.int8).astype(np.float32))

    def _logits(self, memory: str) -> NDArray[np.uint8]:
        """What the last layer has of every logit."""
        return np.asarray(self.layers[-1].memory(memory))[: self.images, 0, 0, : self.classes]

    def _backward(self, error: Tensor) -> list[tuple[NDArray[np.signedinteger], int]]:
        """Gradients as [output][tap][input], padded, and their largest magnitudes; first layer first."""
        if not self.recorded:
            raise RuntimeError("learn follows a forward pass that was recorded")
        passes = torch.from_numpy(self._logits("given_passes") != 0)
        self._logits("errors")[:] = _as_bytes(normalise(error.double() * passes, self.width).numpy())
        found = [self._gradient(len(self.layers) - 1)]
        for number in range(len(self.layers) - 1, 0, -1):
            layer, before = self.layers[number], self.layers[number - 1]
            largest = layer.backward(self.images)
            layer.spread(self.images, self.width.bits - 1 - shift_exponent(largest), before)
            found.append(self._gradient(number - 1))
        return found[::-1]

    def _gradient(self, number: int) -> tuple[NDArray[np.signedinteger], int]:
        """Σ e·a, over chunks of images that int32 can hold."""
        stage, layer = self.stages[number], self.layers[number]
        gradient = np.asarray(layer.memory("gradient"))
        chunk = INT32 // (4 * stage.positions * self.width.max_code**2) * 4
        if self.images <= chunk:
            return gradient, layer.gradient(0, self.images)
        total = np.zeros(gradient.shape, np.int64)
        for first in range(0, self.images, chunk):
            layer.gradient(first, min(chunk, self.images - first))
            total += gradient
        return total, int(np.abs(total[..., : stage.inputs]).max())

    def _as_weights(self, number: int, gradient: NDArray[np.signedinteger]) -> Tensor:
        """[output][tap][input] as the weights lie: [output][input][tap], without padding."""
        stage = self.stages[number]
        found = gradient[: stage.outputs, :, : stage.inputs].transpose(0, 2, 1).astype(np.int64, order="C")
        return torch.from_numpy(found).reshape(self.codes[number].shape)
