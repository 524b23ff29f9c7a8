"""Wire properties: one encoding a message, nothing but WireError for the rest, and packing against a slow oracle."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prowd.errors import WireError
from prowd.numbers.bits import FLOAT32, INT2, Bitwidth
from prowd.numbers.quantize import QTensor, Rate
from prowd.wire import Task, Update, Work, decode_task, decode_update, encode_task, encode_update
from prowd.wire.packing import Array, pack, unpack
from tests.unit.wire.test_wire import assert_same, reseal

WIDTHS = st.sampled_from([Bitwidth(bits) for bits in (*range(2, 17), 32)])
INTEGERS = st.sampled_from([Bitwidth(bits) for bits in range(2, 17)])
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7)
NAMES = st.text(min_size=1, max_size=20)
SCALES = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
SCALARS = st.dictionaries(NAMES, st.floats(allow_nan=False, allow_infinity=False), max_size=4)


RELAXED = settings(deadline=None, max_examples=200)  # a busy machine is no failure


def uint(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


def codes(width: Bitwidth, shape: st.SearchStrategy[tuple[int, ...]] | int) -> st.SearchStrategy[Array]:
    if width.is_float:
        finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
        return hnp.arrays(np.float32, shape, elements=finite)
    return hnp.arrays(np.int16, shape, elements=st.integers(-width.max_code, width.max_code))


@st.composite
def tensors(draw: st.DrawFn) -> QTensor:
    width = draw(WIDTHS)
    return QTensor(torch.from_numpy(draw(codes(width, SHAPES))), width, draw(SCALES))


WEIGHTS = st.dictionaries(NAMES, tensors(), max_size=3)
UPDATES = st.builds(Update, uint(32), uint(32), WIDTHS, uint(64), WEIGHTS, SCALARS)
RATES = st.builds(Rate, uint(63).map(lambda half: 2 * half + 1), st.integers(-(2**15), 2**15 - 1))
WORKS = st.builds(Work, uint(32), uint(32), RATES, uint(64))
TASKS = st.builds(Task, uint(32), uint(64), uint(32), WEIGHTS, SCALARS, WORKS)

EDGES = (0, 1, 2, 16, 17, 32, 127, 128, 242, 243, 255)
TASK_SAMPLE = encode_task(Task(1, 2, 3, {}, {"mu": 0.5}, Work(4, 5, Rate(205, -11), 6))).join()
SAMPLE = encode_update(
    Update(
        round=1,
        client=2,
        width=Bitwidth(6),
        num_examples=3,
        weights={
            "two": QTensor(torch.tensor([[1, 0, -1], [1, 1, 0]], dtype=torch.int16), INT2),
            "six": QTensor(torch.tensor([31, -31, 5], dtype=torch.int16), Bitwidth(6), 0.3),
            "float": QTensor(torch.tensor(-1.5), FLOAT32),
        },
        metrics={"loss": 2.0, "accuracy": 0.5},
    )
)


each_sample = pytest.mark.parametrize("sample", [SAMPLE, TASK_SAMPLE], ids=["update", "task"])


def accepts_canonically(data: bytes) -> bool:
    """Decode: nothing but WireError may come out, and what is accepted has these bytes as its only encoding."""
    accepted = False
    with contextlib.suppress(WireError):
        update = decode_update(data)
        accepted = True
        assert encode_update(update) == data
    with contextlib.suppress(WireError):
        task = decode_task(data)
        accepted = True
        assert encode_task(task).join() == data
    return accepted


# Packing against an oracle of big integers: obvious, and slow.


def oracle_pack(numbers: list[int], width: Bitwidth) -> bytes:
    offsets = [number + width.max_code for number in numbers]
    if width == INT2:
        fives = [offsets[at : at + 5] for at in range(0, len(offsets), 5)]
        return bytes(sum(u * 3**place for place, u in enumerate(five)) for five in fives)
    bits = sum(u << at * width.bits for at, u in enumerate(offsets))
    return bits.to_bytes(-(-len(offsets) * width.bits // 8), "little")


@RELAXED
@given(INTEGERS, st.data())
def test_packing_equals_the_oracle(width: Bitwidth, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(-width.max_code, width.max_code), max_size=60))
    packed = oracle_pack(numbers, width)
    assert pack(np.array(numbers, np.int16), width) == packed
    assert unpack(packed, width, len(numbers)).tolist() == numbers


@RELAXED
@given(INTEGERS, st.integers(0, 17), st.data())
def test_any_payload_is_refused_or_canonical(width: Bitwidth, count: int, data: st.DataObject) -> None:
    size = len(oracle_pack([0] * count, width))
    payload = data.draw(st.binary(min_size=size, max_size=size))
    try:
        numbers = unpack(payload, width, count).tolist()
    except WireError:
        return
    assert oracle_pack(numbers, width) == payload


@RELAXED
@given(TASKS)
def test_task_round_trip(task: Task) -> None:
    data = encode_task(task).join()
    again = decode_task(data)
    assert (again.round, again.seed, again.client) == (task.round, task.seed, task.client)
    assert list(again.settings.items()) == list(task.settings.items())
    assert again.work == task.work
    assert_same(again.weights, task.weights)
    assert encode_task(again).join() == data


@RELAXED
@given(UPDATES)
def test_update_round_trip(update: Update) -> None:
    data = encode_update(update)
    again = decode_update(data)
    numbers = again.round, again.client, again.width, again.num_examples
    assert numbers == (update.round, update.client, update.width, update.num_examples)
    assert list(again.metrics.items()) == list(update.metrics.items())
    assert_same(again.weights, update.weights)
    assert encode_update(again) == data


@each_sample
def test_any_flipped_byte_is_noticed(sample: bytes) -> None:
    """CRC-32 sees every burst of up to 32 bits, so this holds for all messages, not only for the sample."""
    for at in range(len(sample)):
        for flip in range(1, 256):
            assert not accepts_canonically(sample[:at] + bytes([sample[at] ^ flip]) + sample[at + 1 :])


@each_sample
def test_any_byte_set_behind_right_checksums_is_refused_or_canonical(sample: bytes) -> None:
    accepted = 0
    for at in range(len(sample)):
        for value in {*EDGES, *(sample[at] ^ 1 << bit for bit in range(8))}:
            accepted += accepts_canonically(reseal(sample[:at] + bytes([value]) + sample[at + 1 :]))
    assert accepted > len(sample)  # some bytes are free, such as those of the round


@each_sample
def test_truncated_anywhere(sample: bytes) -> None:
    for size in range(len(sample)):
        assert not accepts_canonically(sample[:size])
        assert not accepts_canonically(reseal(sample[:size]))


@RELAXED
@given(st.binary(max_size=200))
@example(b"")
def test_random_bytes(data: bytes) -> None:
    assert not accepts_canonically(data)
