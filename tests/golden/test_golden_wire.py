"""Wire format 2 is the bytes in wire_v2_*.hex: written from the drawing by a script apart, not by the encoder.

A change that fails here breaks every device in the field: give the format a new version instead.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from prowd.errors import WireError
from prowd.numbers.bits import FLOAT32, INT2, Bitwidth
from prowd.numbers.quantize import QTensor, Rate
from prowd.wire import Task, Update, Work, decode_task, decode_update, encode_task, encode_update
from tests.unit.wire.test_wire import assert_same


def golden(name: str) -> bytes:
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


def codes(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int16)


TASK = Task(
    round=7,
    seed=0x0123456789ABCDEF,
    client=5,
    weights={
        "conv.weight": QTensor(codes(1, -1, 0, 0, 1, -1, 1), INT2),
        "six": QTensor(codes(-31, -1, 0, 1, 31).reshape(5, 1), Bitwidth(6), 1 / 3),
        "gain": QTensor(torch.tensor([1.5, -0.0, 3.0e-39]), FLOAT32),
        "zero-d": QTensor(codes(-32767).reshape(()), Bitwidth(16), 2.0),
        "empty": QTensor(codes().reshape(4, 0), Bitwidth(9)),
    },
    settings={"learning_rate": 0.1, "µ": -2.0},
    work=Work(200, 64, Rate(205, -11), 0xFEDCBA9876543210),
)

UPDATE = Update(
    round=2**32 - 1,
    client=9,
    width=Bitwidth(8),
    num_examples=2**40,
    weights={
        f"w{bits}": QTensor(
            codes(1 - 2 ** (bits - 1), 0, 2 ** (bits - 1) - 1).reshape(1, 3), Bitwidth(bits), 2.0**-bits
        )
        for bits in range(2, 17)
    },
    metrics={"loss": 2.302585092994046},
)


def test_version_2_task() -> None:
    data = golden("wire_v2_task.hex")
    task = decode_task(data)
    assert (task.round, task.seed, task.client, task.settings) == (TASK.round, TASK.seed, TASK.client, TASK.settings)
    assert list(task.settings) == list(TASK.settings)
    assert task.work == TASK.work
    assert_same(task.weights, TASK.weights)
    assert encode_task(task).join() == data
    assert encode_task(TASK).join() == data


def test_version_2_update() -> None:
    data = golden("wire_v2_update.hex")
    update = decode_update(data)
    assert (update.round, update.client, update.width) == (UPDATE.round, UPDATE.client, UPDATE.width)
    assert (update.num_examples, update.metrics) == (UPDATE.num_examples, UPDATE.metrics)
    assert_same(update.weights, UPDATE.weights)
    assert encode_update(update) == data
    assert encode_update(UPDATE) == data


@pytest.mark.parametrize("decode", [decode_task, decode_update])
def test_version_1_is_refused_by_its_name(decode: Callable[[bytes], object]) -> None:
    with pytest.raises(WireError, match="version is 1"):
        decode(golden("wire_v1_task.hex"))
