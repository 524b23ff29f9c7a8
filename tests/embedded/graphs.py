"""Networks that are no plain sequence, for the driver of the C core: groups, averages, additions and shortcuts."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from prowd.nets.architecture import Add, Architecture, AvgPool, Conv, Flatten, Layer, Linear, MaxPool, Take
from tests.embedded.cases import Case, random_round
from tests.embedded.limits import Facts, checked
from tests.reference import integer_client as oracle

__all__ = ["graph_checks", "graph_rounds"]

AVERAGE, ADD = 2, 3


def graph_rounds(random: Random, count: int) -> Iterator[Case]:
    """Rounds of random networks with residual blocks and grouped convolutions, every width in turn."""
    for number in range(count):
        yield random_round(random, random_graph(random), 2 + number % 15, random.randint(1, 4))


def random_graph(random: Random) -> Architecture:
    """Blocks one after the other, then an average of what is left, or a linear layer with a shortcut."""
    first: Any = random.choice((1, 2, 4)), random.choice((2, 4, 5)), random.choice((1, 4, 6))
    shape, layers = first, list[Layer]()
    if random.random() < 0.3:
        layers.append(random.choice((MaxPool((1, 1), (1, 1)), AvgPool((2, 1), (1, 1)))))
        shape = layers[-1].output(shape)
    for number in range(random.randint(1, 3)):
        some, outputs, stride = random_block(random, str(number), shape[0], len(layers))
        layers += some
        shape = outputs, *((side - 1) // stride + 1 for side in shape[1:])
    power = [1 << (side.bit_length() - 1) for side in shape[1:]]
    if random.random() < 0.5:
        layers.append(AvgPool((power[0], power[1]), (random.randint(1, 2), random.randint(1, 2))))
        shape = layers[-1].output(shape)
    layers.append(Flatten())
    width = shape[0] * shape[1] * shape[2]
    if width < 20 and random.random() < 0.5:
        layers += [Linear("same", width, width), Add(len(layers) - 1, random.random() < 0.5)]
    return Architecture((*layers, Linear("logits", width, random.randint(1, 5), relu=False)), first)


def random_block(random: Random, name: str, inputs: int, number: int) -> tuple[list[Layer], int, int]:
    """A residual block, or some convolution in groups; what it gives in channels, and its stride."""
    groups = random.choice([n for n in (1, 2, 4) if inputs % n == 0])
    outputs, stride, start = groups * random.choice((1, 2)), random.choice((1, 1, 2)), number - 1
    kernel = random.choice(((3, 3), (1, 3), (5, 1)))
    padding = kernel[0] // 2, kernel[1] // 2
    body: list[Layer] = [
        Conv(f"{name}a", inputs, outputs, kernel, (stride, stride), padding, random.random() < 0.6, groups=groups)
    ]
    kind = random.random()
    if kind < 0.25:
        return body, outputs, stride
    if kind < 0.6:
        body.append(Conv(f"{name}b", outputs, outputs, relu=random.random() < 0.3))
    relu = random.random() < 0.5
    if stride == 1 and outputs == inputs and random.random() < 0.7:
        return [*body, Add(start, relu)], outputs, stride
    short = Conv(f"{name}s", inputs, outputs, (1, 1), (stride, stride), (0, 0), random.random() < 0.3)
    return [*body, Take(start), short, Add(start + len(body), relu)], outputs, stride


def graph_checks() -> Iterator[Case]:
    """Layers that receive what is not there, is not of their size, or what nobody uses; sums at their limits."""
    last, add = Facts(), Facts(ADD)
    yield checked(0, Facts(), Facts(ADD, other=1), last)  # what it received, added
    yield checked(0, Facts(), Facts(ADD, other=0), last)  # twice the same
    yield checked(2, Facts(), Facts(ADD, other=2), last)
    yield checked(2, Facts(), Facts(ADD, skip=2), last)
    yield checked(0, Facts(), Facts(ADD, skip=1), last)  # the image, and what was made of it
    yield checked(0, Facts(), Facts(skip=1), Facts(ADD, other=1), last)
    yield checked(1, Facts(), Facts(skip=1), Facts(ADD, other=0), last)  # nobody uses the first
    yield checked(2, Facts(outputs=2), Facts(ADD, inputs=2, outputs=2, other=1), Facts(inputs=2))
    yield checked(1, add)  # the last gives no logits
    for name in ("kernel_rows", "stride_rows", "kernel_columns", "stride_columns", "groups"):
        sides = {"rows": 2} if name == "kernel_rows" else {"columns": 2} if name == "kernel_columns" else {}
        yield checked(2, Facts(), Facts(ADD, other=1, **{name: 2, **sides}), last)
    yield from averages()
    yield from groups()
    yield from errors_that_meet()


def averages() -> Iterator[Case]:
    """Windows of a power of two, up to what 32 bits hold."""
    for rows, columns, shift, fits in (
        (2, 2, 2, 1),
        (3, 1, 1, 0),
        (3, 1, 2, 0),
        (4, 2, 3, 1),
        (4, 2, 2, 0),
        (1, 1, 0, 1),
    ):
        pool = Facts(AVERAGE, 1, rows, columns, 1, 1, 1, rows, columns, shift=shift)
        yield checked(0 if fits else 1, pool, Facts())
    for bits, shift, fits in ((16, 15, 1), (16, 16, 0), (15, 16, 1), (15, 17, 0)):
        pool = Facts(AVERAGE, 1, 1 << shift, 1, 1, 1, 1, 1 << shift, 1, shift=shift)
        yield checked(0 if fits else 1, pool, Facts(), bits=bits)
    padded = Facts(AVERAGE, 1, 2, 1, 1, 2, 1, 2, 1, 2, 1, 1, 0, shift=1)
    yield checked(1, padded, Facts(inputs=2))
    yield checked(1, Facts(AVERAGE, 1, outputs=2, shift=0), Facts(inputs=2))


def groups() -> Iterator[Case]:
    """Groups that divide inputs and outputs; a sum is over the inputs of one."""
    for inputs, outputs, number, fits in ((4, 6, 2, 1), (4, 6, 4, 0), (6, 4, 4, 0), (3, 3, 3, 1), (4, 4, 8, 0)):
        yield checked(0 if fits else 1, Facts(inputs=inputs, outputs=outputs, groups=number), Facts(inputs=outputs))
    ahead = (2**31 - 1 - 2**8) // 32767
    wide = Facts(inputs=2 * ahead, outputs=2, shift=8, groups=2)
    yield checked(0, wide, Facts(inputs=2), bits=16)
    yield checked(1, Facts(inputs=2 * ahead, outputs=1, shift=8), Facts(), bits=16)
    back = (2**30 - 1) // 32767
    for more in (0, 1):
        many = 2 * (back + more)
        layers = Facts(outputs=2), Facts(inputs=2, outputs=many, groups=2), Facts(inputs=many, outputs=2, groups=2)
        yield checked(2 * more, *layers, bits=16)


def errors_that_meet() -> Iterator[Case]:
    """As many errors as may add up to 2^30: twice those of the logits, and once more where a shortcut begins."""
    half = 2**29 // oracle.max_code(16)
    for more in (0, 1):
        twice = Facts(ADD, other=1), Facts(ADD, other=0), Facts(outputs=half + more)
        yield checked(4 * more, Facts(), Facts(), *twice, bits=16)
    for channels, wrong in ((1, 0), (2, 2)):  # 32,768 is left for the body of the block
        body = Facts(outputs=channels), Facts(inputs=channels)
        yield checked(wrong, Facts(), *body, Facts(ADD, other=2), Facts(ADD, other=0), Facts(outputs=half), bits=16)
