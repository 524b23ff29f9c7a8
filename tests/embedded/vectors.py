"""The vector kernels without Python: a program of its own, on this CPU and on Arm's, asked what the oracle knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from prowd.nets.architecture import Architecture, Conv, Flatten, Linear, MaxPool
from prowd.nets.lowbit.stages import Stage, plan
from tests.embedded.cases import Case, code_table, said
from tests.embedded.driver import CORE
from tests.reference import integer_client as client
from tests.reference import integer_oracle as oracle
from tests.reference.networks import fill

__all__ = ["FLAGS", "cases"]

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "src/prowd/nets/lowbit/native"
FLAGS = (
    "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", f"-I{CORE}",
    *map(str, sorted(NATIVE.glob("*.c"))), str(Path(__file__).with_name("vectors.c")),
)  # fmt: skip
SEED = 7


def cases() -> list[Case]:
    """Networks with all that the kernels tell apart, at several widths and with batches that four does not divide."""
    small, usual = (2, 2), (1, 1)
    watch = (Conv("a", 3, 16), Conv("b", 16, 24), MaxPool(), Conv("c", 24, 40, relu=False), Flatten())
    odd = (
        Conv("a", 5, 20, (2, 3), small, (0, 2)), MaxPool((1, 3), (2, 3)), Conv("b", 20, 7, (3, 2), usual, (1, 0)),
        Flatten(),
    )  # fmt: skip
    pooled = (Conv("a", 1, 33), MaxPool(), Conv("b", 33, 16, (1, 3), usual, (0, 1)), Conv("c", 16, 50), Flatten())
    return [
        steps(Architecture((*watch, Linear("l", 480, 9, relu=False)), (3, 8, 6)), 8, (6, 3)),
        steps(Architecture((*watch, Linear("l", 480, 9, relu=False)), (3, 8, 6)), 3, (4,), "extreme"),
        steps(Architecture((*odd, Linear("h", 21, 70), Linear("l", 70, 5, relu=False)), (5, 11, 12)), 5, (5, 2)),
        steps(Architecture((*pooled, Linear("l", 600, 4, relu=False)), (1, 6, 8)), 8, (9,), "extreme"),
        steps(Architecture((*pooled, Linear("l", 600, 4, relu=False)), (1, 6, 8)), 2, (2, 1)),
        # more products than 16 bits hold, at the largest codes
        steps(Architecture((Flatten(), Linear("l", 1600, 6, relu=False)), (1600, 1, 1)), 8, (3,), "largest"),
        steps(Architecture((Conv("a", 1, 90), Conv("b", 90, 40), Flatten(), Linear("l", 640, 3, relu=False)),
                           (1, 4, 4)), 8, (4,), "largest"),
    ]  # fmt: skip


def steps(architecture: Architecture, s: int, batches: Sequence[int], kind: str = "random") -> Case:
    """A step for each batch: logits, gradients and new codes."""
    random = np.random.default_rng(SEED)
    weights = [fill(kind, shape, s, random) for shape in architecture.shapes.values()]
    stages, rate, table = plan(architecture), (41, -3), code_table(s)
    shown, expected = list[int](), list[int]()
    given = [int(code) for layer in weights for code in layer.ravel()]
    for number, batch in enumerate(batches):
        images = random.integers(255 if kind == "largest" else 0, 256, (batch, *architecture.input_shape))
        error = fill("random", (batch, architecture.classes), 8 * number + s, random)
        tape = oracle.forward(architecture, s, weights, np.array(table)[images])
        gradients = oracle.backward(tape, error)
        weights = [
            oracle.update(codes, gradient, rate, oracle.words(SEED, number, layer, codes.size), s)
            for layer, (codes, gradient) in enumerate(zip(weights, gradients, strict=True))
        ]
        shown += [batch, *images.ravel().tolist(), *error.ravel().tolist()]
        expected += [*2 * tape.logits.ravel().tolist(), *flat(gradients), *flat(weights)]
    question = said(
        str(len(stages)), s, max(batches), *map(facts, stages), given, rate, client.stream_key(SEED, "test"), table,
        len(batches), shown,
    )  # fmt: skip
    return Case(question, expected)


def flat(arrays: Iterable[oracle.Ints]) -> list[int]:
    """All numbers of all arrays."""
    return [int(number) for array in arrays for number in array.ravel()]


def facts(stage: Stage) -> list[int]:
    """What ``read_layer`` of vectors.c reads."""
    pairs = (stage.image, stage.kernel, stage.stride, stage.padding, stage.pool)
    kind = (stage.shift, stage.flat, stage.relu, stage.signed, stage.first)
    return [stage.inputs, stage.outputs, *(side for pair in pairs for side in pair), *map(int, kind)]
