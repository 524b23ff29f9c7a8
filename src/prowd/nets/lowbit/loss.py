"""Losses of an s-bit client in integers: what to report, and the error of the logit codes to go back from.

A loss is the sum over a batch, with 16 fraction bits. Errors have a scale of their own, which Shift divides out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.numbers.bits import Bitwidth
from prowd.numbers.exponential import ENTRIES, ONE_BITS, exponential_tables

__all__ = ["LOSS_BITS", "CrossEntropy", "Loss", "cross_entropy", "logit_exponent", "squared_error"]

Loss = Literal["cross-entropy", "squared"]
CrossEntropy = Callable[[Tensor, Tensor, Bitwidth, float], tuple[Tensor, Tensor]]
"""From logit codes, labels, width and logit scale to the loss and the errors."""
LOSS_BITS = 16
LN2 = 45426  # ln 2 with LOSS_BITS fraction bits
WORD = 32


def cross_entropy(logits: Tensor, labels: Tensor, width: Bitwidth, logit_scale: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy of softmax(logit_scale · code / S), the paper's loss, with one division an image.

    Differences to the largest code are looked up in a table of exponentials. Errors have 30 fraction bits.
    """
    exponent = logit_exponent(width, logit_scale)
    codes = logits.to(torch.int64)
    gaps = codes.amax(1, keepdim=True) - codes
    low, high = (table.to(codes.device) for table in exponential_tables(exponent))
    values = low[gaps % ENTRIES] * high[gaps // ENTRIES] >> ONE_BITS
    total = values.sum(1, keepdim=True)
    error = values * ((1 << 62) // total) >> WORD
    picked = labels[:, None]
    error.scatter_add_(1, picked, torch.full_like(picked, -(1 << ONE_BITS)))
    logarithm = (_log2(total) - (ONE_BITS << LOSS_BITS)) * LN2 >> LOSS_BITS
    return (logarithm + _shifted(gaps.gather(1, picked), LOSS_BITS + exponent)).sum(), error


def logit_exponent(width: Bitwidth, logit_scale: float) -> int:
    """log2 of logit_scale / S."""
    return math.frexp(logit_scale)[1] - width.bits


def squared_error(logits: Tensor, labels: Tensor, width: Bitwidth) -> tuple[Tensor, Tensor]:
    """½·Σ(value − target)², as in WAGE. The target is the largest code for the label and 0 elsewhere."""
    error = logits.to(torch.int64) - F.one_hot(labels, logits.shape[1]) * width.max_code
    return _shifted(error.square().sum(1), LOSS_BITS - 2 * (width.bits - 1) - 1).sum(), error


def _log2(total: Tensor) -> Tensor:
    """log2 with 16 fraction bits, each found by squaring; of numbers from 2^30 to 2^53."""
    whole = torch.frexp(total.double()).exponent.to(torch.int64) - 1
    bits = torch.where(whole < 31, total << (31 - whole).clamp(min=0), total >> (whole - 31).clamp(min=0))
    found = whole
    for _ in range(LOSS_BITS):
        bits = _square(bits)
        carry = bits >> WORD
        bits >>= carry
        found = 2 * found + carry
    return found


def _square(bits: Tensor) -> Tensor:
    """floor(x² / 2^31) for x below 2^32, whose square int64 can't hold."""
    high, low = bits >> 16, bits & 0xFFFF
    return (high * high << 1) + ((high * low << 17) + low * low >> 31)


def _shifted(values: Tensor, by: int) -> Tensor:
    """floor(x · 2^by)."""
    return values << by if by >= 0 else values >> -by
