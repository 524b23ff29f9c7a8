"""The formulas of s-bit training as the paper prints them, on real values, in exact fractions.

Where ``integer_oracle`` keeps integers and drops every power of two, this keeps the values themselves: weights
Q_Int2(q), activations c/S, the division by α, errors at their true scale. And where the oracle slides windows, this
lists the connections of a layer one by one. The two share nothing, so their agreement says something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product

from prowd.nets.architecture import Architecture, Conv, Flatten, Linear, MaxPool, WeightLayer

Index = tuple[int, ...]
Values = dict[Index, Fraction]
"""A tensor, entry by entry."""


def clip(x: Fraction, s: int) -> Fraction:
    """clip_s: to ±(S−1)/S."""
    limit = 1 - Fraction(1, 2 ** (s - 1))
    return max(-limit, min(limit, x))


def quantize(x: Fraction, s: int) -> Fraction:
    """Q_s; Python rounds fractions half to even."""
    steps: int = 2 ** (s - 1)
    return clip(Fraction(round(steps * x), steps), s)


def saturates(x: Fraction, s: int) -> bool:
    """Whether clip_s changes what was rounded."""
    steps: int = 2 ** (s - 1)
    return abs(round(steps * x)) > steps - 1


def shift(x: Fraction) -> Fraction:
    """Shift(x) = 2^round(log2 x), and 1 for 0: the power p with p/√2 < x < p·√2."""
    power = Fraction(1)
    while x and x * x > 2 * power * power:
        power *= 2
    while x and 2 * x * x < power * power:
        power /= 2
    return power


def normalize(values: Values) -> Values:
    """Divide a tensor by Shift of its largest magnitude."""
    power = shift(max(map(abs, values.values())))
    return {at: value / power for at, value in values.items()}


def connections(layer: WeightLayer, height: int, width: int) -> list[tuple[Index, Index, Index]]:
    """(output, input, weight) of every product in a layer; padding contributes none."""
    if isinstance(layer, Linear):
        return [((o,), (i,), (o, i)) for o in range(layer.outputs) for i in range(layer.inputs)]
    (high, wide), (down, right), (top, left) = layer.kernel, layer.stride, layer.padding
    _, rows, columns = layer.output((layer.inputs, height, width))
    found: list[tuple[Index, Index, Index]] = []
    for o, c, i, j, y, x in product(*map(range, (layer.outputs, layer.inputs, rows, columns, high, wide))):
        source = (c, i * down - top + y, j * right - left + x)
        if 0 <= source[1] < height and 0 <= source[2] < width:
            found.append(((o, i, j), source, (o, c, y, x)))
    return found


def entries(*shape: int) -> list[Index]:
    """All indices in row-major order."""
    return list(product(*map(range, shape)))


def run(
    architecture: Architecture, s: int, weights: Sequence[Values], images: Sequence[Values], errors: Sequence[Values]
) -> tuple[list[Values], list[Values]]:
    """Logits of each image, and the gradient of each weight tensor summed over the images, given the logits' errors."""
    shapes = [architecture.input_shape]
    current: tuple[int, ...] = architecture.input_shape
    for layer in architecture.layers:
        current = layer.output(current)
        shapes.append(current)  # type: ignore[arg-type]
    ternaries = [{at: quantize(q, 2) for at, q in tensor.items()} for tensor in weights]

    batch = [dict(image) for image in images]
    backwards: list[Callable[[list[Values]], list[Values]]] = []
    gradients: list[Values] = []
    number = 0
    for layer, before, after in zip(architecture.layers, shapes, shapes[1:], strict=False):
        if isinstance(layer, Flatten):
            pairs = dict(zip(entries(*after), entries(*before), strict=True))
            batch, back = _route(batch, [pairs] * len(batch), entries(*before))
        elif isinstance(layer, MaxPool):
            batch, back = _route(batch, [_winners(layer, a, after) for a in batch], entries(*before))
        else:
            assert isinstance(layer, Conv | Linear), "the printed formulas have no other layers"
            gradient = dict.fromkeys(entries(*layer.shape), Fraction(0))
            gradients.append(gradient)
            edges = connections(layer, *(before[1:] if len(before) == 3 else (1, 1)))
            alpha = Fraction(architecture.alphas[number])
            batch, back = _weigh(batch, edges, ternaries[number], alpha, s, layer.relu, entries(*after), gradient)
            number += 1
        backwards.append(back)
    errors = [dict(error) for error in errors]
    for back in reversed(backwards):
        errors = back(errors)
    return batch, gradients


def _winners(layer: MaxPool, a: Values, after: Sequence[int]) -> dict[Index, Index]:
    chosen: dict[Index, Index] = {}
    for c, i, j in entries(*after):
        corner = (i * layer.stride[0], j * layer.stride[1])
        window = [(c, corner[0] + y, corner[1] + x) for y, x in entries(*layer.kernel)]
        chosen[c, i, j] = max(window, key=a.__getitem__)  # max returns the first of equals
    return chosen


def _route(
    batch: list[Values], sources: Sequence[Mapping[Index, Index]], below: Sequence[Index]
) -> tuple[list[Values], Callable[[list[Values]], list[Values]]]:
    def back(errors: list[Values]) -> list[Values]:
        sent = [dict.fromkeys(below, Fraction(0)) for _ in errors]
        for into, error, source in zip(sent, errors, sources, strict=True):
            for at, value in error.items():
                into[source[at]] += value
        return sent

    return [{at: a[origin] for at, origin in source.items()} for a, source in zip(batch, sources, strict=True)], back


def _weigh(
    batch: list[Values],
    edges: list[tuple[Index, Index, Index]],
    ternary: Values,
    alpha: Fraction,
    s: int,
    relu: bool,
    outputs: Sequence[Index],
    gradient: Values,
) -> tuple[list[Values], Callable[[list[Values]], list[Values]]]:
    """a' = ReLU(Q_s(Q_Int2(q) * a / α)) and its backward pass, which adds to ``gradient``."""
    sums = [dict.fromkeys(outputs, Fraction(0)) for _ in batch]
    for z, a in zip(sums, batch, strict=True):
        for out, source, weight in edges:
            z[out] += ternary[weight] * a[source] / alpha
    results = [{at: quantize(value, s) for at, value in z.items()} for z in sums]

    def back(errors: list[Values]) -> list[Values]:
        layer_error: Values = {}
        for b, error in enumerate(errors):
            for at, value in error.items():
                cut = saturates(sums[b][at], s) or (relu and results[b][at] <= 0)
                layer_error[b, *at] = Fraction(0) if cut else value
        e = {at: quantize(value, s) for at, value in normalize(layer_error).items()}
        below = [dict.fromkeys(a, Fraction(0)) for a in batch]
        for b, a in enumerate(batch):
            for out, source, weight in edges:
                gradient[weight] += e[b, *out] * a[source]
                below[b][source] += ternary[weight] / alpha * e[b, *out]
        return below

    return [{at: max(value, Fraction(0)) if relu else value for at, value in y.items()} for y in results], back


def update(weights: Values, gradient: Values, eta: Fraction, uniform: Values, s: int) -> Values:
    """q ← clip_s(q − Q_stoch_s(η·g / Shift(max|g|))), rounding up where the fraction exceeds ``uniform``."""
    new: Values = {}
    for at, g in normalize(gradient).items():
        x = abs(eta * g)
        whole = x.numerator // x.denominator
        size = whole + (x - whole > uniform[at])
        new[at] = clip(weights[at] - (size if g > 0 else -size) * Fraction(1, 2 ** (s - 1)), s)
    return new
