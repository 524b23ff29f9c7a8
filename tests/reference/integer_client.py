"""One local round of an integer client, from image bytes and a task to the new codes and the reported loss.

Slow and obvious: Python integers only, as any device can follow them. What the package computes must be the same
numbers, to the bit, for every width s = 2..16. Weights are a flat list in the order (output, input, row, column).
Layers are described by the attributes of prowd.nets.architecture.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.reference.integer_images import (
    DEGREES,
    PER_DEGREE,
    angle,
    augment,
    batches,
    image_code,
    permutation,
    sensor_code,
    turned,
)
from tests.reference.integer_layers import (
    Image,
    Plane,
    Window,
    add_gradient,
    error_below,
    flat,
    mapped,
    max_pool,
    max_pool_error,
    weighted_sum,
    window_of,
    winners,
    zeros,
)
from tests.reference.integer_numbers import (
    RANDOM_BITS,
    WORD,
    Key,
    alpha_exponent,
    below,
    clip,
    cross_entropy,
    divide_half_even,
    exponential,
    floor_shift,
    log2_fixed,
    max_code,
    movement,
    nearest_rate,
    philox,
    round_shift,
    shift_exponent,
    squared_error,
    step_size,
    stream_key,
    ternary,
    three_levels,
    update,
    word,
)

__all__ = [
    "DEGREES",
    "PER_DEGREE",
    "RANDOM_BITS",
    "WORD",
    "Image",
    "Key",
    "Plane",
    "Tape",
    "Window",
    "Work",
    "add_gradient",
    "alpha_exponent",
    "angle",
    "augment",
    "backward",
    "batches",
    "below",
    "clip",
    "cross_entropy",
    "divide_half_even",
    "error_below",
    "exponential",
    "flat",
    "floor_shift",
    "forward",
    "image_code",
    "local_round",
    "log2_fixed",
    "mapped",
    "max_code",
    "max_pool",
    "max_pool_error",
    "movement",
    "nearest_rate",
    "normalise",
    "permutation",
    "philox",
    "round_shift",
    "sensor_code",
    "shift_exponent",
    "squared_error",
    "step_size",
    "stream_key",
    "ternary",
    "three_levels",
    "turned",
    "update",
    "weighted_sum",
    "window_of",
    "winners",
    "word",
    "zeros",
]


# --- one step ---------------------------------------------------------------------------------------------------------


def normalise(errors: Sequence[Any], s: int) -> list[Any]:
    """Codes of Q_s(n / Shift(max|n|)), the maximum taken over the whole layer and batch."""
    k = shift_exponent(max((abs(n) for n in flat(errors)), default=0))
    codes: list[Any] = mapped(lambda n: clip(round_shift(n, k - (s - 1)), s), errors)
    return codes


@dataclass(frozen=True)
class Tape:
    """What the backward pass needs of an image."""

    logits: list[int]
    inputs: list[Image]
    """Of every layer."""
    passes: list[Image]
    """Of each weight layer: 1 where an error reaches it, neither saturated nor cut by the ReLU."""


def forward(layers: Sequence[Any], s: int, ternaries: Sequence[Sequence[int]], image: Image) -> Tape:
    """Logit codes of an image of codes."""
    inputs: list[Image] = []
    passes: list[Image] = []
    a = image
    for layer in layers:
        if layer.kind == "flatten":
            inputs.append(a)
            continue
        inputs.append(a)
        if layer.kind == "maxpool":
            a = max_pool(layer, a)
            continue
        window, t = window_of(layer, a), ternaries[len(passes)]
        k = alpha_exponent(len(t) // layer.outputs) + 1
        r = mapped(lambda n, k=k: round_shift(n, k), weighted_sum(window, t, a))
        least = 0 if layer.relu else -max_code(s)
        passes.append(mapped(lambda n, relu=layer.relu: int(abs(n) <= max_code(s) and not (relu and n <= 0)), r))
        a = mapped(lambda n, least=least: max(least, min(max_code(s), n)), r)
    return Tape(flat(a), inputs, passes)


def backward(
    layers: Sequence[Any], s: int, ternaries: Sequence[Sequence[int]], tapes: Sequence[Tape], errors: list[list[int]]
) -> list[list[int]]:
    """Weight gradients of a batch, first layer first, for the integer errors of its logits."""
    gradients = [[0] * len(t) for t in ternaries]
    at = len(ternaries)
    n: list[Image] = [[[[e]] for e in error] for error in errors]
    for number in range(len(layers) - 1, -1, -1):
        layer, received = layers[number], [tape.inputs[number] for tape in tapes]
        if layer.kind == "flatten":
            continue
        if layer.kind == "maxpool":
            n = [max_pool_error(layer, one, a) for one, a in zip(n, received, strict=True)]
            continue
        at -= 1
        passing = [mapped(lambda e, p: e * p, one, tape.passes[at]) for one, tape in zip(n, tapes, strict=True)]
        codes = normalise(passing, s)
        for e, a in zip(codes, received, strict=True):
            add_gradient(window_of(layer, a), e, a, gradients[at])
        n = [error_below(window_of(layer, a), ternaries[at], e) for e, a in zip(codes, received, strict=True)]
    return gradients


# --- one round --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """What the task and the run say of one client's round."""

    seed: int
    round: int
    client: int
    s: int
    steps: int
    batch: int
    rate: tuple[int, int]
    """Mantissa and exponent."""
    logit_scale: int = 3
    """Its logarithm."""
    loss: str = "cross-entropy"
    operations: tuple[str, ...] = ()


def local_round(
    work: Work,
    layers: Sequence[Any],
    codes: Sequence[Sequence[int]],
    images: Sequence[Image],
    labels: Sequence[int],
    turns: Sequence[tuple[int, int]] = (),
) -> tuple[list[list[int]], int]:
    """Train; return the new codes of every weight layer and the mean loss with 16 fraction bits.

    ``turns`` holds (cosine, sine) of 0, 1, 2 … quarters of a degree.
    """
    where = work.round, work.client
    weights = [list(layer) for layer in codes]
    total = 0
    rows = batches(stream_key(work.seed, "batches", *where), len(images), work.batch, work.steps)
    for step, chosen in enumerate(rows):
        ternaries = [[ternary(q, work.s) for q in layer] for layer in weights]
        tapes, errors = [], []
        for n, row in enumerate(chosen):
            varied = images[row]
            if work.operations:
                words = philox((step, 0, n, 0), stream_key(work.seed, "augment", *where))
                varied = augment(varied, work.operations, words, turned(turns, angle(words[3])))
            tape = forward(layers, work.s, ternaries, mapped(lambda u: image_code(u, work.s), varied))
            if work.loss == "squared":
                loss, error = squared_error(tape.logits, labels[row], work.s)
            else:
                loss, error = cross_entropy(tape.logits, labels[row], work.s, work.logit_scale)
            total += loss
            tapes.append(tape)
            errors.append(error)
        gradients = backward(layers, work.s, ternaries, tapes, errors)
        key = stream_key(work.seed, "rounding", *where)
        for layer, gradient in enumerate(gradients):
            words = [word(key, step, layer, index) for index in range(len(gradient))]
            weights[layer] = update(weights[layer], gradient, work.rate, words, work.s)
    return weights, total // (work.steps * len(rows[0]))
