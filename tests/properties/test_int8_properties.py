"""The int8 kernel gives exactly the integers of the oracle, in every instruction set of this CPU."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prowd.nets.architecture import Architecture, Conv, Flatten, Layer, Linear, MaxPool, Shape
from prowd.numbers.quantize import Rate
from tests.kernels import as_bytes, missing
from tests.reference import integer_client as client
from tests.reference import integer_oracle as oracle
from tests.reference.networks import Case, fill, plain_architectures, plain_cases

if reason := missing():
    pytest.skip(reason, allow_module_level=True)

from prowd.nets.lowbit import int8
from prowd.nets.lowbit.int8 import CHUNK
from tests.reference.int8 import (
    assert_all_same,
    assert_same,
    check,
    expect,
    kernels,
    learn,
    random_case,
    stepped,
)  # fmt: skip

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


@settings(max_examples=300, deadline=None)
@given(cases)
def test_logits_and_gradients_are_the_oracle_s(case: Case) -> None:
    check(case)


@settings(max_examples=150, deadline=None)
@given(cases, rates, seeds)
def test_updates_are_the_oracle_s(case: Case, rate: Rate, seed: int) -> None:
    expected = [
        oracle.update(codes, g, (rate.mantissa, rate.exponent), oracle.words(seed, 0, layer, g.size), case.s)
        for layer, (codes, g) in enumerate(zip(case.weights, expect(case)[1], strict=True))
    ]
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
            assert_same(kernel.forward(as_bytes(other.x, s), record=False), looked_at, kernel.name)
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
    for kernel in kernels(case):
        kernel.forward(as_bytes(case.x, case.s))
        assert (kernel.layers[1].memory("room") is not None) == (case.x.shape[3] % 2 == 0)
    check(case)


@pytest.mark.parametrize("count", [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_logits_of_many_images_are_those_of_a_batch(count: int) -> None:
    case = random_case(NET, 8, count)
    logits, _ = expect(case)
    assert len(np.unique(logits)) > 20
    for kernel in kernels(case):
        assert_same(kernel.forward(as_bytes(case.x[:3], 8), record=False), logits[:3], kernel.name)
        assert_same(kernel.forward(as_bytes(case.x, 8), record=False), logits, kernel.name)
        assert_same(kernel.forward(as_bytes(case.x, 8)), logits, kernel.name)


@pytest.mark.parametrize("s", range(2, 9))
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_every_byte_has_the_oracle_s_code(s: int, dtype: torch.dtype) -> None:
    """The gradient of one weight is a pixel's code times an error's."""
    S = 2 ** (s - 1)
    images = torch.arange(256, dtype=torch.uint8).view(dtype).reshape(1, 1, 1, -1)
    code_of = client.image_code if dtype == torch.uint8 else client.sensor_code
    codes = [code_of(pixel, s) for pixel in images.flatten().tolist()]
    assert len(set(codes)) >= 2 * S - 2  # no byte is half of them all, so 0 may be left out
    net = Architecture((Flatten(), Linear("a", len(codes), 1, relu=False)), (1, 1, len(codes)))
    case = Case(net, s, [np.zeros((1, len(codes)), np.int64)], np.array([[[codes]]]), np.array([[1]]))
    check(case)
    for kernel in kernels(case):
        kernel.forward(images)
        (found,) = kernel.gradients(torch.ones(1, 1, dtype=torch.int64))
        assert_same(found, np.array([codes]) * (S - 1), kernel.name)


@settings(max_examples=60, deadline=None)
@given(cases, rates, seeds)
def test_sums_in_chunks_are_the_whole_sums(case: Case, rate: Rate, seed: int) -> None:
    """As if int32 held four images of the layer with most positions, and no more."""
    (stages, *_) = [kernel.stages for kernel in kernels(case)]
    most = max(stage.positions for stage in stages)
    with patch.object(int8, "INT32", 4 * most * oracle.max_code(case.s) ** 2):
        no_additions = [None] * len(case.weights)
        expected = stepped(case, check(case), rate, seed, no_additions)
        for kernel in kernels(case):
            assert_all_same(learn(kernel, case, rate, seed, no_additions), expected, kernel.name)
