"""What Flower's messages carry: facts and bytes, each checked by whoever receives them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import example, given
from hypothesis import strategies as st

from prowd import __version__
from prowd.device.scene import ClientSpec
from prowd.errors import WireError
from prowd.flower.records import (
    BYTES,
    FACTS,
    LONGEST_CONFIG,
    STYPE,
    Brief,
    introduce,
    pack_update,
    read_introduction,
    unpack_task,
    unpack_update,
)
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.wire import Parcel
from tests.unit.scenes import INT8

RUN = "0123456789abcdef"
FACTS_OF_A_NODE: dict[str, Any] = {"format": 1, "client": 3, "width": "int8", "examples": 9, "version": "1"}
WIDTHS = st.integers(2, 16).map(Bitwidth) | st.just(FLOAT32)


def node(**changes: Any) -> RecordDict:
    facts = {key: value for key, value in {**FACTS_OF_A_NODE, **changes}.items() if value is not None}
    return RecordDict({FACTS: ConfigRecord(facts)})


def server(**changes: Any) -> RecordDict:
    facts = {"format": 1, "run": RUN, "config": "x = 1", **changes}
    return RecordDict({FACTS: ConfigRecord({key: value for key, value in facts.items() if value is not None})})


@given(st.integers(0, 2**32 - 1), WIDTHS, st.integers(1, 2**63 - 1))
def test_an_introduction_comes_back(client: int, width: Bitwidth, examples: int) -> None:
    spec = ClientSpec(client, width, examples)
    assert read_introduction(introduce(spec)) == (spec, __version__)


@given(st.from_regex("[0-9a-f]{16}", fullmatch=True), st.text(), st.binary(), st.binary())
def test_a_brief_comes_back_with_its_task(run: str, config: str, head: bytes, body: bytes) -> None:
    brief, parcel = Brief(run, config), Parcel(head, body)
    assert Brief.read(brief.hello()) == brief == Brief.read(brief.task(parcel))
    assert unpack_task(brief.task(parcel), len(parcel)) == parcel.join()


@given(st.binary())
def test_an_update_comes_back(data: bytes) -> None:
    assert unpack_update(pack_update(data), len(data)) == data


def test_nodes_that_receive_the_same_weights_share_them() -> None:
    one, two = (Brief(RUN, "").task(Parcel(head, b"weights"))[BYTES] for head in (b"1", b"2"))
    assert isinstance(one, ArrayRecord)
    assert isinstance(two, ArrayRecord)
    assert one["body"].object_id == two["body"].object_id
    assert one["head"].object_id != two["head"].object_id


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((node(client=value), "client is ") for value in (-1, 2**32, True, "3", 3.0, None, [3])),
        *((node(examples=value), "examples is ") for value in (0, -5, 2**63, None)),
        *((node(width=value), "width is .*; accepted: a text") for value in (8, None, b"int8")),
        *((node(format=value), "format is .*; accepted: 1") for value in (2, None, "1")),
        (node(width="int99"), "'int99' is not a bitwidth"),
        (node(version=1), "version is 1"),
        (RecordDict({"other": ConfigRecord(FACTS_OF_A_NODE)}), r"no record 'prowd\.facts'; found: \['other'\]"),
        (RecordDict({FACTS: MetricRecord({"client": 3})}), "no record"),
    ],
)
def test_an_introduction_that_is_wrong(content: RecordDict, message: str) -> None:
    with pytest.raises(WireError, match=message):
        read_introduction(content)


def test_a_version_is_cut_short() -> None:
    assert read_introduction(node(version="9" * 1000)) == (ClientSpec(3, INT8, 9), "9" * 40)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((server(run=value), "run is ") for value in (7, None, "../0123456789abc", RUN * 2, RUN[1:], RUN + "\n")),
        (server(run="٠١٢٣٤٥٦٧٨٩٠١٢٣٤٥"), "run is "),
        *((server(config=value), "config ") for value in (None, b"x", "x" * (LONGEST_CONFIG + 1))),
        (server(format=0), "format is 0"),
        (pack_update(b"x"), r"no record 'prowd\.facts'"),
    ],
)
def test_a_brief_that_is_wrong(content: RecordDict, message: str) -> None:
    with pytest.raises(WireError, match=message):
        Brief.read(content)
    assert Brief.read(server(config="x" * LONGEST_CONFIG)).run == RUN


def test_bytes_have_a_limit() -> None:
    update, task = pack_update(b"12345"), Brief(RUN, "").task(Parcel(b"123", b"45"))
    assert unpack_update(update, 5) == unpack_task(task, 5) == b"12345"
    with pytest.raises(WireError, match="'update' has 5 bytes; accepted: up to 4"):
        unpack_update(update, 4)
    with pytest.raises(WireError, match="'body' has 2 bytes; accepted: up to 1"):
        unpack_task(task, 4)
    with pytest.raises(WireError, match="'head' has 3 bytes; accepted: up to 2"):
        unpack_task(task, 2)


# Anything else is a WireError

SCALARS = st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=9) | st.binary(max_size=9) | st.booleans()
FIELDS = st.sampled_from(["format", "client", "width", "examples", "version", "run", "config", "x"])
KNOWN = st.sampled_from([1, RUN, "int8", "float32", 3])
CONFIGS = st.dictionaries(FIELDS, KNOWN | SCALARS | st.lists(st.integers(), max_size=3), max_size=8).map(
    lambda values: ConfigRecord(cast("Any", values))
)
ARRAYS = st.builds(
    Array,
    dtype=st.sampled_from(["uint8", "float32", ""]),
    shape=st.lists(st.integers(-2, 4), max_size=3).map(tuple),
    stype=st.sampled_from([STYPE, "numpy.ndarray", ""]),
    data=st.binary(max_size=6),
)
ARRAY_RECORDS = st.dictionaries(st.sampled_from(["head", "body", "update", "x"]), ARRAYS, max_size=4).map(ArrayRecord)
METRICS = st.dictionaries(FIELDS, st.integers(-(2**63), 2**63 - 1), max_size=4).map(
    lambda values: MetricRecord(cast("Any", values))
)
RECORDS = st.dictionaries(st.sampled_from([FACTS, BYTES, "x", ""]), CONFIGS | ARRAY_RECORDS | METRICS, max_size=4).map(
    RecordDict
)
READERS: list[Callable[[RecordDict], object]] = [
    Brief.read,
    read_introduction,
    lambda content: unpack_update(content, 4),
    lambda content: unpack_task(content, 4),
]


@given(RECORDS)
@example(RecordDict({FACTS: ArrayRecord({"format": Array("uint8", (0,), STYPE, b"")})}))
@example(RecordDict({BYTES: ConfigRecord({"update": b""})}))
def test_whatever_is_sent_is_read_or_a_wire_error(content: RecordDict) -> None:
    for read in READERS:
        with suppress(WireError):
            found = read(content)
            assert not isinstance(found, bytes) or len(found) <= 4


@given(ARRAY_RECORDS)
def test_bytes_are_as_declared_or_refused(arrays: ArrayRecord) -> None:
    try:
        found = unpack_update(RecordDict({BYTES: arrays}), 4)
    except WireError:
        return
    array = arrays["update"]
    assert (array.stype, array.dtype, tuple(array.shape), array.data) == (STYPE, "uint8", (len(found),), found)
