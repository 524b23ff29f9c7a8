"""The work of a task: its fields by hand, and hostile ones."""

from __future__ import annotations

import struct

import pytest

from prowd.errors import WireError
from prowd.numbers.quantize import Rate
from prowd.wire import Work, decode_task
from tests.unit.wire.test_wire import body, message

WORK = struct.pack("<IIQhQ", 200, 64, 205, -11, 6)


def task_head(work: bytes) -> bytes:
    return struct.pack("<IQI", 3, 5, 7) + work + bytes(2)


def test_work_by_hand() -> None:
    found = decode_task(message(body(), task_head(WORK), kind=1))
    assert found.work == Work(200, 64, Rate(205, -11), 6)


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (WORK[:8] + struct.pack("<Q", 204) + WORK[16:], "head before byte 66: mantissa of the rate is 204"),
        (WORK[:8] + bytes(8) + WORK[16:], "mantissa of the rate is 0"),
        (WORK[:-3], "byte 40: 26 more bytes expected, 25 are left"),
        (b"", "byte 40: 26 more bytes expected, 2 are left"),
        (WORK + bytes(1), "byte 68: 1 bytes too many in the head"),
    ],
    ids=["even", "zero", "cut off", "none", "too long"],
)
def test_hostile_work_is_refused(work: bytes, error: str) -> None:
    with pytest.raises(WireError, match=error):
        decode_task(message(body(), task_head(work), kind=1))
