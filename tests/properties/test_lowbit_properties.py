"""The simulated kernel and the update rule give exactly the integers of the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prowd.nets.architecture import Architecture, Conv, Flatten, Linear, MaxPool
from prowd.nets.lowbit import exact, simulated
from prowd.nets.lowbit.update import Draws, step
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Rate, ternary
from prowd.numbers.streams import Stream
from tests.reference import integer_oracle as oracle
from tests.reference.integer_oracle import Ints
from tests.reference.networks import FILLS, Case, cases, fill, graphs

FLOAT32_EXACT = 2**24
rates = st.builds(Rate, st.integers(0, 127).map(lambda half: 2 * half + 1), st.integers(-12, 12))
seeds = st.integers(0, 2**32 - 1)


def to_ints(tensor: Tensor) -> Ints:
    """The integers a float tensor holds; fails if it holds anything else."""
    whole = tensor.to(torch.int64)
    assert torch.equal(whole.to(torch.float64), tensor.to(torch.float64)), "not integers"
    return np.asarray(whole.numpy(), np.int64)


def assert_same(tensor: Tensor, expected: Ints) -> None:
    np.testing.assert_array_equal(to_ints(tensor), expected, strict=True)


def simulate(net: Architecture, s: int, weights: list[Ints], x: Ints) -> simulated.Tape:
    width = Bitwidth(s)
    ternaries = [ternary(torch.from_numpy(codes).to(torch.float32), width) for codes in weights]
    return simulated.forward(net, width, ternaries, torch.from_numpy(x).to(torch.float32))


def check(case: Case) -> tuple[list[Tensor], list[Ints]]:
    """Compare logits and gradients; return the gradients of both."""
    tape, expected = (run(case.architecture, case.s, case.weights, case.x) for run in (simulate, oracle.forward))
    assert isinstance(tape, simulated.Tape)
    assert isinstance(expected, oracle.Tape)
    assert_same(tape.logits, expected.logits)
    gradients = simulated.gradients(tape, torch.from_numpy(case.error).to(torch.float64))
    expected_gradients = oracle.backward(expected, case.error)
    assert len(gradients) == len(expected_gradients)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        assert_same(gradient, expected_gradient)
    return gradients, expected_gradients


@settings(max_examples=120, deadline=None)
@given(cases())
def test_forward_and_gradients_are_the_oracle_s(case: Case) -> None:
    check(case)


@settings(max_examples=200, deadline=None)
@given(cases(nets=graphs()))
def test_forward_and_gradients_of_graphs_are_the_oracle_s(case: Case) -> None:
    check(case)


@settings(max_examples=40, deadline=None)
@given(st.one_of(cases(), cases(nets=graphs())), rates, seeds)
def test_three_steps_are_the_oracle_s(case: Case, rate: Rate, seed: int) -> None:
    """Forward, squared error, gradients and update, three times over, each side going on from its own codes."""
    width, weights = Bitwidth(case.s), case.weights
    held = [torch.from_numpy(codes).to(torch.int16) for codes in weights]
    targets = fill("random", case.error.shape, case.s, np.random.default_rng(seed))
    for number in range(3):
        expected = oracle.forward(case.architecture, case.s, weights, case.x)
        gradients = oracle.backward(expected, expected.logits - targets)
        eta = rate.mantissa, rate.exponent
        weights = [
            oracle.update(codes, g, eta, oracle.words(seed, number, layer, g.size), case.s)
            for layer, (codes, g) in enumerate(zip(weights, gradients, strict=True))
        ]

        ternaries = [ternary(codes.to(torch.float32), width) for codes in held]
        tape = simulated.forward(case.architecture, width, ternaries, torch.from_numpy(case.x).to(torch.float32))
        found = simulated.gradients(tape, tape.logits - torch.from_numpy(targets).to(torch.float32))
        draws = Draws(Stream.of(seed, "test"), number)
        held = [
            step(codes, g, rate, width, draws.words(layer, codes))
            for layer, (codes, g) in enumerate(zip(held, found, strict=True))
        ]
        for codes, expected_codes in zip(held, weights, strict=True):
            assert_same(codes, expected_codes)


# --- where float32 is not enough -------------------------------------------------------------------------------------


def sum_in_float32(products: Ints) -> float:
    """Add up one after the other in float32."""
    total = np.float32(0)
    for term in products.astype(np.float32):
        total += term
    return float(total)


@pytest.mark.parametrize("fan_in", [511, 512, 513, 1500])
@pytest.mark.parametrize("kind", FILLS)
@pytest.mark.parametrize("s", [8, 12, 16])
def test_large_fan_in(s: int, kind: str, fan_in: int) -> None:
    """Sums of magnitudes on both sides of 2^24 (512 codes of 16 bits)."""
    random = np.random.default_rng(fan_in)
    net = Architecture((Flatten(), Linear("a", fan_in, 3), Linear("b", 3, fan_in, relu=False)), (1, 1, fan_in))
    weights = [fill(kind, shape, s, random) for shape in net.shapes.values()]
    x, error = fill("extreme", (2, 1, 1, fan_in), s, random), fill("extreme", (2, fan_in), s, random)
    check(Case(net, s, weights, x, error))


def cancelling(rows: int, columns: int, random: np.random.Generator) -> Ints:
    """Int16 codes whose rows rise to a sum far above 2^24 and come back to about 0."""
    rising = random.integers(30_000, 2**15, (rows, columns // 2))
    return np.concatenate([rising, -random.permuted(rising, axis=1)], axis=1)


def mostly_ones(rows: int, columns: int, random: np.random.Generator) -> Ints:
    """Int16 codes whose ternary form is 1 but for a few zeros."""
    return np.where(random.integers(0, 100, (rows, columns)) == 0, 0, oracle.max_code(16))


@pytest.mark.parametrize("fan_in", [2048, 4096])
def test_forward_where_float32_gives_other_codes(fan_in: int) -> None:
    """s = 16: the results fit float32, but the sums on the way to them do not."""
    s, batch, classes = 16, 24, 24
    random = np.random.default_rng(fan_in)
    net = Architecture((Flatten(), Linear("a", fan_in, classes, relu=False)), (1, 1, fan_in))
    x, weights = cancelling(batch, fan_in, random), mostly_ones(classes, fan_in, random)
    case = Case(net, s, [weights], x.reshape(batch, 1, 1, fan_in), fill("random", (batch, classes), s, random))
    check(case)

    logits = oracle.forward(net, s, [weights], case.x).logits
    assert np.abs(logits).max() < oracle.max_code(s)
    products = oracle.ternary(weights, s) * x[0]
    in_float32 = [round(sum_in_float32(row) / (2 * net.alphas[0])) for row in products]
    assert in_float32 != logits[0].tolist()


@pytest.mark.parametrize("outputs", [2048, 4096])
def test_backward_where_float32_gives_other_codes(outputs: int) -> None:
    """The same on the way back: errors of many outputs that cancel at each input."""
    s, batch, hidden = 16, 24, 24
    random = np.random.default_rng(outputs)
    net = Architecture(
        (Flatten(), Linear("a", 2, hidden, relu=False), Linear("b", hidden, outputs, relu=False)), (1, 1, 2)
    )
    weights = [fill("random", (hidden, 2), s, random), mostly_ones(outputs, hidden, random)]
    x, error = np.ones((batch, 1, 1, 2), np.int64), cancelling(batch, outputs, random)
    check(Case(net, s, weights, x, error))

    products = (oracle.ternary(weights[1], s) * error[0][:, None]).T
    below = [sum_in_float32(row) for row in products]
    assert below != products.sum(1).tolist()


@pytest.mark.parametrize("batch", [1040, 1041, 2083])
def test_weight_gradient_of_a_large_batch(batch: int) -> None:
    """s = 8, all codes 127: 1,041 products 127² pass 2^24, and their sum is odd."""
    net = Architecture((Flatten(), Linear("a", 2, 3, relu=False)), (1, 1, 2))
    case = Case(net, 8, [np.zeros((3, 2), np.int64)], np.full((batch, 1, 1, 2), 127), np.full((batch, 3), 127))
    _, (gradient,) = check(case)
    assert np.all(gradient == 127 * 127 * batch)
    in_float32 = sum_in_float32(np.full(batch, 127 * 127))
    assert (in_float32 == gradient[0, 0]) == (127 * 127 * batch <= FLOAT32_EXACT)


@pytest.mark.parametrize("s", range(9, 17))
def test_weight_gradient_of_wide_codes(s: int) -> None:
    """A few products of wide codes already need more than 24 bits."""
    random = np.random.default_rng(s)
    net = Architecture((Flatten(), Linear("a", 4, 8, relu=False)), (1, 1, 4))
    case = Case(
        net, s, [np.zeros((8, 4), np.int64)], fill("random", (5, 1, 1, 4), s, random), fill("random", (5, 8), s, random)
    )
    _, (gradient,) = check(case)
    e, a = oracle.quantize_error(case.error, s), case.x.reshape(5, 4)
    in_float32 = [[sum_in_float32(e[:, o] * a[:, i]) for i in range(4)] for o in range(8)]
    assert (in_float32 == gradient.tolist()) == (s <= 12)


@pytest.mark.parametrize("room", [1, 2 * 4 * 12, 2**17])  # windows of one image, of two, of all at once
@pytest.mark.parametrize("s", [10, 16])
def test_weight_gradient_of_wide_codes_some_images_at_once(s: int, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "ROOM", room)
    random = np.random.default_rng(s)
    conv = Conv("a", 2, 3, (3, 2), stride=(2, 3), padding=(1, 0), relu=False)
    net = Architecture((conv, Flatten(), Linear("b", 12, 2, relu=False)), (2, 4, 6))
    weights = [fill("random", (3, 2, 3, 2), s, random), fill("random", (2, 12), s, random)]
    _, gradients = check(
        Case(net, s, weights, fill("random", (5, 2, 4, 6), s, random), fill("random", (5, 2), s, random))
    )
    assert (np.abs(gradients[0]).max() > 2**24) == (s == 16)


def test_errors_add_up_under_overlapping_pools() -> None:
    """s = 16: each of three windows brings an error below 2^24 to the pixel that wins them all; their sum is above.

    It is one more than a rounding tie, so the float32 nearest to it rounds to another code.
    """
    s, logits = 16, 511
    conv = Conv("a", 1, 1, (1, 1), padding=(0, 0), relu=False)
    layers = (conv, MaxPool((3, 3), (1, 1)), Flatten(), Linear("b", 3, logits, relu=False))
    net = Architecture(layers, (1, 3, 5))
    total = 2**24 - 2**15
    while 3 * total % 4096 != 1025:
        total -= 1
    error = np.full((1, logits), total // logits)
    error[0, : total % logits] += 1
    assert oracle.quantize_error(error, s).tolist() == error.tolist()
    assert 2**25.5 < 3 * total < 2**26
    assert int(np.float32(3 * total)) == 3 * total - 1
    x = np.ones((1, 1, 3, 5), np.int64)
    x[0, 0, 1, 2] = 2
    weights = [np.full((1, 1, 1, 1), 2**15 - 1), np.full((logits, 3), 2**15 - 1)]
    _, gradients = check(Case(net, s, weights, x, error))
    assert gradients[0].item() == 2 * ((3 * total - 1025) // 2048 + 1)


# --- where a convolution is not a sum of products --------------------------------------------------------------------


@contextmanager
def without_onednn() -> Iterator[None]:
    """As on builds of torch that have no oneDNN, which leave large batches to NNPACK and its Winograd convolutions."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def test_winograd_convolutions_are_not_used() -> None:
    random = np.random.default_rng(9)
    layers = (Conv("a", 8, 8), Conv("b", 8, 8), Flatten(), Linear("l", 8 * 36, 3, relu=False))
    net = Architecture(layers, (8, 6, 6))
    weights = [fill("random", shape, 8, random) for shape in net.shapes.values()]
    case = Case(net, 8, weights, fill("random", (16, 8, 6, 6), 8, random), fill("random", (16, 3), 8, random))
    check(case)
    with without_onednn():
        check(case)
