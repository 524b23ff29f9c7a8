"""What a Flower message carries: our own bytes in arrays, and a few facts beside them.

    hello   server -> node   facts: format, run, config (the run's settings as TOML)      query.hello
            node -> server   facts: format, client, width, examples, version
    task    server -> node   facts: as of hello;  bytes: head, body (the same for all nodes of a width)      train
            node -> server   bytes: update

The bytes are messages of prowd.wire. Whatever comes from the other side is checked field by field and size by size.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from prowd import __version__
from prowd.device.scene import ClientSpec
from prowd.errors import ConfigError, WireError
from prowd.numbers.bits import Bitwidth
from prowd.wire import Parcel

__all__ = ["HELLO", "TRAIN", "Brief", "introduce", "pack_update", "read_introduction", "unpack_task", "unpack_update"]

HELLO, TRAIN = "query.hello", "train"
FORMAT, STYPE = 1, "prowd.v1"
FACTS, BYTES = "prowd.facts", "prowd.bytes"
RUN = re.compile(r"[0-9a-f]{16}")
LONGEST_CONFIG = 2**20  # characters


@dataclass(frozen=True)
class Brief:
    """What a node is told of a run: its name, which no other run has, and its settings."""

    run: str
    config: str

    def record(self) -> ConfigRecord:
        """The facts of a message to a node."""
        return ConfigRecord({"format": FORMAT, "run": self.run, "config": self.config})

    def hello(self) -> RecordDict:
        """The question who a node is."""
        return RecordDict({FACTS: self.record()})

    def task(self, parcel: Parcel) -> RecordDict:
        """A task; the body is an array of its own, so that nodes which receive the same weights share it."""
        arrays = ArrayRecord({"head": _array(parcel.head), "body": _array(parcel.body)})
        return RecordDict({FACTS: self.record(), BYTES: arrays})

    @classmethod
    def read(cls, content: RecordDict) -> Brief:
        """On a node: read what the server says."""
        values = _facts(content)
        run, config = _text(values, "run"), _text(values, "config")
        if not RUN.fullmatch(run):
            raise WireError(f"run is {run[:40]!r}; accepted: 16 hexadecimal digits")
        if len(config) > LONGEST_CONFIG:
            raise WireError(f"config of {len(config)} characters; accepted: up to {LONGEST_CONFIG}")
        return cls(run, config)


def introduce(spec: ClientSpec) -> RecordDict:
    """A node's answer to hello: who it is."""
    own: dict[str, str | int] = {"client": spec.id, "width": str(spec.width), "examples": spec.num_examples}
    return RecordDict({FACTS: ConfigRecord({"format": FORMAT, "version": __version__, **own})})


def read_introduction(content: RecordDict) -> tuple[ClientSpec, str]:
    """On the server: who a node is, and its version of prowd."""
    values = _facts(content)
    try:
        width = Bitwidth.parse(_text(values, "width"))
    except ConfigError as error:
        raise WireError(str(error)) from None
    spec = ClientSpec(_number(values, "client", 0, 2**32), width, _number(values, "examples", 1, 2**63))
    return spec, _text(values, "version")[:40]


def pack_update(message: bytes) -> RecordDict:
    """A node's update."""
    return RecordDict({BYTES: ArrayRecord({"update": _array(message)})})


def unpack_update(content: RecordDict, limit: int) -> bytes:
    """The bytes of an update, of at most ``limit``."""
    return _bytes(content, "update", limit)


def unpack_task(content: RecordDict, limit: int) -> bytes:
    """The bytes of a task, of at most ``limit``."""
    head = _bytes(content, "head", limit)
    return head + _bytes(content, "body", limit - len(head))


def _array(data: bytes) -> Array:
    return Array(dtype="uint8", shape=(len(data),), stype=STYPE, data=data)


def _bytes(content: RecordDict, name: str, limit: int) -> bytes:
    arrays = content.get(BYTES)
    array = arrays.get(name) if isinstance(arrays, ArrayRecord) else None
    if not isinstance(array, Array):
        raise WireError(f"no array {name!r} in record {BYTES!r}; found: {sorted(map(str, content))[:8]}")
    data = array.data
    if not isinstance(data, bytes) or len(data) > limit:
        raise WireError(f"{name!r} has {len(data)} bytes; accepted: up to {limit}")
    if (array.stype, array.dtype, list(array.shape)) != (STYPE, "uint8", [len(data)]):
        found = f"{str(array.stype)[:40]!r}, {str(array.dtype)[:40]!r}, {list(array.shape)[:4]}"
        raise WireError(f"{name!r} is {found}; accepted: {STYPE!r}, 'uint8', [{len(data)}]")
    return data


def _facts(content: RecordDict) -> ConfigRecord:
    facts = content.get(FACTS)
    if not isinstance(facts, ConfigRecord):
        raise WireError(f"no record {FACTS!r}; found: {sorted(map(str, content))[:8]}")
    if facts.get("format") != FORMAT:
        raise WireError(f"format is {str(facts.get('format'))[:40]}; accepted: {FORMAT} (prowd {__version__})")
    return facts


def _text(values: ConfigRecord, name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str):
        raise WireError(f"{name} is {str(value)[:40]}; accepted: a text")
    return value


def _number(values: ConfigRecord, name: str, least: int, below: int) -> int:
    value = values.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < below:
        raise WireError(f"{name} is {str(value)[:40]}; accepted: {least} to {below - 1}")
    return value
