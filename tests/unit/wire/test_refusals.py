"""What may not be sent is refused by the sender, with the field's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from prowd.errors import WireError
from prowd.numbers.bits import FLOAT32, INT2, Bitwidth
from prowd.numbers.quantize import QTensor, Rate
from prowd.wire import Work
from prowd.wire.messages import MAX_TENSORS, Task, encode_task, encode_update, encode_weights
from tests.unit.wire.test_wire import INT8, tensor, update


def sick(value: Any, width: Bitwidth = INT8, dtype: torch.dtype = torch.int16, scale: Any = 1.0) -> Callable[[], bytes]:
    return lambda: encode_weights({"w": QTensor(torch.tensor(value, dtype=dtype), width, scale)})


def work(**fields: Any) -> Callable[[], bytes]:
    return lambda: encode_task(Task(0, 0, 0, {}, work=Work(**fields))).join()


@pytest.mark.parametrize(
    ("send", "error"),
    [
        (sick([1], dtype=torch.int8), "tensor 'w': codes are torch.int8; accepted: torch.int16 for int8"),
        (sick([1.0], dtype=torch.float32), "accepted: torch.int16"),
        (sick([1.0], dtype=torch.bfloat16), "accepted: torch.int16"),
        (sick([1.0], FLOAT32, torch.float64), "accepted: torch.float32 for float32"),
        (sick([128]), "tensor 'w': codes 128 to 128; accepted: ±127 for int8"),
        (sick([-2], INT2), "accepted: ±1 for int2"),
        (sick([-32768], Bitwidth(16)), "accepted: ±32767"),
        (sick([1], scale=0.0), "tensor 'w': scale is 0.0"),
        (sick([1], scale=float("inf")), "scale is inf"),
        (sick([1], scale=None), "scale is None"),
        (sick([[[[[[[[[1]]]]]]]]]), "9 dimensions; accepted: up to 8"),
        (lambda: encode_weights({"w": QTensor(torch.zeros((0, 2**32), dtype=torch.int16), INT8)}), "dimension is 429"),
        (lambda: encode_weights({"": tensor(1)}), "name '' takes 0 bytes"),
        (lambda: encode_weights({"é" * 128: tensor(1)}), "takes 256 bytes; accepted: 1 to 255"),
        (lambda: encode_weights({"\ud800": tensor(1)}), "not Unicode text"),
        (lambda: encode_weights({f"{at}": tensor() for at in range(MAX_TENSORS + 1)}), "4097 tensors; accepted"),
        (lambda: encode_task(Task(-1, 0, 0, {})).join(), "round is -1; accepted: whole numbers from 0 to 4294967295"),
        (lambda: encode_task(Task(2**32, 0, 0, {})).join(), "round is 4294967296"),
        (lambda: encode_task(Task(0, 2**64, 0, {})).join(), "seed is"),
        (lambda: encode_task(Task(0, 0, 2**32, {})).join(), "client is"),
        (lambda: encode_task(Task(1.5, 0, 0, {})).join(), "round is 1.5"),  # type: ignore[arg-type]
        (lambda: encode_task(Task(0, 0, 0, {}, {"eta": 10**400})).join(), "eta is 1000"),
        (lambda: encode_task(Task(0, 0, 0, {}, {"eta": 2**53 + 1})).join(), "that a double holds"),
        (lambda: encode_task(Task(0, 0, 0, {}, {"eta": "1"})).join(), "eta is '1'"),  # type: ignore[dict-item]
        (lambda: encode_task(Task(0, 0, 0, {}, {f"{at}": 0 for at in range(1025)})).join(), "1025 scalars"),
        (work(steps=-1), "steps is -1"),
        (work(batch=2**32), "batch is"),
        (work(batch=2.5), "batch is 2.5"),
        (work(network=2**64), "network is"),
        (work(rate=Rate(2, 0)), "rate is"),
        (work(rate=Rate(0, 0)), "rate is"),
        (work(rate=Rate(2**64 + 1, 0)), "mantissa of the rate is"),
        (work(rate=Rate(-1, 0)), "mantissa of the rate is -1"),
        (work(rate=Rate(1, 2**15)), "rate is"),
        (work(rate=Rate(1, -(2**15) - 1)), "rate is"),
        (work(rate=Rate(1, 0.5)), "rate is"),  # type: ignore[arg-type]
        (lambda: encode_update(replace(update(), num_examples=-5)), "num_examples is -5"),
    ],
)
def test_nothing_sick_leaves(send: Callable[[], bytes], error: str) -> None:
    with pytest.raises(WireError, match=error):
        send()
