"""Questions to the C core, and what the oracle in Python integers answers to them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from prowd.data.augment import COSINES, OPERATIONS, SINES
from prowd.nets.architecture import Add, Architecture, AvgPool, Conv, Flatten, Linear, MaxPool, Take
from tests.reference import integer_client as oracle

__all__ = ["Case", "described", "losses", "random_rounds", "shifts", "steps", "updates", "varied", "whole_round"]

TURNS = list(zip(COSINES, SINES, strict=True))
RATES = ((1, -40), (41, -12), (77, -8), (1, 0), (1, 3), (13, 0), (175, 2), (255, 17))
CONV, POOL, AVERAGE, ADD = 0, 1, 2, 3
FACTS = 18  # of a layer
MOST_STEPS = 65536


@dataclass(frozen=True)
class Case:
    """A line for the driver, and the numbers that it must print."""

    question: str
    expected: list[int]


def said(command: str, *parts: int | Iterable[int]) -> str:
    """A command with all its numbers."""
    numbers = (n for part in parts for n in ([part] if isinstance(part, int) else part))
    return " ".join([command, *map(str, numbers)])


# --- networks ---------------------------------------------------------------------------------------------------------


def described(architecture: Architecture) -> list[int]:
    """The fields of every ``prowd_layer`` of a network."""
    found: list[int] = []
    places = {-1: 0}  # after how many layers of the core an output is there
    for number, layer in enumerate(architecture.layers):
        shape, given = architecture.received[number], architecture.given[number]
        first, *others = (len(found) // FACTS - places[source] for source in architecture.reads[number])
        if isinstance(layer, Flatten | Take):
            places[number] = places[architecture.reads[number][0]]
            continue
        if isinstance(layer, MaxPool | AvgPool):
            places_of_window = layer.kernel[0] * layer.kernel[1]
            kind, shift = (POOL, 0) if isinstance(layer, MaxPool) else (AVERAGE, places_of_window.bit_length() - 1)
            found += [kind, *shape, *given, *layer.kernel, *layer.stride, 0, 0, shift, 0, 1]
        elif isinstance(layer, Add):
            image = [*shape, 1, 1][:3]
            found += [ADD, *image, *image, 1, 1, 1, 1, 0, 0, 0, int(layer.relu), 1]
        else:
            scale = oracle.alpha_exponent(math.prod(layer.shape[1:])) + 1, int(layer.relu)
            if isinstance(layer, Conv):
                found += [CONV, *shape, *given, *layer.kernel, *layer.stride, *layer.padding, *scale, layer.groups]
            else:
                found += [CONV, *shape, 1, 1, *given, 1, 1, 1, 1, 1, 1, 0, 0, *scale, 1]
        found += [first, *(others or [0])]
        places[number] = len(found) // FACTS
    return found


def random_network(random: Random) -> Architecture:
    """Some layers of odd sizes: strides that leave pixels out, windows that overlap, padding as large as the kernel."""
    shape: Any = random.choice((1, 1, 2, 3, 5)), random.randint(1, 9), random.randint(1, 9)
    first, layers = shape, list[Conv | MaxPool]()
    for number in range(random.randint(0, 3)):
        if random.random() < 0.35:
            kernel = random.randint(1, min(3, shape[1])), random.randint(1, min(3, shape[2]))
            layers.append(MaxPool(kernel, (random.randint(1, 3), random.randint(1, 3))))
        else:
            kernel, stride = [(random.randint(1, 3), random.randint(1, 3)) for _ in range(2)]
            padding: Any = [random.randint(max(0, -(-(k - n) // 2)), k) for k, n in zip(kernel, shape[1:], strict=True)]
            outputs = random.choice((1, 2, 3, 4, 5, 9, 18))
            layers.append(Conv(f"c{number}", shape[0], outputs, kernel, stride, tuple(padding), random.random() < 0.7))
        shape = layers[-1].output(shape)
    inputs, classes = math.prod(shape), random.randint(1, 6)
    hidden = [Linear("h", inputs, 7)] if random.random() < 0.4 else []
    last = Linear("l", 7 if hidden else inputs, classes, relu=False)
    return Architecture((*layers, Flatten(), *hidden, last), first)


# --- rounds -----------------------------------------------------------------------------------------------------------


def whole_round(
    architecture: Architecture,
    work: oracle.Work,
    codes: list[list[int]],
    images: list[oracle.Image],
    labels: list[int],
) -> Case:
    """Logits of all images, gradients of the first step, the new codes and the loss."""
    layers, batch = architecture.layers, min(work.batch, len(images))
    exponent = work.logit_scale - (work.s - 1)
    keys = [oracle.stream_key(work.seed, name, work.round, work.client) for name in ("batches", "augment", "rounding")]
    operations = sum(1 << OPERATIONS.index(name) for name in work.operations)
    question = said(
        "round",
        work.s,
        len(described(architecture)) // FACTS,
        *(described(architecture), *codes),
        *(len(images), work.steps, batch, *work.rate, operations, 0, int(work.loss == "squared"), exponent),
        *(architecture.input_shape, *keys),
        *(code_table(work.s), *TURNS, *exponentials(exponent), oracle.flat(images), labels),
    )
    ternaries = [[oracle.ternary(q, work.s) for q in layer] for layer in codes]
    logits = [oracle.forward(layers, work.s, ternaries, coded(image, work.s)).logits for image in images]
    gradients = first_gradients(layers, work, ternaries, images, labels)
    new, loss = oracle.local_round(work, layers, codes, images, labels, TURNS)
    return Case(question, [*oracle.flat(logits), *oracle.flat(gradients), *oracle.flat(new), loss])


def first_gradients(
    layers: tuple[Any, ...], work: oracle.Work, ternaries: list[list[int]], images: list[Any], labels: list[int]
) -> list[list[int]]:
    """Gradients of a round's first batch."""
    where = work.round, work.client
    tapes, errors = [], []
    batch = oracle.batches(oracle.stream_key(work.seed, "batches", *where), len(images), work.batch, 1)[0]
    for n, row in enumerate(batch):
        words = oracle.philox((0, 0, n, 0), oracle.stream_key(work.seed, "augment", *where))
        turn = oracle.turned(TURNS, oracle.angle(words[3]))
        image = oracle.augment(images[row], work.operations, words, turn) if work.operations else images[row]
        tapes.append(oracle.forward(layers, work.s, ternaries, coded(image, work.s)))
        loss = (
            oracle.squared_error(tapes[-1].logits, labels[row], work.s)
            if work.loss == "squared"
            else oracle.cross_entropy(tapes[-1].logits, labels[row], work.s, work.logit_scale)
        )
        errors.append(loss[1])
    return oracle.backward(layers, work.s, ternaries, tapes, errors)


def coded(image: oracle.Image, s: int) -> oracle.Image:
    """The codes of an image of bytes."""
    return oracle.mapped(lambda u: oracle.image_code(u, s), image)  # type: ignore[no-any-return]


def code_table(s: int) -> list[int]:
    """The code of every byte."""
    return [oracle.image_code(u, s) for u in range(256)]


def exponentials(exponent: int) -> list[list[int]]:
    """Both tables of the softmax."""
    return [[oracle.exponential(d, exponent + up) for d in range(256)] for up in (0, 8)]


def random_images(random: Random, count: int, shape: tuple[int, int, int]) -> list[oracle.Image]:
    """Images of bytes."""
    return [[[[random.randrange(256) for _ in range(shape[2])] for _ in range(shape[1])] for _ in range(shape[0])]
            for _ in range(count)]  # fmt: skip


def random_codes(random: Random, architecture: Architecture, s: int) -> list[list[int]]:
    """Weights of any code of the width."""
    most = oracle.max_code(s)
    return [[random.randint(-most, most) for _ in range(math.prod(shape))] for shape in architecture.shapes.values()]


def random_round(random: Random, architecture: Architecture, s: int, batch: int, examples: int | None = None) -> Case:
    """A round of two or three steps on a network."""
    images = random_images(random, examples or random.randint(1, 5), architecture.input_shape)
    work = oracle.Work(
        seed=random.getrandbits(64), round=3, client=8, s=s, steps=random.randint(2, 3), batch=batch,
        rate=random.choice(RATES), logit_scale=random.choice((-1, 3, 6)),
        loss=random.choice(("cross-entropy", "cross-entropy", "squared")),
        operations=tuple(name for name in OPERATIONS if random.random() < 0.3),
    )  # fmt: skip
    labels = [random.randrange(architecture.classes) for _ in images]
    return whole_round(architecture, work, random_codes(random, architecture, s), images, labels)


def random_rounds(random: Random, count: int) -> Iterator[Case]:
    """Rounds of random networks, every width in turn."""
    for number in range(count):
        yield random_round(random, random_network(random), 2 + number % 15, random.randint(1, 6))


# --- parts ------------------------------------------------------------------------------------------------------------


def shifts(random: Random) -> Iterator[Case]:
    """Powers of two, what lies half way between two of them in ratio, and their neighbours."""
    roots = [math.isqrt(1 << (2 * b + 1)) for b in range(62)]
    near = {n + d for b in range(63) for n in (1 << b, *roots[b : b + 1]) for d in (-1, 0, 1)}
    for x in sorted(n for n in {*near, *(random.getrandbits(random.randint(1, 62)) for _ in range(50))} if n >= 0):
        yield Case(said("shift", x), [oracle.shift_exponent(x)])


def steps(random: Random, count: int) -> Iterator[Case]:
    """Products, places of the point and words at which a step is just rounded up, or just not."""
    for _ in range(count):
        product, down = random.getrandbits(random.randint(1, 62)), random.choice((0, random.randint(-30, 100)))
        rest = product % (1 << max(0, down))
        edge = (rest << oracle.RANDOM_BITS) >> max(0, down)  # the upper bits of a word decide
        chance = min(max(0, edge + random.randint(-1, 1)), 2**oracle.RANDOM_BITS - 1)
        word = random.choice((chance << 8 | random.randrange(256), 0, 2**32 - 1, random.getrandbits(32)))
        size = oracle.step_size(product, down, (1, 0), word)
        yield Case(said("step", product, down, word), [min(size, MOST_STEPS)])


def updates(random: Random, count: int) -> Iterator[Case]:
    """Updates of one layer, of small and of huge gradients."""
    for number in range(count):
        s, size, key = 2 + number % 15, random.choice((1, 3, 63, 64, 65, 130, 200)), random.getrandbits(64)
        bits = random.randint(1, 54)
        gradient = [random.choice((-1, 1)) * random.getrandbits(random.randint(1, bits)) for _ in range(size)]
        gradient = random.choice((gradient, gradient, gradient, [0] * size))
        codes = [random.randint(-oracle.max_code(s), oracle.max_code(s)) for _ in range(size)]
        rate, step, layer = random.choice(RATES), random.randrange(1000), random.randrange(9)
        halves = key % 2**32, key >> 32
        words = [oracle.word(halves, step, layer, index) for index in range(size)]
        expected = oracle.update(codes, gradient, rate, words, s)
        yield Case(said("update", s, *rate, halves, step, layer, size, gradient, codes), expected)


def losses(random: Random, count: int) -> Iterator[Case]:
    """Cross-entropies of one image, of few and many classes, near and far from certain."""
    for _ in range(count):
        s, classes = random.randint(2, 16), random.choice((1, 2, 3, 4, 7, 40))
        scale = random.choice((random.randint(-10, 16), random.randint(-83, -76) + s))  # usual; a loss shifted out
        spread = random.randint(0, oracle.max_code(s))
        logits = [random.randint(-spread, spread) for _ in range(classes)]
        label = random.randrange(classes)
        loss, errors = oracle.cross_entropy(logits, label, s, scale)
        exponent = scale - (s - 1)
        yield Case(said("loss", exponent, classes, *exponentials(exponent), logits, label), [loss, *errors])


def varied(random: Random, count: int) -> Iterator[Case]:
    """Images that are moved, mirrored and turned; a quarter of them are of sensors, with a sign."""
    for _ in range(count):
        shape = random.randint(1, 3), random.randint(1, 26), random.randint(1, 26)
        operations, signed = [name for name in OPERATIONS if random.random() < 0.6], random.random() < 0.25
        (image,) = random_images(random, 1, shape)
        key, step, number = (random.getrandbits(32), random.getrandbits(32)), random.randrange(99), random.randrange(99)
        words = oracle.philox((step, 0, number, 0), key)
        seen = oracle.mapped(lambda u: u - 256 if u > 127 else u, image) if signed else image
        given = oracle.augment(seen, operations, words, oracle.turned(TURNS, oracle.angle(words[3])))
        asked = sum(1 << OPERATIONS.index(name) for name in operations)
        question = said("vary", *shape, asked, int(signed), *TURNS, *key, step, number, oracle.flat(image))
        yield Case(question, [n % 256 for n in oracle.flat(given)])
