"""The int8 kernel gives exactly the integers of the oracle, in every instruction set of this CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prowd.nets.architecture import Architecture, Conv, Flatten, Layer, Linear, MaxPool, Shape
from prowd.nets.lowbit import update
from prowd.nets.lowbit.stages import plan
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Rate
from tests.kernels import missing
from tests.reference import integer_oracle as oracle
from tests.reference.integer_oracle import Ints
from tests.reference.networks import Case, fill, plain_architectures, plain_cases

if reason := missing():
    pytest.skip(reason, allow_module_level=True)

from prowd.nets.lowbit import _native, int8
from prowd.nets.lowbit.int8 import CHUNK, Int8Kernel

Additions = Sequence[Tensor | None]
SETS = [name for name, _, _ in _native.kernels()]
FLAT = (Conv("a", 3, 20, (3, 3), (1, 1), (1, 1)), MaxPool(), Conv("b", 20, 7, (3, 2), (2, 1), (1, 0), relu=False))
NET = Architecture((*FLAT, Flatten(), Linear("c", 28, 33), Linear("d", 33, 5, relu=False)), (3, 8, 7))
POOLS = (MaxPool((2, 2), (3, 2)), MaxPool((2, 2), (2, 3)), MaxPool((1, 2), (1, 2)), MaxPool((2, 1), (2, 2)))
seeds = st.integers(0, 2**32 - 1)
cases = st.tuples(plain_architectures(), st.integers(2, 8)).flatmap(lambda both: plain_cases(*both))
rates = st.one_of(
    st.builds(Rate, st.just(1), st.integers(-30, 30)),
    st.builds(Rate, st.integers(0, 127).map(lambda half: 2 * half + 1), st.integers(-12, 12)),
    st.just(Rate.nearest(5.3)),
)


def images_of(codes: Ints, s: int) -> Tensor:
    return torch.from_numpy(codes).float() / (1 << (s - 1))


def errors_of(error: Ints) -> Tensor:
    return torch.from_numpy(error).double()


def as_codes(weights: Sequence[Ints]) -> list[Tensor]:
    return [torch.from_numpy(codes).to(torch.int16) for codes in weights]


def as_ints(tensor: Tensor) -> Ints:
    whole = tensor.to(torch.int64)
    assert torch.equal(whole.double(), tensor.double()), "not integers"
    return np.asarray(whole.numpy())


def assert_same(tensor: Tensor, expected: Ints, where: str) -> None:
    np.testing.assert_array_equal(as_ints(tensor), expected, where, strict=True)


def assert_all_same(tensors: Sequence[Tensor], expected: Sequence[Ints], where: str) -> None:
    for tensor, integers in zip(tensors, expected, strict=True):
        assert_same(tensor, integers, where)


def kernels(case: Case) -> list[Int8Kernel]:
    """One for each instruction set."""
    return [Int8Kernel(case.architecture, Bitwidth(case.s), as_codes(case.weights), name) for name in SETS]


def expect(case: Case) -> tuple[Ints, list[Ints]]:
    """Logits and gradients of the oracle."""
    tape = oracle.forward(case.architecture, case.s, case.weights, case.x)
    return tape.logits, oracle.backward(tape, case.error)


def check(case: Case) -> list[Ints]:
    """Compare logits and gradients; return the gradients."""
    logits, gradients = expect(case)
    for kernel in kernels(case):
        assert_same(kernel.forward(images_of(case.x, case.s), record=False), logits, kernel.name)
        assert_same(kernel.forward(images_of(case.x, case.s)), logits, kernel.name)
        assert_all_same(kernel.gradients(errors_of(case.error)), gradients, kernel.name)
    return gradients


def random_case(net: Architecture, s: int, batch: int) -> Case:
    random = np.random.default_rng(batch)
    weights = [fill("random", shape, s, random) for shape in net.shapes.values()]
    x = fill("random", (batch, *net.input_shape), s, random)
    return Case(net, s, weights, x, fill("random", (batch, net.classes), s, random))


def all_largest(image: tuple[int, int], batch: int, relu: bool, errors: Sequence[tuple[int, int]] = ((1, 0),)) -> Case:
    """Layer b receives 2 · 127 / 2 everywhere and gives zeros, which let every error of c pass: those of its first
    logit all over, those of its second at one place. The images take turns with the errors."""
    a, b = (Conv(name, 2, 2, (1, 1), padding=(0, 0), relu=after) for name, after in (("a", relu), ("b", False)))
    pixels = 2 * image[0] * image[1]
    net = Architecture((a, b, Flatten(), Linear("c", pixels, 2, relu=False)), (2, *image))
    weights = [np.full((2, 2, 1, 1), 127), np.zeros((2, 2, 1, 1), np.int64), np.full((2, pixels), 127)]
    weights[2][1, 1:] = 0
    return Case(net, 8, weights, np.full((batch, 2, *image), 127), np.resize(errors, (batch, 2)))


def stepped(case: Case, gradients: list[Ints], rate: Rate, seed: int, additions: Additions) -> list[Ints]:
    """The weights after an update with these gradients."""
    width, random = Bitwidth(case.s), torch.Generator().manual_seed(seed)
    layers = zip(as_codes(case.weights), gradients, additions, strict=True)
    return [as_ints(update.step(codes, errors_of(g), rate, width, random, extra)) for codes, g, extra in layers]


def learn(kernel: Int8Kernel, case: Case, rate: Rate, seed: int, additions: Additions) -> list[Tensor]:
    kernel.forward(images_of(case.x, case.s))
    kernel.learn(errors_of(case.error), rate, torch.Generator().manual_seed(seed), additions)
    return kernel.codes


@settings(max_examples=300, deadline=None)
@given(cases)
def test_logits_and_gradients_are_the_oracle_s(case: Case) -> None:
    check(case)


@settings(max_examples=150, deadline=None)
@given(cases, rates, seeds)
def test_updates_are_the_oracle_s(case: Case, rate: Rate, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    expected: list[Ints] = []
    for codes, g in zip(case.weights, expect(case)[1], strict=True):
        r = as_ints(torch.rand(g.shape, generator=random, dtype=torch.float32) * 2**oracle.RANDOM_BITS)
        expected.append(oracle.update(codes, g, rate.mantissa, rate.exponent, r=r, s=case.s))
    for kernel in kernels(case):
        assert_all_same(learn(kernel, case, rate, seed, [None] * len(expected)), expected, kernel.name)
        assert {codes.dtype for codes in kernel.codes} == {torch.int16}


@settings(max_examples=120, deadline=None)
@given(st.data(), plain_architectures(side=6, channels=20), st.integers(2, 8), rates, seeds)
def test_steps_leave_nothing_behind(data: st.DataObject, net: Architecture, s: int, rate: Rate, seed: int) -> None:
    """Batches of different sizes one after the other, looked at in between, some layers with additions."""
    case = data.draw(plain_cases(net, s))
    used, random = kernels(case), torch.Generator().manual_seed(seed)
    for number in range(3):
        case, other = (replace(data.draw(plain_cases(net, s)), weights=case.weights) for _ in range(2))
        pulled = data.draw(st.lists(st.booleans(), min_size=len(case.weights), max_size=len(case.weights)))
        shapes = zip(net.shapes.values(), pulled, strict=True)
        additions = [torch.randn(shape, generator=random) if pull else None for shape, pull in shapes]
        looked_at, weights = expect(other)[0], stepped(case, expect(case)[1], rate, seed + number, additions)
        for kernel in used:
            assert_same(kernel.forward(images_of(other.x, s), record=False), looked_at, kernel.name)
            assert_all_same(learn(kernel, case, rate, seed + number, additions), weights, kernel.name)
        case = replace(case, weights=weights)


@st.composite
def paired_cases(draw: st.DrawFn) -> Case:
    """One or two layers that look at three columns of what a ReLU gave, most of them with an even number of columns;
    small images come in numbers."""
    channels, relus = st.sampled_from((1, 5, 16, 17, 32, 40, 48)), st.booleans()
    rows, columns = draw(st.integers(1, 9)), 2 * draw(st.integers(1, 8)) + draw(st.sampled_from((0, 0, 0, 1)))
    shape: Shape = (2, rows, columns)
    layers: list[Layer] = [Conv("first", 2, draw(channels), (2, 3), padding=(1, 1))]
    shape = layers[0].output(shape)
    for number in range(draw(st.integers(1, 2))):
        high, right = draw(st.integers(1, min(4, shape[1]))), draw(st.integers(0 if shape[2] > 2 else 1, 2))
        padding = draw(st.integers(0, min(2, high - 1))), right
        conv = Conv(f"wide{number}", shape[0], draw(channels), (high, 3), padding=padding, relu=draw(relus))
        for layer in (conv, draw(st.sampled_from((None, *2 * (MaxPool(),), *POOLS)))):
            if layer and (layer is conv or all(side > 1 for side in shape[1:])):
                layers.append(layer)
                shape = layer.output(shape)
    net = Architecture((*layers, Flatten(), Linear("logits", int(np.prod(shape)), 9, relu=False)), (2, rows, columns))
    s, batch = draw(st.integers(2, 8)), draw(st.integers(1, max(2, min(40, 160 // (rows * columns)))))
    random, kinds = np.random.default_rng(draw(seeds)), st.sampled_from(("random", "random", "extreme", "coarse"))
    weights = [fill(draw(kinds), shape, s, random) for shape in net.shapes.values()]
    x = fill(draw(kinds), (batch, *net.input_shape), s, random)
    return Case(net, s, weights, x, fill("random", (batch, 9), s, random))


@settings(max_examples=100, deadline=None)
@given(paired_cases())
def test_pairs_of_columns_are_the_oracle_s(case: Case) -> None:
    assert plan(case.architecture)[1].paired == (case.x.shape[3] % 2 == 0)
    check(case)


def test_only_a_pass_that_something_follows_pools_by_itself() -> None:
    layers = Conv("a", 3, 8), Conv("b", 8, 8), MaxPool(), Flatten(), Linear("c", 32, 5, relu=False)
    case = random_case(Architecture(layers, (3, 4, 4)), 8, 3)
    for kernel in kernels(case):
        for record, calls in ((False, 0), (True, 1)):
            with patch.object(_native, "pool", wraps=_native.pool) as pool:
                assert_same(kernel.forward(images_of(case.x, 8), record=record), expect(case)[0], kernel.name)
            assert pool.call_count == calls


@pytest.mark.parametrize("count", [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_logits_of_many_images_are_those_of_a_batch(count: int) -> None:
    case = random_case(NET, 8, count)
    logits, _ = expect(case)
    assert len(np.unique(logits)) > 20
    for kernel in kernels(case):
        assert_same(kernel.forward(images_of(case.x[:3], 8), record=False), logits[:3], kernel.name)
        assert_same(kernel.forward(images_of(case.x, 8), record=False), logits, kernel.name)
        assert_same(kernel.forward(images_of(case.x, 8)), logits, kernel.name)


@pytest.mark.parametrize("s", range(2, 9))
def test_images_round_half_to_even_and_are_clipped(s: int) -> None:
    """The gradient of one weight is a pixel's code times an error's."""
    S = 2 ** (s - 1)
    ties = [(k + 0.5) / S for k in range(-S - 2, S + 2)]
    pixels = [*ties, *(np.nextafter(np.float32(tie), np.float32(at)) for tie in ties for at in (-9, 9)), -1, 1, 3e8, -2]
    images = torch.tensor(pixels, dtype=torch.float32).reshape(1, 1, 1, -1)
    codes = [max(1 - S, min(S - 1, round(pixel * S))) for pixel in images.flatten().tolist()]
    assert len(set(codes)) == 2 * S - 1
    net = Architecture((Flatten(), Linear("a", len(codes), 1, relu=False)), (1, 1, len(codes)))
    case = Case(net, s, [np.zeros((1, len(codes)), np.int64)], np.array([[[codes]]]), np.array([[1]]))
    check(case)
    for kernel in kernels(case):
        kernel.forward(images)
        (found,) = kernel.gradients(torch.ones(1, 1))
        assert_same(found, np.array([codes]) * (S - 1), kernel.name)


# --- where fewer bits are not enough ---------------------------------------------------------------------------------


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


@settings(max_examples=60, deadline=None)
@given(cases, rates, seeds)
def test_sums_in_chunks_are_the_whole_sums(case: Case, rate: Rate, seed: int) -> None:
    """As if int32 held four images of the layer with most positions, and no more."""
    (stages, *_) = [kernel.stages for kernel in kernels(case)]
    most = max(int(np.prod(stage.positions)) for stage in stages)
    with patch.object(int8, "INT32", 4 * most * oracle.max_code(case.s) ** 2):
        no_additions = [None] * len(case.weights)
        expected = stepped(case, check(case), rate, seed, no_additions)
        for kernel in kernels(case):
            assert_all_same(learn(kernel, case, rate, seed, no_additions), expected, kernel.name)


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
        kernel.forward(images_of(case.x, 8))
        assert_all_same(kernel.gradients(errors_of(case.error)), gradients, kernel.name)
        assert_all_same(learn(kernel, case, Rate(1, 3), 7, [None] * 3), expected, kernel.name)
