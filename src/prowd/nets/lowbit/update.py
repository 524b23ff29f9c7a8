"""The integer update rule of s-bit training (Appendix B)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Rate, clip_codes, corrected_steps, stochastic_steps
from prowd.numbers.streams import Stream

__all__ = ["Draws", "step"]


@dataclass(frozen=True)
class Draws:
    """The random words of one local step."""

    stream: Stream
    step: int

    def words(self, layer: int, codes: Tensor) -> Tensor:
        """A word for each weight of a layer."""
        return self.stream.words(self.step, layer, codes.numel(), codes.device).reshape(codes.shape)


def step(
    codes: Tensor, gradient: Tensor, rate: Rate, width: Bitwidth, words: Tensor, addition: Tensor | None = None
) -> Tensor:
    """q ← clip_s(q − Q_stoch_s(η·(g / Shift(max|g|) + addition))), on int16 codes."""
    if addition is None:
        steps = stochastic_steps(gradient, rate, words)
    else:
        steps = corrected_steps(gradient, rate, words, addition)
    return clip_codes(codes.to(steps.dtype) - steps, width).to(torch.int16)
