"""Layers of integer codes in int64 numpy, a batch at a time; see ``integer_oracle``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prowd.nets.architecture import AvgPool, Conv, Linear, MaxPool, WeightLayer
from tests.reference.integer_client import max_code, shift_exponent

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


def window(layer: Conv | MaxPool | AvgPool, i: int, j: int) -> tuple[slice, slice]:
    """Rows and columns of the (padded) input under output position (i, j)."""
    (high, wide), (down, right) = layer.kernel, layer.stride
    return slice(i * down, i * down + high), slice(j * right, j * right + wide)


def parts(layer: Conv) -> list[tuple[slice, slice]]:
    """The inputs and the outputs of each group."""
    each, given = layer.inputs // layer.groups, layer.outputs // layer.groups
    return [(slice(n * each, (n + 1) * each), slice(n * given, (n + 1) * given)) for n in range(layer.groups)]


def weighted_sum(layer: WeightLayer, t: Ints, a: Ints) -> Ints:
    """n = Σ t·a for every output."""
    if isinstance(layer, Linear):
        return a @ t.T
    padded = pad(layer, a)
    _, height, width = layer.output(a.shape[1:])
    n = np.zeros((len(a), layer.outputs, height, width), np.int64)
    for i, j in np.ndindex(height, width):
        rows, columns = window(layer, i, j)
        for inputs, outputs in parts(layer):
            seen = padded[:, inputs, rows, columns]
            n[:, outputs, i, j] = np.tensordot(seen, t[outputs], axes=((1, 2, 3), (1, 2, 3)))
    return n


def weight_gradient(layer: WeightLayer, e: Ints, a: Ints) -> Ints:
    """g = Σ e·a over batch and positions, for every weight."""
    if isinstance(layer, Linear):
        return e.T @ a
    padded = pad(layer, a)
    g = np.zeros(layer.shape, np.int64)
    for i, j in np.ndindex(*e.shape[2:]):
        rows, columns = window(layer, i, j)
        for inputs, outputs in parts(layer):
            g[outputs] += np.tensordot(e[:, outputs, i, j], padded[:, inputs, rows, columns], axes=((0,), (0,)))
    return g


def error_below(layer: WeightLayer, t: Ints, e: Ints, a: Ints) -> Ints:
    """Σ t·e for every input: the transpose of ``weighted_sum``."""
    if isinstance(layer, Linear):
        return e @ t
    padded = np.zeros_like(pad(layer, a))
    for i, j in np.ndindex(*e.shape[2:]):
        rows, columns = window(layer, i, j)
        for inputs, outputs in parts(layer):
            padded[:, inputs, rows, columns] += np.tensordot(e[:, outputs, i, j], t[outputs], axes=((1,), (0,)))
    (top, left), (height, width) = layer.padding, a.shape[2:]
    return padded[:, :, top : top + height, left : left + width]


# --- pooling ---------------------------------------------------------------------------------------------------------


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


def average_pool(layer: AvgPool, a: Ints) -> Ints:
    """round_half_even(Σ / 2^k) of each window."""
    out = np.zeros((len(a), *layer.output(a.shape[1:])), np.int64)
    for i, j in np.ndindex(*out.shape[2:]):
        out[:, :, i, j] = a[(slice(None), slice(None), *window(layer, i, j))].sum((2, 3))
    return round_half_even_shift(out, log2_exact(layer.kernel[0] * layer.kernel[1]))


def average_pool_error(layer: AvgPool, n: Ints, a: Ints) -> Ints:
    """Each output's error goes to every place of its window."""
    below = np.zeros_like(a)
    for i, j in np.ndindex(*n.shape[2:]):
        below[(slice(None), slice(None), *window(layer, i, j))] += n[:, :, i, j, None, None]
    return below
