"""The oracles themselves: hand-computed examples, the printed formulas in exact fractions, and each other."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prowd.nets.architecture import Architecture, Conv, Flatten, Linear, MaxPool
from tests.reference import integer_client as client
from tests.reference import integer_oracle as oracle
from tests.reference import value_reference as reference
from tests.reference.integer_oracle import Ints
from tests.reference.networks import Case, cases, graphs


def ints(*values: object) -> Ints:
    return np.array(values, np.int64)


def as_values(tensor: Ints, steps: int = 1) -> reference.Values:
    return {at: Fraction(int(tensor[at]), steps) for at in np.ndindex(tensor.shape)}


@pytest.mark.parametrize(
    ("m", "k"),
    [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 2), (6, 3), (11, 3), (12, 4), (22, 4), (23, 5), (45, 5), (46, 6)],
)
def test_shift_exponent_by_hand(m: int, k: int) -> None:
    assert oracle.shift_exponent(m) == k


@given(st.lists(st.integers(-(2**50), 2**50), min_size=1), st.integers(-10, 55))
def test_round_half_even_is_python_rounding_of_fractions(numbers: list[int], k: int) -> None:
    expected = [round(Fraction(n) / Fraction(2) ** k) for n in numbers]
    assert oracle.round_half_even_shift(ints(*numbers), k).tolist() == expected


@pytest.mark.parametrize("s", range(2, 11))
def test_ternary_is_q_int2_of_the_value(s: int) -> None:
    codes = range(-oracle.max_code(s), oracle.max_code(s) + 1)
    expected = [2 * reference.quantize(Fraction(c, 2 ** (s - 1)), 2) for c in codes]
    assert oracle.ternary(ints(*codes), s).tolist() == expected


def test_quantize_error_by_hand() -> None:
    # max 5, so 2^2: 8·n/4 = 2n, clipped to ±7
    assert oracle.quantize_error(ints(5, -3, 1, 0), 4).tolist() == [7, -6, 2, 0]
    # max 12, so 2^4: 8·n/16 = n/2, halves to even
    assert oracle.quantize_error(ints(12, -3, 1, 5), 4).tolist() == [6, -2, 0, 2]
    assert oracle.quantize_error(ints(0, 0), 4).tolist() == [0, 0]


def test_two_linear_layers_by_hand() -> None:
    """S = 8. Every number below is worked out by hand; both α are 1."""
    net = Architecture((Flatten(), Linear("a", 2, 2, relu=True), Linear("b", 2, 2, relu=False)), (1, 1, 2))
    assert net.alphas == (1.0, 1.0)
    first, second = ints([7, 3], [-3, 1]), ints([5, 0], [-4, 7])
    x = ints([[[6, 5]]], [[[-7, 7]]])
    tape = oracle.forward(net, 4, [first, second], x)
    # t = [[1, 1], [−1, 0]]; n = [[11, −6], [0, 7]]; n/2 = [[5.5, −3], [0, 3.5]]; r = [[6, −3], [0, 4]]; then ReLU
    assert tape.inputs[2].tolist() == [[6, 0], [0, 4]]
    # t = [[1, 0], [−1, 1]]; n = [[6, −6], [0, 4]]
    assert tape.logits.tolist() == [[3, -3], [0, 2]]
    gradients = oracle.backward(tape, ints([3, -1], [0, 2]))
    # e = 8·n/4 = [[6, −2], [0, 4]]; g = eᵀ·a; error below e·t = [[8, −2], [−4, 4]], cut by the ReLU to [[8, 0], [0, 4]]
    assert gradients[1].tolist() == [[36, 0], [-12, 16]]
    # e = 8·n/8, clipped to [[7, 0], [0, 4]]
    assert gradients[0].tolist() == [[42, 35], [-28, 28]]
    # max 42, 2^5; η = 3/4: x = 3·g/128 = [[63/64, 105/128], [−21/32, 21/32]]
    half = 2**23
    words = [256 * r for r in (half, 2**24 - 1, half, 2**24 * 21 // 32)]
    updated = oracle.update(first, gradients[0], (3, -2), words, 4)
    assert updated.tolist() == [[6, 3], [-2, 1]]


def test_saturation_stops_the_error() -> None:
    net = Architecture((Flatten(), Linear("a", 4, 2, relu=False)), (1, 2, 2))
    tape = oracle.forward(net, 4, [ints([7, 7, 7, 7], [7, 7, 0, 0])], ints([[[7, 7], [7, 7]]]))
    assert tape.logits.tolist() == [[7, 7]]  # 28/2 = 14 saturates, 14/2 = 7 does not
    assert oracle.backward(tape, ints([5, 5]))[0].tolist() == [[0] * 4, [49] * 4]  # 8·5/4 = 10, clipped to 7


def test_convolution_and_pool_by_hand() -> None:
    """A padded, strided convolution, and a pool with overlapping windows."""
    conv = Conv("c", 1, 1, (2, 1), (2, 1), (1, 0), relu=False)
    net = Architecture((conv, MaxPool((1, 2), (1, 1)), Flatten(), Linear("l", 4, 1, relu=False)), (1, 3, 3))
    assert net.alphas == (1.0, 1.0)
    x = ints([[[2, 4, 6], [1, 3, 5], [10, 12, 12]]])
    # rows −1, 0 and 1, 2 under t = (1, −1): n = [[−2, −4, −6], [−9, −9, −7]]; half of that, ties to even
    tape = oracle.forward(net, 5, [ints([[[9], [-9]]]), ints([9, 9, 9, 0])], x)
    assert tape.inputs[1].tolist() == [[[[-1, -2, -3], [-4, -4, -4]]]]
    assert tape.inputs[2].tolist() == [[[[-1, -2], [-4, -4]]]]
    assert tape.logits.tolist() == [[-4]]  # −7/2 to even
    gradients = oracle.backward(tape, ints([1]))
    # e = 16/1 clipped to 15; inputs −1, −2, −4, −4
    assert gradients[1].tolist() == [[-15, -30, -60, -60]]
    # error of the pool's output [[15, 15], [15, 0]]: winners (0,0), (0,1), (1,0), (1,1); 16·15/16 = 15
    # weight row 0: pixels of rows −1 and 1: 15·0 + 15·0 + 15·1; row 1: rows 0 and 2: 15·2 + 15·4 + 15·10
    assert gradients[0].tolist() == [[[[15], [240]]]]


def test_first_of_equal_maxima_wins() -> None:
    layer = MaxPool((3, 3), (2, 2))
    a = np.zeros((1, 1, 5, 5), np.int64)
    a[0, 0, 2, 2] = a[0, 0, 4, 4] = 1
    n = ints([[[1, 10], [100, 1000]]])
    assert oracle.max_pool(layer, a).tolist() == [[[[1, 1], [1, 1]]]]
    below = oracle.max_pool_error(layer, n, a)
    assert below[0, 0, 2, 2] == 1111
    assert oracle.max_pool_error(layer, n, 0 * a)[0, 0, ::2, ::2].tolist() == [[1, 10, 0], [100, 1000, 0], [0, 0, 0]]


@settings(max_examples=100, deadline=None)
@given(cases(side=4, channels=2), st.integers(0, 127), st.integers(-8, 8), st.integers(0, 2**32 - 1))
def test_oracle_computes_the_printed_formulas(case: Case, half_mantissa: int, exponent: int, seed: int) -> None:
    """Powers of two that the oracle drops do not matter: the values agree with the fractions exactly."""
    steps, count = 2 ** (case.s - 1), len(case.x)
    tape = oracle.forward(case.architecture, case.s, case.weights, case.x)
    gradients = oracle.backward(tape, case.error)
    values = [as_values(codes, steps) for codes in case.weights]
    images = [as_values(image, steps) for image in case.x]
    logits, exact = reference.run(case.architecture, case.s, values, images, [as_values(e, 2**20) for e in case.error])
    assert logits == [as_values(tape.logits[b], steps) for b in range(count)]
    assert exact == [as_values(g, steps**2) for g in gradients]

    random, mantissa = np.random.default_rng(seed), 2 * half_mantissa + 1
    eta = mantissa * Fraction(2) ** exponent
    for codes, g, value, fraction in zip(case.weights, gradients, values, exact, strict=True):
        words = random.integers(0, 2**32, codes.shape)
        new = oracle.update(codes, g, (mantissa, exponent), words.ravel().tolist(), case.s)
        assert as_values(new, steps) == reference.update(value, fraction, eta, as_values(words >> 8, 2**24), case.s)


@settings(max_examples=150, deadline=None)
@given(st.one_of(cases(side=5), cases(nets=graphs(4)), cases(nets=graphs(4))))
def test_both_oracles_compute_the_same_integers(case: Case) -> None:
    layers = case.architecture.layers
    tape = oracle.forward(case.architecture, case.s, case.weights, case.x)
    ternaries = [[client.ternary(q, case.s) for q in codes.ravel().tolist()] for codes in case.weights]
    tapes = [client.forward(layers, case.s, ternaries, image) for image in case.x.tolist()]
    assert tape.logits.tolist() == [one.logits for one in tapes]
    gradients = client.backward(layers, case.s, ternaries, tapes, case.error.tolist())
    assert [g.ravel().tolist() for g in oracle.backward(tape, case.error)] == gradients
