"""What ``make fuzz`` does for long, for a moment: the same promises, kept for whatever hypothesis thinks of."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import tomli_w
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fuzz.catalogue import TARGETS
from fuzz.configurations import CONFIG, check_config, check_written
from fuzz.mending import fill, seal
from fuzz.messages import ADMIT, WIRE_TASK, WIRE_UPDATE, check_admit, check_task, check_update
from fuzz.tables import ODD, put
from fuzz.tables import settings as known_settings
from prowd.config.schema import RunConfig, validate
from prowd.errors import ConfigError

RELAXED = settings(deadline=None, max_examples=100)  # a busy machine is no failure
Splice = tuple[int, int, bytes]
SPLICES = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 9), st.binary(max_size=9)), min_size=1, max_size=4)
MENDED = st.sampled_from([lambda data: data, fill])


def spliced(data: bytes, splices: list[Splice]) -> bytes:
    """Bytes taken out, and others put in."""
    for place, gone, new in splices:
        at = place % (len(data) + 1)
        data = data[:at] + new + data[at + gone :]
    return data


@pytest.mark.parametrize("name", TARGETS)
def test_all_seeds_are_accepted(name: str) -> None:
    assert all(TARGETS[name].check(seed) for seed in TARGETS[name].seeds())


# Messages. Lengths and checksums are right, so that what is cut off, put in or changed is met inside.


Case = tuple[Callable[[bytes], bool], int, bytes, bytes]
CASES: list[Case] = [
    *((check_update, 2, b"", message) for message in WIRE_UPDATE.seeds()),
    *((check_task, 1, b"", message) for message in WIRE_TASK.seeds()),
    *((check_admit, 2, reply[:1], reply[1:]) for reply in ADMIT.seeds()),
]
"""What reads a message, its kind, what stands before it, and the message."""


@settings(RELAXED, max_examples=300)
@given(st.sampled_from(CASES), SPLICES, MENDED)
def test_spliced_messages(case: Case, splices: list[Splice], mended: Callable[[bytes], bytes]) -> None:
    check, kind, before, message = case
    check(before + spliced(message, splices))
    check(before + seal(kind, mended(spliced(message, splices))))


def test_any_byte_of_a_reply_behind_right_checksums() -> None:
    accepted = 0
    for reply in ADMIT.seeds():
        for at in range(1, len(reply)):
            for value in (0, 128, 255, reply[at] ^ 1):
                accepted += check_admit(reply[:1] + seal(2, reply[1:at] + bytes([value]) + reply[at + 1 :]))
    assert accepted > len(ADMIT.seeds()), "some bytes are free, such as those of the weights"


# Configurations.

PLAIN = st.sampled_from(ODD) | st.integers() | st.floats() | st.booleans() | st.text(max_size=9) | st.datetimes()
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
SETTINGS = st.dictionaries(st.sampled_from(known_settings()), VALUES, min_size=1, max_size=3)
DEEP = ".a" * 2000
HUGE = 16**4000


@RELAXED
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@example(b"\xef\xbb\xbfrounds = 3")
@example(b"rounds = 3\0")
@example(b"rounds = " + b"{a=" * 3000)
def test_any_file(text: bytes) -> None:
    check_config(text)


@RELAXED
@given(st.sampled_from(CONFIG.seeds()), SPLICES)
@example(f"rounds{DEEP} = 1".encode(), [])
@example(f"options.prowd.dequantizer{DEEP} = 1".encode(), [])
@example(f"compare.seeds{DEEP} = 1".encode(), [])
@example(f"rounds = {HUGE:#x}".encode(), [])
@example(f"extends = {HUGE:#x}".encode(), [])
@example(f'method = "prowd"\noptions.dequantizer.epochs = {HUGE:#x}'.encode(), [])
def test_spliced_files(text: bytes, splices: list[Splice]) -> None:
    check_config(spliced(text, splices))


@RELAXED
@given(SETTINGS)
@example({"extends": "x" * 300})
@example({"method": "~nobody/x.py:X"})
@example({"data": "~nobody/a.npz"})
@example({"data": "a\0.npz"})
@example({"method": "fedprox", "options.mu": "inf"})
def test_files_with_odd_settings(changes: dict[str, Any]) -> None:
    values: dict[str, Any] = {}
    for setting, value in changes.items():
        put(values, setting, value)
    check_config(tomli_w.dumps(values).encode())


KEYS = st.sampled_from([*RunConfig.model_fields, "x"]) | st.text(max_size=3)
OBJECTS = st.recursive(
    PLAIN | st.none() | st.binary(max_size=3) | st.just(datetime.UTC),
    lambda inner: st.tuples(inner, inner) | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=3),
)


@RELAXED
@given(st.dictionaries(KEYS, OBJECTS, max_size=3))
@example({"steps": HUGE})
@example({"rounds": HUGE})
@example({"options": {1: 2}})
@example({"name": "\ud800"})
def test_any_values_given_in_python(values: dict[str, Any]) -> None:
    if ":" in str(values.get("method", "")):
        return  # which may be any module there is
    try:
        config = validate(values)
    except ConfigError:
        return
    check_written(config)
