"""Messages as bytes: what crosses between server and client, and nothing else does. No pickle, ever.

A message is a header, a head of its own and a body of tensors; the body does not depend on the client, so that clients
which receive the same weights can share one. Numbers are little-endian; ``name`` is u8 length (1 to 255) + UTF-8::

    header  | magic "PRWD" | version u8 = 2 | kind u8 | zero u16 | head length u32 | body length u64 | crc u32 |
            0              4                5         6          8                 12                20       24
            kind 1 is a task, 2 an update; the crc is CRC-32 of bytes 0 to 20 and the head

    head    | task:   round u32 | seed u64 | client u32 | work |                                      then scalars
            | update: round u32 | client u32 | width u8 | examples u64 |                              then scalars
    work    | steps u32 | batch u32 | rate: mantissa u64, odd; exponent i16 | network u64 |
    scalars | count u16 | count × ( name | value f64 ) |

    body    | crc u32 | count u16 | count × row | payload of row 0 | payload of row 1 | …   the crc is of all after it
    row     | name | width u8: 2 to 16, or 32 | rank u8 <= 8 | rank × dimension u32 | scale f64 | payload length u64 |
    payload   see prowd.wire.packing

Bytes from a client are hostile. All lengths are checked before anything is allocated, and every message has one
encoding only: what decodes also encodes to the same bytes, and all other bytes raise WireError with what and where.
NaN and infinity can be sent, by a client whose training diverged, and are refused by whoever decodes them.
A decoded ternary tensor takes ten times its bytes; ``limit`` bounds the bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from prowd.errors import ConfigError, WireError
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import QTensor, Weights
from prowd.wire.fields import Reader, crc32, encode_count, encode_name, finite, number, unsigned, within
from prowd.wire.packing import pack, packed_size, unpack
from prowd.wire.work import Work, decode_work, encode_work

__all__ = [
    "DEFAULT_LIMIT",
    "Parcel",
    "Task",
    "Update",
    "decode_task",
    "decode_update",
    "encode_task",
    "encode_update",
    "encode_weights",
]

DEFAULT_LIMIT = 2**28
"""Longest message accepted unless told otherwise: 256 MiB, five Float32 VGG-7s."""

MAGIC, VERSION, TASK, UPDATE = b"PRWD", 2, 1, 2
MAX_TENSORS, MAX_SCALARS = 4096, 1024  # an entry is larger as an object than as bytes, so entries are few
MAX_RANK, MAX_ELEMENTS = 8, 2**40

_HEADER, _CRC = struct.Struct("<4sBBHIQ"), struct.Struct("<I")
_TASK, _UPDATE = struct.Struct("<IQI"), struct.Struct("<IIBQ")
_SCALAR, _FORM, _SIZE = struct.Struct("<d"), struct.Struct("<BB"), struct.Struct("<dQ")
_START = _HEADER.size + _CRC.size


@dataclass(frozen=True)
class Task:
    """Server to client: train these weights. The settings are the method's numbers of this round."""

    round: int
    seed: int
    client: int
    weights: Weights
    settings: Mapping[str, float] = field(default_factory=dict)
    work: Work = field(default_factory=Work)


@dataclass(frozen=True)
class Update:
    """Client to server: what training made of them. ``width`` is the device's own, not that of the tensors."""

    round: int
    client: int
    width: Bitwidth
    num_examples: int
    weights: Weights
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Parcel:
    """A message in two parts, so that the clients of a width share one body."""

    head: bytes
    body: bytes

    def __len__(self) -> int:
        return len(self.head) + len(self.body)

    def join(self) -> bytes:
        """Return the message as it is sent."""
        return self.head + self.body


def encode_task(task: Task, body: bytes | None = None) -> Parcel:
    """Encode a task; ``body`` is ``encode_weights(task.weights)`` where that is at hand."""
    numbers = unsigned("round", task.round, 32), unsigned("seed", task.seed, 64), unsigned("client", task.client, 32)
    head = _TASK.pack(*numbers) + encode_work(task.work) + _encode_scalars(task.settings)
    return _seal(TASK, head, encode_weights(task.weights) if body is None else body)


def decode_task(message: bytes, limit: int = DEFAULT_LIMIT) -> Task:
    """Decode a task of at most ``limit`` bytes."""
    head, body = _open(message, TASK, limit)
    number, seed, client = head.unpack(_TASK)
    work = decode_work(head)
    settings = _decode_scalars(head)
    return Task(number, seed, client, _decode_weights(body), settings, work)


def encode_update(update: Update) -> bytes:
    """Encode an update."""
    owner = unsigned("round", update.round, 32), unsigned("client", update.client, 32)
    head = _UPDATE.pack(*owner, update.width.bits, unsigned("num_examples", update.num_examples, 64))
    return _seal(UPDATE, head + _encode_scalars(update.metrics), encode_weights(update.weights)).join()


def decode_update(message: bytes, limit: int = DEFAULT_LIMIT) -> Update:
    """Decode an update of at most ``limit`` bytes."""
    head, body = _open(message, UPDATE, limit)
    number, client, bits, num_examples = head.unpack(_UPDATE)
    with within(f"head before byte {head.at}"):
        width = _width(bits)
    metrics = _decode_scalars(head)
    return Update(number, client, width, num_examples, _decode_weights(body), metrics)


def encode_weights(weights: Weights) -> bytes:
    """Encode a body, which all tasks that carry these weights can share."""
    rows, payloads = [encode_count("tensors", len(weights), MAX_TENSORS)], []
    for name, tensor in weights.items():
        with within(f"tensor {name!r}"):
            payload = _encode_codes(tensor)
            row = _Row(tensor.width, tensor.shape, finite("scale", tensor.scale), len(payload))
            rows.append(encode_name(name) + row.encode())
        payloads.append(payload)
    return b"".join([_CRC.pack(crc32(*rows, *payloads)), *rows, *payloads])


def _decode_weights(body: Reader) -> dict[str, QTensor]:
    """Read all rows, see that their payloads fill the rest exactly, and only then unpack."""
    (crc,) = body.unpack(_CRC)
    if crc != crc32(body.rest()):
        raise WireError(f"body at byte {body.at}: damaged, its crc is not {crc:#010x}")
    rows: dict[str, _Row] = {}
    for _ in range(body.count(MAX_TENSORS)):
        name = body.name(rows)
        with within(f"tensor {name!r}, row at byte {body.at}"):
            rows[name] = _Row.decode(body)
    declared = sum(row.size for row in rows.values())
    if declared != len(body.rest()):
        raise WireError(f"payloads at byte {body.at}: {len(body.rest())} bytes; accepted: the {declared} declared")
    weights = {}
    for name, row in rows.items():
        with within(f"tensor {name!r}, payload at byte {body.at}"):
            codes = torch.from_numpy(unpack(body.take(row.size), row.width, math.prod(row.shape)))
            weights[name] = QTensor(codes.reshape(row.shape), row.width, row.scale)
    return weights


def _encode_codes(tensor: QTensor) -> bytes:
    expected = torch.float32 if tensor.width.is_float else torch.int16
    if tensor.codes.dtype != expected:
        raise WireError(f"codes are {tensor.codes.dtype}; accepted: {expected} for {tensor.width}")
    return pack(tensor.codes.detach().cpu().reshape(-1).numpy(), tensor.width)


class _Row(NamedTuple):
    """What the body says of a tensor ahead of its payload; checked in both directions."""

    width: Bitwidth
    shape: tuple[int, ...]
    scale: float
    size: int

    def check(self) -> _Row:
        if len(self.shape) > MAX_RANK:
            raise WireError(f"{len(self.shape)} dimensions; accepted: up to {MAX_RANK}")
        if math.prod(max(dim, 1) for dim in self.shape) > MAX_ELEMENTS:  # torch multiplies in 64 bits
            raise WireError(f"shape {self.shape}; accepted: up to {MAX_ELEMENTS} elements, zeros counted as one")
        if not finite("scale", self.scale) > 0:
            raise WireError(f"scale is {self.scale}; accepted: above 0")
        implied = packed_size(math.prod(self.shape), self.width)
        if self.size != implied:
            raise WireError(f"payload of {self.size} bytes; accepted: {implied} for {self.width} {self.shape}")
        return self

    def encode(self) -> bytes:
        self.check()
        dims = [unsigned("dimension", dim, 32) for dim in self.shape]
        form = _FORM.pack(self.width.bits, len(dims)) + struct.pack(f"<{len(dims)}I", *dims)
        return form + _SIZE.pack(self.scale, self.size)

    @classmethod
    def decode(cls, body: Reader) -> _Row:
        bits, rank = body.unpack(_FORM)
        shape = body.unpack(struct.Struct(f"<{rank}I"))
        return cls(_width(bits), shape, *body.unpack(_SIZE)).check()


def _seal(kind: int, head: bytes, body: bytes) -> Parcel:
    header = _HEADER.pack(MAGIC, VERSION, kind, 0, len(head), len(body))
    return Parcel(header + _CRC.pack(crc32(header, head)) + head, body)


def _open(message: bytes, kind: int, limit: int) -> tuple[Reader, Reader]:
    """Check the envelope; return readers of the head and of the body."""
    view = memoryview(message)
    if not _START <= len(view) <= limit:
        raise WireError(f"message of {len(view)} bytes; accepted: {_START} to {limit}")
    magic, version, found, zero, head, body = _HEADER.unpack_from(view)
    if magic == MAGIC and version == VERSION - 1:
        raise WireError(f"byte 4: version is {version}, of prowd 0.1; accepted: {VERSION}: update the sender")
    pairs = ("magic", 0, magic, MAGIC), ("version", 4, version, VERSION), ("kind", 5, found, kind), ("zero", 6, zero, 0)
    for what, at, value, accepted in pairs:
        if value != accepted:
            raise WireError(f"byte {at}: {what} is {value!r}; accepted: {accepted!r}")
    if len(view) != _START + head + body:
        raise WireError(f"message of {len(view)} bytes; accepted: the {_START + head + body} its header declares")
    (crc,) = _CRC.unpack_from(view, _HEADER.size)
    if crc != crc32(view[: _HEADER.size], view[_START : _START + head]):
        raise WireError(f"header and head at byte 0: damaged, their crc is not {crc:#010x}")
    return Reader(view, _START, _START + head), Reader(view, _START + head, len(view))


def _encode_scalars(scalars: Mapping[str, float]) -> bytes:
    entries = [encode_name(name) + _SCALAR.pack(number(name, value)) for name, value in scalars.items()]
    return b"".join([encode_count("scalars", len(entries), MAX_SCALARS), *entries])


def _decode_scalars(head: Reader) -> dict[str, float]:
    """Read the table that ends a head."""
    scalars: dict[str, float] = {}
    for _ in range(head.count(MAX_SCALARS)):
        name = head.name(scalars)
        with within(f"byte {head.at}"):
            scalars[name] = finite(name, *head.unpack(_SCALAR))
    if head.rest():
        raise WireError(f"byte {head.at}: {len(head.rest())} bytes too many in the head")
    return scalars


def _width(bits: int) -> Bitwidth:
    try:
        return Bitwidth(bits)
    except ConfigError as error:
        raise WireError(str(error)) from None
