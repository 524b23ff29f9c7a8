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

from prowd.nets.architecture import Architecture, Conv, Flatten, Linear, MaxPool, WeightLayer
from tests.reference import integer_client as client
from tests.reference.integer_client import max_code, shift_exponent

__all__ = ["Ints", "Tape", "backward", "forward", "max_code", "shift_exponent", "ternary", "update", "words"]

Ints = NDArray[np.int64]


# --- numbers ---------------------------------------------------------------------------------------------------------


def clip(codes: Ints, s: int) -> Ints:
    """clip_s on codes."""
    return np.clip(codes, -max_code(s), max_code(s))


def round_half_even_shift(n: Ints, k: int) -> Ints:
    """round_half_even(n / 2^k); for k ≤ 0 that is the integer n · 2^−k."""
    if k <= 0:
        return n << -k
    floor = n >> k
    rest = n - (floor << k)  # 0 ≤ rest < 2^k
    half = 1 << (k - 1)
    up = (rest > half) | ((rest == half) & (floor % 2 == 1))
    return np.where(up, floor + 1, floor)


def ternary(codes: Ints, s: int) -> Ints:
    """Q_Int2 of s-bit codes, as codes in {−1, 0, 1}: round_half_even(2c/S), clipped."""
    return np.clip(round_half_even_shift(codes, s - 2), -1, 1)


def quantize_error(n: Ints, s: int) -> Ints:
    """Codes of Q_s(n / Shift(max|n|)), the maximum taken over the whole tensor."""
    k = shift_exponent(int(np.abs(n).max()))
    return clip(round_half_even_shift(n, k - (s - 1)), s)


def log2_exact(x: float) -> int:
    """The exponent of a power of two x ≥ 1 (a layer's scale)."""
    whole = int(x)
    if whole != x or whole < 1 or whole & (whole - 1) != 0:
        raise ValueError(f"{x} is not a power of two")
    return whole.bit_length() - 1


# --- linear maps -----------------------------------------------------------------------------------------------------


def pad(layer: Conv, a: Ints) -> Ints:
    """The input with its zero padding."""
    (top, left), (batch, channels, height, width) = layer.padding, a.shape
    padded = np.zeros((batch, channels, height + 2 * top, width + 2 * left), np.int64)
    padded[:, :, top : top + height, left : left + width] = a
    return padded


def window(layer: Conv | MaxPool, i: int, j: int) -> tuple[slice, slice]:
    """Rows and columns of the (padded) input under output position (i, j)."""
    (high, wide), (down, right) = layer.kernel, layer.stride
    return slice(i * down, i * down + high), slice(j * right, j * right + wide)


def weighted_sum(layer: WeightLayer, t: Ints, a: Ints) -> Ints:
    """n = Σ t·a for every output."""
    if isinstance(layer, Linear):
        return a @ t.T
    padded = pad(layer, a)
    _, height, width = layer.output(a.shape[1:])
    n = np.zeros((len(a), layer.outputs, height, width), np.int64)
    for i in range(height):
        for j in range(width):
            rows, columns = window(layer, i, j)
            n[:, :, i, j] = np.tensordot(padded[:, :, rows, columns], t, axes=((1, 2, 3), (1, 2, 3)))
    return n


def weight_gradient(layer: WeightLayer, e: Ints, a: Ints) -> Ints:
    """g = Σ e·a over batch and positions, for every weight."""
    if isinstance(layer, Linear):
        return e.T @ a
    padded = pad(layer, a)
    g = np.zeros(layer.shape, np.int64)
    for i in range(e.shape[2]):
        for j in range(e.shape[3]):
            rows, columns = window(layer, i, j)
            g += np.tensordot(e[:, :, i, j], padded[:, :, rows, columns], axes=((0,), (0,)))
    return g


def error_below(layer: WeightLayer, t: Ints, e: Ints, a: Ints) -> Ints:
    """Σ t·e for every input: the transpose of ``weighted_sum``."""
    if isinstance(layer, Linear):
        return e @ t
    padded = np.zeros_like(pad(layer, a))
    for i in range(e.shape[2]):
        for j in range(e.shape[3]):
            rows, columns = window(layer, i, j)
            padded[:, :, rows, columns] += np.tensordot(e[:, :, i, j], t, axes=((1,), (0,)))
    (top, left), (height, width) = layer.padding, a.shape[2:]
    return padded[:, :, top : top + height, left : left + width]


# --- max pooling -----------------------------------------------------------------------------------------------------


def winners(layer: MaxPool, a: Ints) -> list[tuple[tuple[int, int, int, int], tuple[int, int, int, int]]]:
    """For each output position the input position that wins: the first maximum in row-major order of its window."""
    pairs = []
    channels, height, width = layer.output(a.shape[1:])
    for b, c, i, j in np.ndindex(len(a), channels, height, width):
        rows, columns = window(layer, i, j)
        best = (rows.start, columns.start)
        for y in range(rows.start, rows.stop):
            for x in range(columns.start, columns.stop):
                if a[b, c, y, x] > a[b, c, best[0], best[1]]:
                    best = (y, x)
        pairs.append(((b, c, i, j), (b, c, *best)))
    return pairs


def max_pool(layer: MaxPool, a: Ints) -> Ints:
    """The maximum of each window."""
    out = np.zeros((len(a), *layer.output(a.shape[1:])), np.int64)
    for target, source in winners(layer, a):
        out[target] = a[source]
    return out


def max_pool_error(layer: MaxPool, n: Ints, a: Ints) -> Ints:
    """Each output's error goes to the input that won; windows may overlap, so errors add up."""
    below = np.zeros_like(a)
    for target, source in winners(layer, a):
        below[source] += n[target]
    return below


# --- training --------------------------------------------------------------------------------------------------------


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
    passes: tuple[NDArray[np.bool_], ...]
    """Of each weight layer: where an error reaches it, neither saturated nor cut by the ReLU."""


def forward(architecture: Architecture, s: int, weights: Sequence[Ints], x: Ints) -> Tape:
    """Codes of the logits for s-bit weight codes and input codes (NCHW)."""
    ternaries = tuple(ternary(codes, s) for codes in weights)
    numbered = iter(zip(ternaries, architecture.alphas, strict=True))
    a, inputs, passes = x, [], []
    for layer in architecture.layers:
        inputs.append(a)
        if isinstance(layer, Flatten):
            a = a.reshape(len(a), -1)
        elif isinstance(layer, MaxPool):
            a = max_pool(layer, a)
        else:
            t, alpha = next(numbered)
            r = round_half_even_shift(weighted_sum(layer, t, a), log2_exact(alpha) + 1)
            a = clip(r, s)
            open_ = np.abs(r) <= max_code(s)
            if layer.relu:
                open_ &= a > 0
                a = np.maximum(a, 0)
            passes.append(open_)
    return Tape(architecture, s, a, ternaries, tuple(inputs), tuple(passes))


def backward(tape: Tape, error: Ints) -> list[Ints]:
    """Weight gradients, first layer first, for an integer error of the logits."""
    gradients: list[Ints] = []
    at = len(tape.ternaries)
    n = error
    for layer, a in zip(reversed(tape.architecture.layers), reversed(tape.inputs), strict=True):
        if isinstance(layer, Flatten):
            n = n.reshape(a.shape)
        elif isinstance(layer, MaxPool):
            n = max_pool_error(layer, n, a)
        else:
            at -= 1
            e = quantize_error(np.where(tape.passes[at], n, 0), tape.s)
            gradients.append(weight_gradient(layer, e, a))
            n = error_below(layer, tape.ternaries[at], e, a)
    return gradients[::-1]


def update(codes: Ints, gradient: Ints, rate: tuple[int, int], words: Sequence[int], s: int) -> Ints:
    """q ← clip_s(q − Q_stoch_s(η·g / Shift(max|g|))) with η = mantissa · 2^exponent, weight by weight."""
    new = client.update(codes.ravel().tolist(), gradient.ravel().tolist(), rate, words, s)
    return np.array(new, np.int64).reshape(codes.shape)


def words(seed: int, step: int, layer: int, count: int) -> list[int]:
    """The random words of a layer in the stream that tests draw from: ("test",)."""
    key = client.stream_key(seed, "test")
    return [word for block in range(-(-count // 4)) for word in client.philox((step, layer, block, 0), key)][:count]
