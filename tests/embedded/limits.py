"""The largest numbers that the C core may meet, and the networks that it refuses; more cases for its driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

from prowd.nets.architecture import Architecture, Conv, Flatten, Linear, MaxPool
from tests.embedded.cases import Case, described, random_round, said, whole_round
from tests.reference import integer_client as oracle

__all__ = ["checks", "equal_codes", "extremes", "many_positions", "wide_padding"]

MOST_SIDE = 2**20
WHITE, BLACK = 255, 0
LEFT_OUT = ("rows", -1), ("kernel_rows", 1), ("kernel_columns", -1), ("kernel_columns", 1)  # by a stride, at the end


# --- rounds -----------------------------------------------------------------------------------------------------------


def many_positions(random: Random) -> Iterator[Case]:
    """Images whose positions are summed in several parts, images that are summed together, many logits."""
    shapes: tuple[tuple[Any, int, int], ...] = (
        ((1, 24, 23), 2, 12), ((1, 24, 23), 2, 16), ((2, 13, 13), 5, 9), ((1, 3, 512), 1, 14), ((1, 2, 700), 2, 4),
        ((2, 16, 16), 5, 13), ((2, 32, 1), 1, 8),
    )  # fmt: skip
    for number, (shape, batch, s) in enumerate(shapes):
        first = Conv("a", shape[0], 3) if number % 2 else Conv("a", shape[0], 3, (1, 3), (1, 1), (0, 1))
        layers = first, Conv("b", 3, 1, stride=(2, 2), relu=False)
        size = layers[1].output(layers[0].output(shape))
        flat = Flatten(), Linear("c", size[1] * size[2], 3, relu=False)
        yield random_round(random, Architecture((*layers, *flat), shape), s, batch)
    many_logits = Architecture((Flatten(), Linear("a", 20, 40, relu=False)), (1, 4, 5))
    yield random_round(random, many_logits, 6, 40, examples=40)


def wide_padding(random: Random) -> Iterator[Case]:
    """Outputs that see nothing but padding, where errors pass that have no place in the image below."""
    for s, stride, kernel in ((4, (2, 2), (2, 2)), (8, (1, 3), (3, 2)), (12, (3, 1), (1, 3)), (16, (2, 2), (2, 2))):
        image = 8 - kernel[0], 8 - kernel[1]
        middle = Conv("b", 2, 3 if s < 16 else 24, kernel, stride, kernel, relu=False)
        size = middle.output((2, *image))
        layers = Conv("a", 1, 2), middle, Flatten(), Linear("c", size[0] * size[1] * size[2], 4, relu=False)
        yield random_round(random, Architecture(layers, (1, *image)), s, 3)


def equal_codes(random: Random) -> Iterator[Case]:
    """Squares that are pooled, with several largest codes: of so few levels some are equal."""
    for s in (2, 3, 4):
        layers = Conv("a", 2, 6, relu=False), MaxPool((2, 2), (2, 2)), Flatten(), Linear("b", 54, 3, relu=False)
        yield random_round(random, Architecture(layers, (2, 6, 6)), s, 4, examples=4)


def extremes() -> Iterator[Case]:
    """Sums as large as they can be: of a gradient, of a forward pass, and of errors that several windows add up."""
    for s in (2, 8, 12, 13, 16):
        for size, batch in (((16, 32), 1), ((16, 16), 2), ((1, 512), 1)):
            length = size[0] * size[1]
            conv = Conv("a", 1, 1, (1, 1), (1, 1), (0, 0), relu=False)
            network = Architecture((conv, Flatten(), Linear("b", length, 1, relu=False)), (1, *size))
            yield one_step(network, s, [[0], [oracle.max_code(s)] * length], [[[[WHITE] * size[1]] * size[0]]] * batch)
    for s, inputs, byte in ((16, 65_000, WHITE), (16, 65_000, BLACK), (8, 72_000, BLACK)):
        network = Architecture((Flatten(), Linear("a", inputs, 1, relu=False)), (1, 250, inputs // 250))
        yield one_step(network, s, [[oracle.max_code(s)] * inputs], [[[[byte] * (inputs // 250)] * 250]])
    peak = [[[BLACK] * 3, [BLACK, WHITE - 1, BLACK], [BLACK] * 3]]
    last = Linear("b", 4, 8192, relu=False)
    conv = Conv("a", 1, 1, (1, 1), (1, 1), (0, 0), relu=False)
    network = Architecture((conv, MaxPool((2, 2), (1, 1)), Flatten(), last), (1, 3, 3))
    yield one_step(network, 16, [[32767], [32767] * 4 * 8192], [peak])


def one_step(network: Architecture, s: int, codes: list[list[int]], images: list[oracle.Image]) -> Case:
    """One step by the squared error, whose errors are as large as the logits."""
    work = oracle.Work(5, 1, 2, s, 1, len(images), (255, -3), loss="squared")
    return whole_round(network, work, codes, images, [0] * len(images))


# --- networks that are refused ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """A layer as C has it: without changes, one pixel to one pixel."""

    kind: int = 0
    inputs: int = 1
    rows: int = 1
    columns: int = 1
    outputs: int = 1
    out_rows: int = 1
    out_columns: int = 1
    kernel_rows: int = 1
    kernel_columns: int = 1
    stride_rows: int = 1
    stride_columns: int = 1
    pad_rows: int = 0
    pad_columns: int = 0
    shift: int = 1
    relu: int = 0
    groups: int = 1
    skip: int = 0
    other: int = 0


def checked(expected: int, *layers: Facts, bits: int = 8) -> Case:
    """A network, and the layer that is wrong with it."""
    facts = [number for layer in layers for number in asdict(layer).values()]
    return Case(said("check", bits, len(layers), facts), [expected])


def checks() -> Iterator[Case]:
    """Networks at the limits of what can be had, and just beyond."""
    yield from wrong_fields()
    yield from wrong_sizes()
    yield from wrong_networks()
    yield from sums_at_their_limits()


def wrong_fields() -> Iterator[Case]:
    """A number of the second layer that is out of its range, all others being right."""
    layers = Facts(), Facts(rows=1, columns=1), Facts()
    yield checked(0, *layers)
    ranges = {name: (1, MOST_SIDE) for name in asdict(Facts()) if name not in ("kind", "relu", "shift")}
    ranges |= {"pad_rows": (0, MOST_SIDE), "pad_columns": (0, MOST_SIDE), "shift": (1, 30), "kind": (0, 3)}
    ranges |= {"groups": (1, 1), "skip": (0, 1), "other": (0, 0)}
    for name, (least, most) in ranges.items():
        for value in (least - 1, most + 1, -(2**31), 2**31 - 1):
            yield checked(2, layers[0], replace(layers[1], **{name: value}), layers[2])
    for name in ("stride_rows", "stride_columns"):
        yield checked(0, layers[0], replace(layers[1], **{name: MOST_SIDE}), layers[2])
    for side in ("rows", "columns"):  # the longest, seen at its two ends
        facts = {side: MOST_SIDE, f"out_{side}": 2, f"stride_{side}": MOST_SIDE - 1}
        pool = Facts(1, **facts)
        yield checked(0, pool, Facts(inputs=2))
        yield checked(1, replace(pool, **{side: MOST_SIDE + 1, f"stride_{side}": MOST_SIDE}), Facts(inputs=2))
        padded = Facts(**{f"pad_{side}": MOST_SIDE, f"kernel_{side}": MOST_SIDE, f"out_{side}": 2})
        yield checked(0, replace(padded, **{f"stride_{side}": MOST_SIDE}), Facts(inputs=2))
    yield checked(0, replace(layers[0], shift=30), layers[1])


def wrong_sizes() -> Iterator[Case]:
    """Windows that do not give what is said, or are larger than the image."""
    conv = Facts(0, 2, 4, 5, 3, 3, 2, 3, 2, 2, 4, 2, 1, shift=2)
    pool = Facts(1, 3, 3, 2, 3, 2, 1, 2, 2, 1, 1)
    last = Facts(inputs=6, outputs=4)
    yield checked(0, conv, pool, last)
    for name in ("rows", "columns", "out_rows", "out_columns", "kernel_rows", "kernel_columns", "stride_rows"):
        for change in (-1, 1):
            facts = replace(conv, **{name: getattr(conv, name) + change})
            left_out = name == "columns" or (name, change) in LEFT_OUT
            yield checked(0 if left_out else 1, facts, pool, last)
    yield checked(2, conv, replace(pool, out_rows=1), last)
    yield checked(2, conv, replace(pool, outputs=2), replace(last, inputs=4))
    for side in ("rows", "columns"):
        padded = replace(pool, **{f"pad_{side}": 1, f"out_{side}": getattr(pool, f"out_{side}") + 2})
        yield checked(2, conv, padded, replace(last, inputs=3 * padded.out_rows * padded.out_columns))
        small = Facts(**{side: 2, f"kernel_{side}": 3, f"stride_{side}": 2})  # (2 - 3) / 2 + 1 is 1 in C
        yield checked(1, small)
        yield checked(0, replace(small, **{side: 3}))
        yield checked(0, replace(small, **{side: 1, f"pad_{side}": 1}))
    whole = Facts(1, 2048, 1024, 1024, 2048, 512, 512, 2, 2, 2, 2)
    yield checked(1, whole, Facts(1, 2048, 512, 512, 2048, 1, 1, 512, 512), Facts(inputs=2048), bits=2)
    less = replace(whole, inputs=2047, outputs=2047)
    yield checked(0, less, Facts(1, 2047, 512, 512, 2047, 1, 1, 512, 512), Facts(inputs=2047), bits=2)
    wide = Facts(0, 1, 4096, 512, 1024, 4096, 512)
    yield checked(1, wide, Facts(1, 1024, 4096, 512, 1024, 1, 1, 4096, 512), Facts(inputs=1024), bits=2)


def wrong_networks() -> Iterator[Case]:
    """Widths, counts, layers that do not meet, and a last layer that gives no logits."""
    yield from (checked(int(not 2 <= bits <= 16), Facts(), bits=bits) for bits in (-1, 0, 1, 2, 16, 17, 32))
    yield Case(said("check", 8, 0), [1])
    yield checked(2, Facts(outputs=3), Facts(inputs=2))
    yield checked(0, Facts(outputs=3), Facts(inputs=3))
    yield checked(3, Facts(), Facts(outputs=3), Facts(inputs=4))
    yield checked(1, Facts(1))
    yield checked(2, Facts(), Facts(1))
    yield checked(1, Facts(rows=2, out_rows=2))
    yield checked(1, Facts(columns=2, out_columns=2))


def sums_at_their_limits() -> Iterator[Case]:
    """The most inputs, outputs and windows that share a pixel of which 32 bits hold the sums."""
    ahead = (2**31 - 1 - 2**8) // 32767
    back = (2**30 - 1) // 32767
    for more in (0, 1):
        yield checked(more, Facts(inputs=ahead + more, shift=8), bits=16)
        yield checked(0, Facts(outputs=back + more), bits=16)  # nobody asks for errors below the first
        yield checked(2 * more, Facts(), Facts(outputs=back + more), bits=16)
        for rows, columns in ((2, 1), (1, 3), (3, 2)):  # as many windows share a pixel
            pool = Facts(1, 1, rows, columns, 1, 1, 1, rows, columns)
            last = Facts(outputs=back // (rows * columns) + more)
            yield checked(2 * more, first(rows, columns), pool, last, bits=16)
            apart = replace(pool, stride_rows=rows, stride_columns=columns)
            yield checked(0, first(rows, columns), apart, last, bits=16)
        twice = Facts(1, 1, 5, 1, 1, 3, 1, 3, 1), Facts(1, 1, 3, 1, 1, 1, 1, 3, 1, 2, 1)  # 3 · 2
        yield checked(2 * more, first(5, 1), *twice, Facts(outputs=back // 6 + more), bits=16)
        tall = Facts(rows=4, kernel_rows=4, columns=2, kernel_columns=2, outputs=back // 8 + more)
        yield checked(2 * more, first(4, 2), tall, bits=16)
    network = Architecture((Conv("a", 3, 4), MaxPool(), Flatten(), Linear("b", 64, 10, relu=False)), (3, 8, 8))
    yield Case(said("check", 8, 3, described(network)), [0])


def first(rows: int, columns: int) -> Facts:
    """A convolution of one pixel, for which errors come back to an image."""
    return Facts(rows=rows, columns=columns, out_rows=rows, out_columns=columns)
