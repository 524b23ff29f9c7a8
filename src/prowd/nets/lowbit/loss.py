"""Losses of an s-bit client: the value to report and the error of the logit codes that starts the backward pass."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.numbers.bits import Bitwidth

__all__ = ["Loss", "cross_entropy", "squared_error"]

Loss = Literal["cross-entropy", "squared"]


def cross_entropy(logits: Tensor, labels: Tensor, width: Bitwidth, logit_scale: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy of softmax(logit_scale · code / S), the paper's loss; the softmax is the one float of a client."""
    scaled = logits * (logit_scale / width.steps)
    error = torch.softmax(scaled, 1)
    error[torch.arange(len(labels), device=labels.device), labels] -= 1.0
    return F.cross_entropy(scaled, labels), error


def squared_error(logits: Tensor, labels: Tensor, width: Bitwidth) -> tuple[Tensor, Tensor]:
    """½·Σ(value − target)², as in WAGE: integers only. The target is the largest code for the label and 0 elsewhere."""
    error = logits - F.one_hot(labels, logits.shape[1]) * width.max_code
    return 0.5 * (error / width.steps).square().sum(1).mean(), error
