"""The devices of a run on disk: what is written comes back, and whatever else is there is an error with words."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowd.device.scene import ClientSpec
from prowd.errors import RunError
from prowd.numbers.bits import FLOAT32, Bitwidth, parse_mix
from prowd.runs.roster import Roster, mix_of
from tests.unit.scenes import INT4, INT8

WIDTHS = st.integers(2, 16).map(Bitwidth) | st.just(FLOAT32)
DEVICES = st.lists(st.tuples(WIDTHS, st.integers(1, 2**63 - 1)), min_size=1, max_size=6)


def roster_of(devices: list[tuple[Bitwidth, int]], run: str = "0123456789abcdef") -> Roster:
    return Roster(run, tuple(ClientSpec(n, width, examples) for n, (width, examples) in enumerate(devices)))


SMALL = roster_of([(INT8, 10), (FLOAT32, 7)])


def written(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {**json.loads(SMALL.encode()), **changes}
    return values


def device(**changes: Any) -> dict[str, Any]:
    return written(devices=[{"client": 0, "width": "int8", "examples": 10, **changes}])


def decode(values: object) -> Roster:
    return Roster.decode(json.dumps(values).encode(), "devices.json")


@given(DEVICES)
def test_what_is_written_comes_back(devices: list[tuple[Bitwidth, int]]) -> None:
    roster = roster_of(devices)
    assert Roster.decode(roster.encode(), "here") == roster
    owned = replace(roster, owners={client.id: 2**62 + client.id for client in roster.clients})
    assert Roster.decode(owned.encode(), "here") == owned


@given(st.lists(WIDTHS, min_size=1, max_size=9))
def test_a_mix_of_widths_is_that_of_the_setting(widths: list[Bitwidth]) -> None:
    assert parse_mix(mix_of(widths)) == tuple(widths)


def test_a_mix_is_short() -> None:
    assert mix_of([INT8, INT8, FLOAT32, INT8, INT4]) == "int8:2, float32:1, int8:1, int4:1"


PARTS = (slice(None, None, -1), slice(1, None))  # the wrong way round, and without the first


@pytest.mark.parametrize(
    "values",
    [
        written(format=2),
        *(written(devices=devices) for devices in ([], 3, [3], *(written()["devices"][part] for part in PARTS))),
        written(devices=written()["devices"] * 2),
        *({"format": 1}, {}, [], None, device(width="int99"), device(client="x"), device(examples=None)),
    ],
)
def test_what_is_damaged_is_named(values: object) -> None:
    with pytest.raises(RunError, match=r"^devices\.json"):
        decode(values)


@given(st.binary())
def test_any_bytes_are_a_run_error(data: bytes) -> None:
    with pytest.raises(RunError, match="here"):
        Roster.decode(data, "here")


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["int8"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.sampled_from(["client", "width", "examples"]), ANY)
def test_any_field_is_read_or_a_run_error(field: str, value: object) -> None:
    with suppress(RunError):
        (client,) = decode(device(**{field: value})).clients
        assert client.id == 0
        assert client.num_examples >= 1


@pytest.mark.parametrize(
    "data",
    [
        *(b"[" * 100_000, b"\xff\xfe", b"\0", b"nan", *(SMALL.encode()[:cut] for cut in (0, 1, 20, -1))),
        *(json.dumps(device(width=width)).encode() for width in (8, None)),
        *(json.dumps(device(examples=count)).encode() for count in (float("inf"), -5, 2.5)),
        json.dumps(written(run=5)).encode(),
    ],
    ids=lambda data: repr(data[:20]),
)
def test_odd_damage_is_named(data: bytes) -> None:
    with pytest.raises(RunError, match=r"devices\.json"):
        Roster.decode(data, "devices.json")
