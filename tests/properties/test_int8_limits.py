"""The int8 kernel where fewer bits are not enough: the largest codes, sums and gradients that it must hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from prowd.nets.architecture import Architecture, Conv, Flatten, Linear
from prowd.numbers.quantize import Rate
from tests.kernels import as_bytes, missing
from tests.reference import integer_oracle as oracle
from tests.reference.networks import Case, fill

if reason := missing():
    pytest.skip(reason, allow_module_level=True)

from tests.reference.int8 import assert_all_same, check, errors_of, kernels, learn, stepped


def all_largest(image: tuple[int, int], batch: int, relu: bool, errors: Sequence[tuple[int, int]] = ((1, 0),)) -> Case:
    """Layer b receives 2 · 127 / 2 everywhere and gives zeros, which let every error of c pass: those of its first
    logit all over, those of its second at one place. The images take turns with the errors."""
    a, b = (Conv(name, 2, 2, (1, 1), padding=(0, 0), relu=after) for name, after in (("a", relu), ("b", False)))
    pixels = 2 * image[0] * image[1]
    net = Architecture((a, b, Flatten(), Linear("c", pixels, 2, relu=False)), (2, *image))
    weights = [np.full((2, 2, 1, 1), 127), np.zeros((2, 2, 1, 1), np.int64), np.full((2, pixels), 127)]
    weights[2][1, 1:] = 0
    return Case(net, 8, weights, np.full((batch, 2, *image), 127), np.resize(errors, (batch, 2)))


@pytest.mark.parametrize("kind", ["largest", "smallest", "extreme", "random"])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("fan", [256, 260, 512, 520, 1100])
@pytest.mark.parametrize("s", [3, 8])
def test_sums_of_many_large_codes(s: int, fan: int, relu: bool, kind: str) -> None:
    """Pairs of products summed in 16 bits: 64 pairs of bytes up to 255 fill them, or 129 of codes up to 127."""
    top, random = oracle.max_code(s), np.random.default_rng(fan)
    wide = (Linear("a", 2, fan, relu=relu), Linear("b", fan, 40, relu=False), Linear("c", 40, fan, relu=False))
    net = Architecture((Flatten(), *wide), (1, 1, 2))
    weights = [np.full((fan, 2), top), fill(kind, (40, fan), s, random), fill(kind, (fan, 40), s, random)]
    few = np.triu(np.ones((fan, 40), np.int64), fan - 40)  # column by column, more and more
    for second, third in ((weights[1], weights[2]), (0 * weights[1], top * few[::-1]), (0 * weights[1], weights[2])):
        x, error = np.full((5, 1, 1, 2), top), fill("largest", (5, fan), s, random)
        check(Case(net, s, [weights[0], second, third], x, error))


COLUMNS = [(127,), (0, 0, 127, 127), (127, 127, 0, 0), (127, 0), (0, 127), (0, 127, 127, 0)]


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("channels", [16, 32, 64, 128])
def test_pairs_of_largest_codes(channels: int, columns: tuple[int, ...]) -> None:
    """16 bits hold 21 pairs of products of sums of three weights and 254, or 64 of one weight, and not one more."""
    layers = Conv("a", 2, channels, (1, 1), padding=(0, 0)), Conv("b", channels, 6, padding=(0, 0), relu=False)
    net = Architecture((*layers, Flatten(), Linear("c", 48, 48, relu=False)), (2, 3, 10))
    windows = np.array([(1, 1, 1), (1, -1, 1), (1, 0, -1), (-1, -1, -1), (-1, 1, -1), (-1, 0, 1)])
    second = 127 * np.broadcast_to(windows[:, None, None], (6, channels, 3, 3))
    weights = [np.full((channels, 2, 1, 1), 127), second.copy(), 127 * np.eye(48, dtype=np.int64)]
    x = np.broadcast_to(np.resize(columns, 10), (3, 2, 3, 10)).copy()
    check(Case(net, 8, weights, x, fill("random", (3, 48), 8, np.random.default_rng(1))))


Errors = list[tuple[int, int]]
LARGEST: list[tuple[Errors, list[int]]] = [([(1, 0)], [127]), ([(86, 127)], [43]), ([(66, 127), (64, 127)], [33, 32])]


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize(("errors", "codes"), LARGEST)
@pytest.mark.parametrize(("side", "batch"), [(1, 1), (3, 5), (9, 4), (17, 9), (600, 2)])
def test_gradients_of_largest_codes(side: int, batch: int, relu: bool, errors: Errors, codes: list[int]) -> None:
    """s = 8, all activations 127. 16 bits hold one pair of errors of 127, three pairs of 43 (258 · 127 = 2^15 − 2) or
    three of 33 and 32, and not one more."""
    _, gradient, _ = check(all_largest((2, side), batch, relu, errors))
    assert np.all(gradient[1] == 127 * 2 * side * np.resize(codes, batch).sum())


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize(("side", "batch"), [(64, 32), (64, 33), (182, 5)])
def test_a_gradient_beyond_int32(side: int, batch: int, relu: bool) -> None:
    """s = 8, all codes 127: 32 images of 64 · 64 positions stay below 2^31, and 33 do not; or 4 and 5 of 182 · 182."""
    case = all_largest((side, side), batch, relu)
    size = 127 * 127 * side * side * batch
    assert (size < 2**31) == (batch in (4, 32))
    gradients = [0 * case.weights[0], np.full((2, 2, 1, 1), size), 0 * case.weights[2]]
    expected = stepped(case, gradients, Rate(1, 3), 7, [None] * 3)
    for kernel in kernels(case):
        kernel.forward(as_bytes(case.x, 8))
        assert_all_same(kernel.gradients(errors_of(case.error)), gradients, kernel.name)
        assert_all_same(learn(kernel, case, Rate(1, 3), 7, [None] * 3), expected, kernel.name)
