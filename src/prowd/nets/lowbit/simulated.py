"""The ``simulated`` kernel: s-bit training on float tensors that hold integers. Any width, any device, exact.

The integers are the specification (Section 3.2): with ternary weights t ∈ {−1, 0, 1} and codes a,

    forward   n = Σ t·a      r = round_half_even(n / 2α)      code = clip(r), then ReLU
    backward  e ← 0 where clip saturated or ReLU cut;  e ← Q_s(e / Shift(max|e|));  g = Σ e·a;  e below = Σ t·e

Scales of errors and gradients are powers of two that Shift divides out again; they are kept for where two errors meet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.nets.architecture import (
    IMAGES,
    Add,
    Architecture,
    AvgPool,
    Conv,
    Flatten,
    Linear,
    MaxPool,
    Take,
    WeightLayer,
)
from prowd.nets.inputs import input_codes
from prowd.nets.lowbit.exact import correlate, correlate_transposed, weight_gradient
from prowd.nets.lowbit.update import Draws, step
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Rate, encode, largest_magnitude, shift_exponent, ternary

__all__ = ["SimulatedKernel", "Tape", "forward", "gradients", "normalise"]


class SimulatedKernel:
    """Weights as int16 codes, replaced by every step."""

    name = "simulated"

    def __init__(self, architecture: Architecture, width: Bitwidth, codes: Sequence[Tensor]) -> None:
        self.architecture, self.width, self.codes = architecture, width, list(codes)
        self.tape: Tape | None = None

    def forward(self, images: Tensor, *, record: bool = True) -> Tensor:
        """Compute the logit codes of a batch of images of bytes, keeping what ``learn`` needs."""
        ternaries = [ternary(codes.to(torch.float32), self.width) for codes in self.codes]
        inputs = input_codes(images, self.width).float().contiguous(memory_format=torch.channels_last)
        tape = forward(self.architecture, self.width, ternaries, inputs, record=record)
        self.tape = tape if record else None
        return tape.logits

    def learn(self, error: Tensor, rate: Rate, draws: Draws, additions: Sequence[Tensor | None]) -> None:
        """Update the weights by the error of the logits that ``forward`` gave."""
        if self.tape is None:
            raise RuntimeError("learn follows a forward pass that was recorded")
        found = zip(self.codes, gradients(self.tape, error), additions, strict=True)
        self.codes = [
            step(codes, gradient, rate, self.width, draws.words(layer, codes), addition)
            for layer, (codes, gradient, addition) in enumerate(found)
        ]
        self.tape = None


@dataclass
class Tape:
    """What one forward pass leaves for the backward pass."""

    architecture: Architecture
    width: Bitwidth
    ternaries: Sequence[Tensor]
    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    inputs: list[Tensor] = field(default_factory=list)  # what each layer received
    aside: list[Tensor] = field(default_factory=list)  # where the gradient passes; of max pooling: winners


def forward(
    architecture: Architecture, width: Bitwidth, ternaries: Sequence[Tensor], codes: Tensor, *, record: bool = True
) -> Tape:
    """Compute the logit codes of a batch of input codes, recording what ``gradients`` needs."""
    tape = Tape(architecture, width, ternaries)
    weights = iter(zip(ternaries, architecture.alphas, strict=True))
    held = {IMAGES: codes}  # outputs that are asked for again
    for number, layer in enumerate(architecture.layers):
        received = aside = held[layer.source] if isinstance(layer, Take) else codes
        if isinstance(layer, MaxPool):
            codes, aside = F.max_pool2d(codes, layer.kernel, layer.stride, return_indices=True)
        elif isinstance(layer, AvgPool):
            codes = _average(layer, codes)
        elif isinstance(layer, Flatten):
            codes = codes.flatten(1)
        elif isinstance(layer, Take):
            codes = received
        elif isinstance(layer, Add):
            codes, aside = _clipped(layer, codes + held[layer.source], width)
        else:
            codes, aside = _weight_forward(layer, *next(weights), codes, width)
        if number in architecture.held:
            held[number] = codes
        if record:
            tape.inputs.append(received)
            tape.aside.append(aside)
    tape.logits = codes
    return tape


def _weight_forward(
    layer: WeightLayer, ternary: Tensor, alpha: float, codes: Tensor, width: Bitwidth
) -> tuple[Tensor, Tensor]:
    rounded = torch.round(correlate(layer, ternary, codes, width.max_code) / (2 * alpha)).to(codes.dtype)
    return _clipped(layer, rounded, width)


def _clipped(layer: WeightLayer | Add, rounded: Tensor, width: Bitwidth) -> tuple[Tensor, Tensor]:
    """The codes after clip and ReLU, and where neither cut."""
    passes = rounded.abs() <= width.max_code
    if not layer.relu:
        return rounded.clamp(-width.max_code, width.max_code), passes
    return rounded.clamp(0, width.max_code), passes & (rounded > 0)


def _average(layer: AvgPool, codes: Tensor) -> Tensor:
    """round_half_even(Σ / 2^k) of each window, in float64: sums of many wide codes pass 2^24."""
    sums = F.avg_pool2d(codes.double(), layer.kernel, layer.stride, divisor_override=1)
    return torch.round(sums * 2.0**-layer.shift).to(codes.dtype)


@dataclass(frozen=True)
class _Error:
    """The error of an output: it stands for integers · 2^exponent. Only where two errors meet it matters."""

    integers: Tensor
    exponent: int

    def met(self, other: _Error | None) -> _Error:
        """The sum of two: the finer is rounded to the scale of the coarser. One that is all zeros has no scale."""
        if other is None or not other.integers.any():
            return self
        if not self.integers.any():
            return other
        exponent = max(self.exponent, other.exponent)
        rounded = [torch.round(one.integers.double() * 2.0 ** (one.exponent - exponent)) for one in (self, other)]
        return _Error(rounded[0] + rounded[1], exponent)


def gradients(tape: Tape, error: Tensor) -> list[Tensor]:
    """Integer weight gradients, first layer first, from the integer error of the logits, below 2^53."""
    found: list[Tensor] = []
    architecture, ternaries, alphas = tape.architecture, list(tape.ternaries), list(tape.architecture.alphas)
    first = architecture.weight_layers[0]
    errors: dict[int, _Error] = {len(architecture.layers) - 1: _Error(error.double(), 0)}
    for number in reversed(range(len(architecture.layers))):
        layer, received, aside, given = (
            architecture.layers[number],
            tape.inputs[number],
            tape.aside[number],
            errors.pop(number),
        )
        if isinstance(layer, Conv | Linear):
            codes, exponent = _normalised(given.integers * aside, tape.width)
            found.append(weight_gradient(layer, received, codes, tape.width.max_code))
            if layer is first:
                break  # nobody asks for the error of the images
            below = correlate_transposed(layer, ternaries.pop(), codes, tape.width.max_code, received.shape)
            scale = exponent - (tape.width.bits - 1) - int(math.log2(2 * alphas.pop()))
            given = _Error(below, given.exponent + scale)
        else:
            given = _below(layer, given, aside, received)
        for source in architecture.reads[number]:
            errors[source] = given.met(errors.get(source))
    return found[::-1]


def normalise(error: Tensor, width: Bitwidth) -> Tensor:
    """Codes of Q_s(e / Shift(max|e|)), max over the layer (Appendix B)."""
    return _normalised(error, width)[0]


def _normalised(error: Tensor, width: Bitwidth) -> tuple[Tensor, int]:
    """The same, and the exponent of that Shift."""
    exponent = shift_exponent(largest_magnitude(error))
    return encode(error * 2.0**-exponent, width).to(torch.float32), exponent


def _below(layer: MaxPool | AvgPool | Flatten | Take | Add, error: _Error, aside: Tensor, received: Tensor) -> _Error:
    """The error of what a layer without weights received."""
    integers = error.integers
    if isinstance(layer, MaxPool):
        return replace(error, integers=_unpool(layer, integers, aside, received))
    if isinstance(layer, AvgPool):
        return _Error(_spread(layer, integers, received), error.exponent - layer.shift)
    if isinstance(layer, Add):
        return replace(error, integers=integers * aside)
    return replace(error, integers=integers.reshape(received.shape))


def _spread(layer: AvgPool, error: Tensor, received: Tensor) -> Tensor:
    """Send each error to every place of its window. Overlapping windows add up, past 2^24 perhaps."""
    below: Tensor = torch.ops.aten.avg_pool2d_backward(
        error.double(), received.double(), layer.kernel, layer.stride, (0, 0), False, True, 1
    )
    return below


def _unpool(layer: MaxPool, error: Tensor, winners: Tensor, received: Tensor) -> Tensor:
    """Send each error to the input that won its window. Overlapping windows add up, past 2^24 perhaps."""
    if any(kernel > stride for kernel, stride in zip(layer.kernel, layer.stride, strict=True)):
        error = error.double()
    below: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(
        error, received.to(error.dtype), layer.kernel, layer.stride, (0, 0), (1, 1), False, winners
    )
    return below
