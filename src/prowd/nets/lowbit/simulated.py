"""The ``simulated`` kernel: s-bit training on float tensors that hold integers. Any width, any device, exact.

The integers are the specification (Section 3.2): with ternary weights t ∈ {−1, 0, 1} and codes a,

    forward   n = Σ t·a      r = round_half_even(n / 2α)      code = clip(r), then ReLU
    backward  e ← 0 where clip saturated or ReLU cut;  e ← Q_s(e / Shift(max|e|));  g = Σ e·a;  e below = Σ t·e

Scales of errors and gradients are powers of two that Shift divides out again, so only their integers are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.nets.architecture import Architecture, Flatten, MaxPool, WeightLayer
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
    aside: list[Tensor] = field(default_factory=list)  # weight layers: where the gradient passes; pools: winners


def forward(
    architecture: Architecture, width: Bitwidth, ternaries: Sequence[Tensor], codes: Tensor, *, record: bool = True
) -> Tape:
    """Compute the logit codes of a batch of input codes, recording what ``gradients`` needs."""
    tape = Tape(architecture, width, ternaries)
    weights = iter(zip(ternaries, architecture.alphas, strict=True))
    for layer in architecture.layers:
        received = codes
        if isinstance(layer, MaxPool):
            codes, aside = F.max_pool2d(codes, layer.kernel, layer.stride, return_indices=True)
        elif isinstance(layer, Flatten):
            codes, aside = codes.flatten(1), codes
        else:
            codes, aside = _weight_forward(layer, *next(weights), codes, width)
        if record:
            tape.inputs.append(received)
            tape.aside.append(aside)
    tape.logits = codes
    return tape


def _weight_forward(
    layer: WeightLayer, ternary: Tensor, alpha: float, codes: Tensor, width: Bitwidth
) -> tuple[Tensor, Tensor]:
    rounded = torch.round(correlate(layer, ternary, codes, width.max_code) / (2 * alpha)).to(codes.dtype)
    passes = rounded.abs() <= width.max_code
    if not layer.relu:
        return rounded.clamp(-width.max_code, width.max_code), passes
    return rounded.clamp(0, width.max_code), passes & (rounded > 0)


def gradients(tape: Tape, error: Tensor) -> list[Tensor]:
    """Integer weight gradients, first layer first, from the integer error of the logits, below 2^53."""
    found: list[Tensor] = []
    error = error.double()
    ternaries = list(tape.ternaries)
    first = tape.architecture.weight_layers[0]
    largest = tape.width.max_code
    for layer, received, aside in zip(
        reversed(tape.architecture.layers), reversed(tape.inputs), reversed(tape.aside), strict=True
    ):
        if isinstance(layer, MaxPool):
            error = _unpool(layer, error, aside, received)
        elif isinstance(layer, Flatten):
            error = error.reshape(received.shape)
        else:
            error = normalise(error * aside, tape.width)
            found.append(weight_gradient(layer, received, error, largest))
            if layer is first:
                break  # nobody asks for the error of the images
            error = correlate_transposed(layer, ternaries.pop(), error, largest, received.shape)
    return found[::-1]


def normalise(error: Tensor, width: Bitwidth) -> Tensor:
    """Codes of Q_s(e / Shift(max|e|)), max over the layer (Appendix B)."""
    return encode(error * 2.0 ** -shift_exponent(largest_magnitude(error)), width).to(torch.float32)


def _unpool(layer: MaxPool, error: Tensor, winners: Tensor, received: Tensor) -> Tensor:
    """Send each error to the input that won its window. Overlapping windows add up, past 2^24 perhaps."""
    if any(kernel > stride for kernel, stride in zip(layer.kernel, layer.stride, strict=True)):
        error = error.double()
    below: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(
        error, received.to(error.dtype), layer.kernel, layer.stride, (0, 0), (1, 1), False, winners
    )
    return below
