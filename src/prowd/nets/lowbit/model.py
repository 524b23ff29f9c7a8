"""An s-bit client's network: integer codes, trained by integer arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Gt, Le
from torch import Tensor

from prowd.errors import ConfigError
from prowd.nets.architecture import Architecture, weight_name
from prowd.nets.lowbit.kernels import KernelChoice, cross_entropy_of, make_kernel
from prowd.nets.lowbit.loss import LOSS_BITS, Loss, squared_error
from prowd.nets.lowbit.update import Draws
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import QTensor, Rate, Weights
from prowd.numbers.streams import Stream

__all__ = ["Correction", "LowBitModel", "LowBitSettings"]

Correction = Callable[[Sequence[Tensor]], Sequence[Tensor]]
"""What a method adds to the gradients of the weights, given their values."""


@dataclass(frozen=True)
class LowBitSettings:
    """How integer clients train (Section 3.2, Appendix B)."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "allow_inf_nan": False}

    rate: Annotated[float, Gt(0), Le(65536)] = 8.0
    """η at Int8, in least-significant steps."""
    rate_scaling: Literal["width", "constant"] = "width"
    """width: η_s = η·2^(s−8), the same real step at every width; constant: the same number of steps."""
    loss: Loss = "cross-entropy"
    logit_scale: Annotated[float, Gt(0), Le(65536)] = 8.0
    """Power of two that multiplies the logits before the softmax."""

    def __post_init__(self) -> None:
        if math.frexp(self.logit_scale)[0] != 0.5:
            raise ConfigError(f"lowbit.logit_scale: {self.logit_scale} is wrong; accepted: a power of two, as in 8")

    def rate_at(self, width: Bitwidth, factor: float = 1.0) -> Rate:
        """η_s, times a method's factor, as an integer device holds it."""
        scale = 2.0 ** (width.bits - 8) if self.rate_scaling == "width" else 1.0
        return Rate.nearest(self.rate * scale * factor)


class LowBitModel:
    """Weights as s-bit codes q; computes with Q_Int2(q) and s-bit activations, errors and updates."""

    def __init__(
        self,
        architecture: Architecture,
        width: Bitwidth,
        weights: Weights,
        settings: LowBitSettings,
        stream: Stream,
        rate: Rate,
        kernel: KernelChoice = "auto",
        device: torch.device | str = "cpu",
    ) -> None:
        self.width, self.settings, self.stream, self.rate = width, settings, stream, rate
        self.names = [weight_name(layer) for layer in architecture.weight_layers]
        codes = [weights[name].codes.to(device) for name in self.names]
        self.kernel = make_kernel(kernel, architecture, width, codes)
        self.cross_entropy = cross_entropy_of(self.kernel)
        self.no_additions: Sequence[Tensor | None] = [None] * len(codes)
        self.steps = self.examples = 0
        self.total_loss = torch.zeros((), dtype=torch.int64, device=device)

    def step(self, images: Tensor, labels: Tensor, correction: Correction | None = None) -> None:
        """One step of SGD on a batch of images of bytes.

        What a correction gives for the weights q is added to their gradients after these are normalised by Shift.
        """
        codes = self.kernel.codes
        additions = correction([tensor / self.width.steps for tensor in codes]) if correction else self.no_additions
        logits = self.kernel.forward(images)
        if self.settings.loss == "squared":
            loss, error = squared_error(logits, labels, self.width)
        else:
            loss, error = self.cross_entropy(logits, labels, self.width, self.settings.logit_scale)
        self.kernel.learn(error, self.rate, Draws(self.stream, self.steps), additions)
        self.steps += 1
        self.examples += len(labels)
        self.total_loss += loss

    def loss(self) -> float:
        """The mean loss of the steps so far: a whole number of 2^−16."""
        return int(self.total_loss) // self.examples / (1 << LOSS_BITS)

    def logits(self, images: Tensor) -> Tensor:
        """Logits of a batch of images of bytes, as values."""
        return self.kernel.forward(images, record=False) * (self.settings.logit_scale / self.width.steps)

    def weights(self) -> dict[str, QTensor]:
        """The s-bit weights q."""
        codes = zip(self.names, self.kernel.codes, strict=True)
        return {name: QTensor(tensor.to("cpu", copy=True), self.width) for name, tensor in codes}
