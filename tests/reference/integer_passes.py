"""Forward and backward of a whole network, in Python integers only, one image at a time but for what a batch shares.

An error is a batch of integers n and an exponent x: it stands for n · 2^x. Where a network is a plain sequence nobody
asks for x. Where two errors meet, at an output that two layers receive, it says how they are added.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.reference.integer_layers import (
    Image,
    add_gradient,
    average_pool,
    average_pool_error,
    error_below,
    flat,
    mapped,
    max_pool,
    max_pool_error,
    weighted_sum,
    window_of,
)
from tests.reference.integer_numbers import alpha_exponent, clip, max_code, round_shift, shift_exponent

Error = tuple[list[Image], int]


def normalise(errors: Sequence[Any], s: int) -> list[Any]:
    """Codes of Q_s(n / Shift(max|n|)), the maximum taken over the whole layer and batch."""
    k = largest_exponent(errors)
    codes: list[Any] = mapped(lambda n: clip(round_shift(n, k - (s - 1)), s), errors)
    return codes


def largest_exponent(errors: Sequence[Any]) -> int:
    """The exponent of Shift(max|n|)."""
    return shift_exponent(max((abs(n) for n in flat(errors)), default=0))


def met(one: Error | None, other: Error) -> Error:
    """The sum of two errors: the finer is rounded to the scale of the coarser. One that is all zeros has no scale."""
    if one is None or not any(flat(one[0])):
        return other
    if not any(flat(other[0])):
        return one
    x = max(one[1], other[1])
    rounded = [mapped(lambda n, down=x - scale: round_shift(n, down), errors) for errors, scale in (one, other)]
    return mapped(lambda a, b: a + b, *rounded), x


def unflattened(n: Image, image: Image) -> Image:
    """The numbers of planes of one place each, laid out as an image is."""
    numbers = iter(flat(n))
    laid_out: Image = mapped(lambda _: next(numbers), image)
    return laid_out


@dataclass(frozen=True)
class Tape:
    """What the backward pass needs of an image."""

    logits: list[int]
    inputs: list[Image]
    """Of every layer."""
    passes: dict[int, Image]
    """Of a weight layer or an addition: 1 where an error reaches it, neither saturated nor cut by the ReLU."""


def sources(layers: Sequence[Any], number: int) -> list[int]:
    """The layers whose outputs a layer receives; -1 is the image."""
    layer = layers[number]
    if layer.kind == "take":
        return [layer.source]
    return [number - 1, layer.source] if layer.kind == "add" else [number - 1]


def forward(layers: Sequence[Any], s: int, ternaries: Sequence[Sequence[int]], image: Image) -> Tape:
    """Logit codes of an image of codes."""
    inputs: list[Image] = []
    passes: dict[int, Image] = {}
    given: dict[int, Image] = {-1: image}
    weighty = 0
    for number, layer in enumerate(layers):
        a, *others = (given[source] for source in sources(layers, number))
        inputs.append(a)
        if layer.kind == "take":
            given[number] = a
        elif layer.kind == "flatten":
            given[number] = [[[n]] for n in flat(a)]
        elif layer.kind == "maxpool":
            given[number] = max_pool(layer, a)
        elif layer.kind == "avgpool":
            given[number] = average_pool(layer, a)
        else:
            if layer.kind == "add":
                r = mapped(lambda n, m: n + m, a, others[0])
            else:
                t = ternaries[weighty]
                weighty += 1
                k = alpha_exponent(len(t) // layer.outputs) + 1
                r = mapped(lambda n, k=k: round_shift(n, k), weighted_sum(window_of(layer, a), t, a))
            least = 0 if layer.relu else -max_code(s)
            passes[number] = mapped(lambda n, relu=layer.relu: int(abs(n) <= max_code(s) and not (relu and n <= 0)), r)
            given[number] = mapped(lambda n, least=least: max(least, min(max_code(s), n)), r)
    return Tape(flat(given[len(layers) - 1]), inputs, passes)


def backward(
    layers: Sequence[Any], s: int, ternaries: Sequence[Sequence[int]], tapes: Sequence[Tape], errors: list[list[int]]
) -> list[list[int]]:
    """Weight gradients of a batch, first layer first, for the integer errors of its logits."""
    gradients = [[0] * len(t) for t in ternaries]
    at = len(ternaries)
    found: dict[int, Error | None] = {len(layers) - 1: ([[[[e]] for e in error] for error in errors], 0)}
    for number in range(len(layers) - 1, -1, -1):
        layer, received = layers[number], [tape.inputs[number] for tape in tapes]
        given = found.pop(number)
        assert given is not None
        n, x = given
        if number in tapes[0].passes:
            n = [mapped(lambda e, p: e * p, one, tape.passes[number]) for one, tape in zip(n, tapes, strict=True)]
        if layer.kind == "flatten":
            n = [unflattened(one, a) for one, a in zip(n, received, strict=True)]
        elif layer.kind == "maxpool":
            n = [max_pool_error(layer, one, a) for one, a in zip(n, received, strict=True)]
        elif layer.kind == "avgpool":
            n = [average_pool_error(layer, one, (len(a[0]), len(a[0][0]))) for one, a in zip(n, received, strict=True)]
            x -= (layer.kernel[0] * layer.kernel[1]).bit_length() - 1
        elif layer.kind in ("conv", "linear"):
            at -= 1
            codes, t = normalise(n, s), ternaries[at]
            for e, a in zip(codes, received, strict=True):
                add_gradient(window_of(layer, a), e, a, gradients[at])
            x += largest_exponent(n) - (s - 1) - (alpha_exponent(len(t) // layer.outputs) + 1)
            n = [error_below(window_of(layer, a), t, e) for e, a in zip(codes, received, strict=True)]
        for source in sources(layers, number):
            found[source] = met(found.get(source), (n, x))
    return gradients
