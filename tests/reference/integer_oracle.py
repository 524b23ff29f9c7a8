"""The passes of ``integer_client`` in int64 numpy, for networks that Python integers would take too long for.

It shares with the library only the description of a network (its layers and the exponents of its scales α) and none of
its arithmetic, so that it can judge every implementation. Powers of two that scale a whole error or gradient tensor are
left out: Shift normalises them away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prowd.nets.architecture import Add, Architecture, AvgPool, Flatten, MaxPool, Take
from tests.reference import integer_client as client
from tests.reference.integer_arrays import (
    Ints,
    average_pool,
    average_pool_error,
    clip,
    error_below,
    log2_exact,
    max_pool,
    max_pool_error,
    quantize_error,
    round_half_even_shift,
    ternary,
    weight_gradient,
    weighted_sum,
)
from tests.reference.integer_client import max_code, shift_exponent

__all__ = [
    "Ints",
    "Tape",
    "average_pool",
    "average_pool_error",
    "backward",
    "error_below",
    "forward",
    "log2_exact",
    "max_code",
    "max_pool",
    "max_pool_error",
    "met",
    "quantize_error",
    "round_half_even_shift",
    "shift_exponent",
    "ternary",
    "update",
    "weight_gradient",
    "weighted_sum",
    "words",
]


@dataclass(frozen=True)
class Tape:
    """What the backward pass needs."""

    architecture: Architecture
    s: int
    logits: Ints
    ternaries: tuple[Ints, ...]
    """Of each weight layer."""
    inputs: tuple[Ints, ...]
    """Of every layer."""
    passes: dict[int, NDArray[np.bool_]]
    """Of each weight layer and addition: where an error reaches it, neither saturated nor cut by the ReLU."""


def forward(architecture: Architecture, s: int, weights: Sequence[Ints], x: Ints) -> Tape:
    """Codes of the logits for s-bit weight codes and input codes (NCHW)."""
    ternaries = tuple(ternary(codes, s) for codes in weights)
    numbered = iter(zip(ternaries, architecture.alphas, strict=True))
    given, inputs, passes = {-1: x}, [], {}
    for number, layer in enumerate(architecture.layers):
        a = given[layer.source if isinstance(layer, Take) else number - 1]
        inputs.append(a)
        if isinstance(layer, Flatten | Take):
            given[number] = a.reshape(len(a), -1) if isinstance(layer, Flatten) else a
        elif isinstance(layer, MaxPool):
            given[number] = max_pool(layer, a)
        elif isinstance(layer, AvgPool):
            given[number] = average_pool(layer, a)
        else:
            if isinstance(layer, Add):
                r = a + given[layer.source]
            else:
                t, alpha = next(numbered)
                r = round_half_even_shift(weighted_sum(layer, t, a), log2_exact(alpha) + 1)
            passes[number] = (np.abs(r) <= max_code(s)) & (r > 0 if layer.relu else True)
            given[number] = np.maximum(clip(r, s), 0) if layer.relu else clip(r, s)
    return Tape(architecture, s, given[len(architecture.layers) - 1], ternaries, tuple(inputs), passes)


def met(one: tuple[Ints, int] | None, other: tuple[Ints, int]) -> tuple[Ints, int]:
    """The sum of two errors n · 2^x, the finer rounded to the scale of the coarser; zeros have no scale."""
    if one is None or not one[0].any():
        return other
    if not other[0].any():
        return one
    x = max(one[1], other[1])
    return round_half_even_shift(one[0], x - one[1]) + round_half_even_shift(other[0], x - other[1]), x


def backward(tape: Tape, error: Ints) -> list[Ints]:
    """Weight gradients, first layer first, for an integer error of the logits."""
    gradients: list[Ints] = []
    layers = tape.architecture.layers
    at = len(tape.ternaries)
    errors: dict[int, tuple[Ints, int]] = {len(layers) - 1: (error, 0)}
    for number in range(len(layers) - 1, -1, -1):
        layer, a, (n, x) = layers[number], tape.inputs[number], errors.pop(number)
        if isinstance(layer, Flatten):
            n = n.reshape(a.shape)
        elif isinstance(layer, MaxPool):
            n = max_pool_error(layer, n, a)
        elif isinstance(layer, AvgPool):
            n, x = average_pool_error(layer, n, a), x - log2_exact(layer.kernel[0] * layer.kernel[1])
        elif isinstance(layer, Add):
            n = np.where(tape.passes[number], n, 0)
            errors[layer.source] = met(errors.get(layer.source), (n, x))
        elif not isinstance(layer, Take):
            at -= 1
            n = np.where(tape.passes[number], n, 0)
            e = quantize_error(n, tape.s)
            gradients.append(weight_gradient(layer, e, a))
            x += shift_exponent(int(np.abs(n).max())) - (tape.s - 1) - (log2_exact(tape.architecture.alphas[at]) + 1)
            n = error_below(layer, tape.ternaries[at], e, a)
        below = layer.source if isinstance(layer, Take) else number - 1
        errors[below] = met(errors.get(below), (n, x))
    return gradients[::-1]


def update(codes: Ints, gradient: Ints, rate: tuple[int, int], words: Sequence[int], s: int) -> Ints:
    """q ← clip_s(q − Q_stoch_s(η·g / Shift(max|g|))) with η = mantissa · 2^exponent, weight by weight."""
    new = client.update(codes.ravel().tolist(), gradient.ravel().tolist(), rate, words, s)
    return np.array(new, np.int64).reshape(codes.shape)


def words(seed: int, step: int, layer: int, count: int) -> list[int]:
    """The random words of a layer in the stream that tests draw from: ("test",)."""
    key = client.stream_key(seed, "test")
    return [word for block in range(-(-count // 4)) for word in client.philox((step, layer, block, 0), key)][:count]
