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
    average_pool,
    average_pool_error,
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
from tests.reference.integer_passes import Tape, backward, forward, met, normalise

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
    "average_pool",
    "average_pool_error",
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
    "met",
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
