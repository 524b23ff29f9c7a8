"""Selective aggregation (Section 4.3): masks of what low-bit clients contribute, and the average under them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from prowd.device.scene import Scene
from prowd.methods import common
from prowd.methods.base import Notes
from prowd.methods.notes import figure
from prowd.methods.prowd.selection import Mask
from prowd.wire import Update

__all__ = ["mask_notes", "masked_mean", "one_mask", "tensor_masks"]

Values = Mapping[str, Tensor]
Solve = Callable[[Tensor, Tensor], Mask]


def tensor_masks(low: Values, high: Values, solve: Solve) -> dict[str, Mask]:
    """A mask of its own for each tensor, from the movements of the two sides."""
    return {name: solve(low[name], high[name]) for name in low}


def one_mask(low: Values, high: Values, solve: Solve) -> dict[str, Mask]:
    """One optimisation that decides for all tensors."""
    whole = solve(*(torch.cat([side[name].flatten() for name in low]) for side in (low, high)))
    parts = torch.split(whole.kept, [tensor.numel() for tensor in low.values()])
    return {name: replace(whole, kept=part.reshape(low[name].shape)) for name, part in zip(low, parts, strict=True)}


def masked_mean(
    scene: Scene,
    updates: Sequence[Update],
    values: Sequence[Values],
    masks: Mapping[str, Mask],
    *,
    literal: bool = False,
) -> dict[str, Tensor]:
    """Σ c_n⊙w_n / Σ c_n of each tensor over those that sent it: of low-bit clients counts what their mask keeps.

    Literally 1/M·Σ c_n⊙w_n, which shrinks what is masked (Eq. 9).
    """
    means: dict[str, Tensor] = {}
    for name in dict.fromkeys(name for sent in values for name in sent):
        senders = [n for n, sent in enumerate(values) if name in sent]
        tensors, shares = [values[n][name] for n in senders], common.shares([updates[n] for n in senders])
        if name not in masks:
            means[name] = common.average(tensors, shares)
            continue
        mask = masks[name].kept.double()
        total, kept = torch.zeros_like(mask), torch.zeros_like(mask)
        for n, tensor, share in zip(senders, tensors, shares, strict=True):
            weight = share * mask if common.is_low(scene, updates[n].width) else share
            total += weight * tensor.double()
            kept += weight
        means[name] = (total / (sum(shares) if literal else kept)).float()
    return means


def mask_notes(masks: Mapping[str, Mask]) -> dict[str, Notes]:
    """Of each mask the shares of entries and of movement that it keeps, and the cosine before and after."""
    return {
        name: {
            "kept": figure(mask.kept_fraction),
            "kept_movement": figure(mask.kept_movement),
            "cosine_before": figure(mask.cosine_before),
            "cosine_after": figure(mask.cosine_after),
        }
        for name, mask in masks.items()
    }
