"""Movements as messages: how far a client's weights have gone, quantized for the way up or down."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import torch
from torch import Tensor

from prowd.numbers.bits import FLOAT32, INT2, Bitwidth
from prowd.numbers.quantize import RANDOM_BITS, QTensor, Rate, encode, largest_magnitude
from prowd.numbers.streams import Stream

__all__ = [
    "best_ternary",
    "largest_scale",
    "movement",
    "scaled_codes",
    "stepped",
]


def movement(trained: QTensor, received: QTensor, target: Bitwidth, stream: Stream, number: int) -> QTensor:
    """Q(w_n − w_G) without bias, as in QSGD: E[Q(x)] = x. Integers only, at integer widths.

    Codes move by whole steps. They are divided by the smallest power of two that brings the largest of them into the
    range of the target width, and rounded up or down at random; a movement that fits as it is, is sent exactly. The
    ``number`` of a tensor tells its random words from those of others.
    """
    if trained.width.is_float:
        return QTensor(trained.codes - received.codes, FLOAT32)
    moved = trained.codes.to(torch.int64) - received.codes.to(torch.int64)
    largest, exponent = largest_magnitude(moved), 0
    while largest > target.max_code << exponent:
        exponent += 1
    if exponent:
        chance = stream.words(0, number, moved.numel()).reshape(moved.shape) >> (32 - RANDOM_BITS)
        moved = (moved << RANDOM_BITS) + (chance << exponent) >> (RANDOM_BITS + exponent)
    return QTensor(moved.to(torch.int16), target, 2.0**exponent * target.steps / trained.width.steps)


def largest_scale(width: Bitwidth) -> float | None:
    """The scale of a movement's codes: an integer weight moves by less than 2, a power of two holds that below 4.

    None at Float32, where a movement needs no scale.
    """
    return None if width.is_float else 4.0 * width.steps / width.max_code


def best_ternary(moved: Tensor, width: Bitwidth) -> QTensor:
    """The three levels L·t, t in {−1, 0, 1}, that say the most of a movement x of whole code steps.

    Entries of at least θ steps become ±L; the best θ has the largest (Σ|x|)² / count of what it keeps, which is the t
    of the least squared error. A device finds it by counting entries of each size. The nearest L·t would be shorter
    than x: L is so large that it goes as far along x as x itself, ⟨L·t, x⟩ = ‖x‖². L is sent with 8 bits, as learning
    rates are.
    """
    found = torch.bincount(moved.abs().flatten().to(torch.int64)).tolist()
    kept = along = threshold = best_kept = best_along = 0
    for size in range(len(found) - 1, 0, -1):
        kept, along = kept + found[size], along + found[size] * size
        if along**2 * best_kept >= best_along**2 * kept:  # of equals the smallest
            threshold, best_kept, best_along = size, kept, along
    if not threshold:  # nothing moved
        return QTensor(torch.zeros(moved.shape, dtype=torch.int16), INT2)
    square, furthest = sum(count * size**2 for size, count in enumerate(found)), 2 * width.max_code
    level = Rate.ratio(*min((square, best_along), (furthest, 1), key=lambda ratio: Fraction(*ratio))).value
    codes = moved.sign() * (moved.abs() >= threshold)
    return QTensor(codes.to(torch.int16), INT2, level * INT2.steps / width.steps)


def scaled_codes(values: Tensor, width: Bitwidth) -> QTensor:
    """Values of any size in a width's codes, under the smallest power-of-two scale that holds the largest of them."""
    if width.is_float:
        return QTensor(values.float(), FLOAT32)
    largest = float(values.abs().amax()) if values.numel() else 0.0
    exponent = math.ceil(math.log2(largest * width.steps / width.max_code)) if largest else 0
    return QTensor(encode(values.double() / 2.0**exponent, width).to(torch.int16), width, 2.0**exponent)


def stepped(model: Mapping[str, Tensor], moved: Mapping[str, Tensor], gamma: float) -> dict[str, Tensor]:
    """w_G + γ·movement; what nobody moved stays."""
    return {name: tensor + gamma * moved[name] if name in moved else tensor for name, tensor in model.items()}
