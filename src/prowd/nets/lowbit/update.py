"""The integer update rule of s-bit training (Appendix B)."""

from __future__ import annotations

import torch
from torch import Tensor

from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Rate, clip_codes, stochastic_steps

__all__ = ["step"]


def step(
    codes: Tensor,
    gradient: Tensor,
    rate: Rate,
    width: Bitwidth,
    random: torch.Generator,
    addition: Tensor | None = None,
) -> Tensor:
    """q ← clip_s(q − Q_stoch_s(η·(g / Shift(max|g|) + addition))), on int16 codes."""
    steps = stochastic_steps(gradient, rate, random, addition)
    return clip_codes(codes.to(steps.dtype) - steps, width).to(torch.int16)
