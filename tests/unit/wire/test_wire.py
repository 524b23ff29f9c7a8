"""Messages: one hostile message for each rule; the builders below know the format too. Round trips: properties."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from dataclasses import replace

import pytest
import torch

from prowd.errors import WireError
from prowd.numbers.bits import FLOAT32, INT2, Bitwidth
from prowd.numbers.quantize import QTensor, Weights
from prowd.wire.messages import (
    MAX_ELEMENTS,
    MAX_SCALARS,
    MAX_TENSORS,
    Task,
    Update,
    decode_task,
    decode_update,
    encode_task,
    encode_update,
    encode_weights,
)

INT8 = Bitwidth(8)
VGG7 = [(128, 3, 3, 3), (128, 128, 3, 3), (256, 128, 3, 3), (256, 256, 3, 3), (512, 256, 3, 3), (512, 512, 3, 3)]
VGG7_FULL = [*VGG7, (1024, 8192), (10, 1024)]


def assert_same(left: Weights, right: Weights) -> None:
    assert list(left) == list(right)
    for name, tensor in left.items():
        other = right[name]
        assert (tensor.width, tensor.scale, tensor.shape) == (other.width, other.scale, other.shape)
        assert tensor.codes.dtype == other.codes.dtype
        assert torch.equal(tensor.codes, other.codes)


def tensor(*codes: int, width: Bitwidth = INT8, scale: float = 1.0) -> QTensor:
    return QTensor(torch.tensor(codes, dtype=torch.int16), width, scale)


def update(**weights: QTensor) -> Update:
    return Update(round=3, client=7, width=INT8, num_examples=500, weights=weights, metrics={"loss": 0.5})


# A second writer of the format, from its drawing, with no checks: it can say what the library refuses to.


def row(name: bytes = b"w", bits: int = 8, dims: tuple[int, ...] = (2,), scale: float = 1.0, size: int = 2) -> bytes:
    form = struct.pack(f"<BB{len(dims)}IdQ", bits, len(dims), *dims, scale, size)
    return bytes([len(name)]) + name + form


def body(*rows: bytes, payload: bytes = b"", count: int | None = None) -> bytes:
    rest = struct.pack("<H", len(rows) if count is None else count) + b"".join(rows) + payload
    return struct.pack("<I", zlib.crc32(rest)) + rest


def head(bits: int = 8, scalars: bytes = b"", count: int = 0) -> bytes:
    return struct.pack("<IIBQH", 3, 7, bits, 500, count) + scalars


def message(body: bytes, head: bytes = head(), kind: int = 2) -> bytes:
    fixed = struct.pack("<4sBBHIQ", b"PRWD", 2, kind, 0, len(head), len(body))
    return fixed + struct.pack("<I", zlib.crc32(fixed + head)) + head + body


def reseal(data: bytes) -> bytes:
    """Make both checksums right, as a hostile sender would; data too short to have them is left alone."""
    if len(data) < 24:
        return data
    size = int.from_bytes(data[8:12], "little")
    crc = zlib.crc32(data[:20] + data[24 : 24 + size]).to_bytes(4, "little")
    first, rest = data[:20] + crc + data[24 : 24 + size], data[24 + size :]
    return first + (zlib.crc32(rest[4:]).to_bytes(4, "little") + rest[4:] if len(rest) >= 4 else rest)


def test_the_second_writer_agrees() -> None:
    entry = struct.pack("<B4sd", 4, b"loss", 0.5)
    expected = message(body(row(), payload=bytes([0, 254])), head(scalars=entry, count=1))
    assert encode_update(update(w=tensor(-127, 127))) == expected


def test_a_body_is_shared() -> None:
    weights = {"w": tensor(1, 2, 3)}
    shared = encode_weights(weights)
    first, second = (encode_task(Task(1, 2, client, weights), shared) for client in (4, 5))
    assert first.body is second.body
    assert encode_task(Task(1, 2, 4, weights)).join() == first.join()
    assert len(first) == len(first.join())
    assert decode_task(second.join()).client == 5


def test_empty_messages() -> None:
    assert decode_update(encode_update(update())).weights == {}
    empty = {"e": QTensor(torch.zeros(3, 0, 2, dtype=torch.int16), INT2)}
    assert decode_update(encode_update(update(**empty))).weights["e"].shape == (3, 0, 2)


def test_strided_and_learnable_tensors_are_encoded_by_value() -> None:
    values = torch.arange(6.0).reshape(2, 3).T.requires_grad_()
    (again,) = decode_task(encode_task(Task(0, 0, 0, {"w": QTensor(values, FLOAT32)})).join()).weights.values()
    assert torch.equal(again.codes, values)
    assert again.codes.is_contiguous()


def test_decoded_tensors_own_their_memory() -> None:
    data = encode_update(update(w=QTensor(torch.ones(4), FLOAT32)))
    decode_update(data).weights["w"].codes.zero_()
    assert decode_update(data).weights["w"].codes.sum() == 4


def test_vgg7_ternary_update_takes_1_6_bits_a_weight() -> None:
    shapes = {f"layer{at}.weight": shape for at, shape in enumerate(VGG7_FULL)}
    random = torch.Generator().manual_seed(1)
    weights = {
        name: QTensor(torch.randint(-1, 2, shape, generator=random, dtype=torch.int16), INT2)
        for name, shape in shapes.items()
    }
    count = sum(tensor.codes.numel() for tensor in weights.values())
    data = encode_update(update(**weights))
    assert 8 * len(data) / count <= 1.61
    tracemalloc.start()
    again = decode_update(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 11 * len(data)
    assert_same(again.weights, weights)


HUGE = 2**32 - 1
HOSTILE: dict[str, tuple[bytes, str]] = {
    "crc of the body": (message(body()[:-1] + b"\x01"), "body at byte .* damaged"),
    "no body": (message(b""), "byte 43: 4 more bytes expected, 0 are left"),
    "body of three bytes": (message(b"abc"), "4 more bytes expected, 3 are left"),
    "no count": (message(bytes(4)), "byte 47: 2 more bytes expected, 0 are left"),
    "too many tensors": (message(body(count=MAX_TENSORS + 1)), f"byte 47: {MAX_TENSORS + 1} entries"),
    "missing rows": (message(body(row(), count=2)), "1 more bytes expected, 0 are left"),
    "name beyond the end": (message(body(b"\xffab")), "byte 50: 255 more bytes expected, 2 are left"),
    "empty name": (message(body(row(b""), payload=b"ab")), "byte 49: name ''"),
    "name not utf-8": (message(body(row(b"\xff\xfe"), payload=b"ab")), "byte 49: name is not UTF-8"),
    "overlong utf-8": (message(body(row(b"\xc0\x80"), payload=b"ab")), "not UTF-8"),
    "duplicate name": (message(body(row(), row(), payload=b"abcd")), "name 'w'; accepted: not empty, and not twice"),
    "width 1": (message(body(row(bits=1), payload=b"ab")), "tensor 'w', row at byte 51: bitwidth: 1 bits"),
    "width 17": (message(body(row(bits=17), payload=b"ab")), "17 bits is not supported"),
    "width 0": (message(body(row(bits=0), payload=b"ab")), "0 bits is not supported"),
    "nine dimensions": (message(body(row(dims=(1,) * 9, size=1), payload=b"a")), "9 dimensions; accepted: up to 8"),
    "255 dimensions": (message(body(row(dims=(HUGE,) * 255, size=1), payload=b"a")), "255 dimensions"),
    "dimensions cut off": (message(body(b"\x01w\x08\x08")), "tensor 'w'.*32 more bytes expected"),
    "huge shape": (message(body(row(dims=(HUGE,) * 8, size=2**64 - 1))), "tensor 'w'.*shape .* elements"),
    "huge empty shape": (message(body(row(dims=(0, *(HUGE,) * 7), size=0))), "zeros counted as one"),
    "shape that wraps to 0": (message(body(row(dims=(2**31, 2**31, 4), size=0))), "elements"),
    "huge tensor": (message(body(row(dims=(HUGE,), size=HUGE))), f"0 bytes; accepted: the {HUGE} declared"),
    "huge sum": (message(body(row(dims=(2**20, 2**20), size=2**40))), f"the {MAX_ELEMENTS} declared"),
    "payload length too long": (message(body(row(size=3), payload=b"abc")), "payload of 3 bytes; accepted: 2"),
    "payload length too short": (message(body(row(size=1), payload=b"a")), "payload of 1 bytes; accepted: 2"),
    "huge payload length": (message(body(row(size=2**64 - 1), payload=b"ab")), f"payload of {2**64 - 1} bytes"),
    "payload missing": (message(body(row(), payload=b"a")), "1 bytes; accepted: the 2 declared"),
    "trailing bytes": (message(body(row(), payload=b"abc")), "3 bytes; accepted: the 2 declared"),
    "scale 0": (message(body(row(scale=0.0), payload=b"ab")), "scale is 0.0; accepted: above 0"),
    "scale below 0": (message(body(row(scale=-1.0), payload=b"ab")), "scale is -1.0"),
    "scale nan": (message(body(row(scale=float("nan")), payload=b"ab")), "scale is nan"),
    "scale infinite": (message(body(row(scale=float("inf")), payload=b"ab")), "scale is inf"),
    "code out of range": (message(body(row(), payload=b"\x00\xff")), "tensor 'w', payload at byte 73: code 1 is no"),
    "base-3 byte": (message(body(row(bits=2, size=1), payload=b"\xf3")), "code 0 is no number of int2"),
    "padding": (message(body(row(bits=3, size=1), payload=b"\x80")), "padding after code 1"),
    "float nan": (message(body(row(bits=32, size=8), payload=b"\xff" * 8)), "value 0 is nan"),
    "client width": (message(body(), head(bits=31)), "head before byte 41: bitwidth: 31 bits"),
    "head cut off": (message(body(), head()[:10]), "byte 24: 17 more bytes expected, 10 are left"),
    "trailing head": (message(body(), head() + b"x"), "byte 43: 1 bytes too many in the head"),
    "too many scalars": (message(body(), head(count=MAX_SCALARS + 1)), f"{MAX_SCALARS + 1} entries"),
    "scalar missing": (message(body(), head(count=1)), "byte 43: 1 more bytes expected"),
    "scalar nan": (message(body(), head(scalars=struct.pack("<B1sd", 1, b"a", float("nan")), count=1)), "a is nan"),
    "scalar twice": (
        message(body(), head(scalars=struct.pack("<B1sd", 1, b"a", 1.0) * 2, count=2)),
        "byte 53: name 'a'",
    ),
    "empty": (b"", "message of 0 bytes; accepted: 24 to"),
    "header cut off": (message(body())[:23], "message of 23 bytes"),
    "magic": (b"PKWD" + message(body())[4:], "byte 0: magic is b'PKWD'"),
    "version 1": (b"PRWD\x01" + message(body())[5:], "byte 4: version is 1, .*; accepted: 2"),
    "version 3": (b"PRWD\x03" + message(body())[5:], "byte 4: version is 3; accepted: 2"),
    "task for update": (message(body(), kind=1), "byte 5: kind is 1; accepted: 2"),
    "kind 0": (message(body(), kind=0), "byte 5: kind is 0"),
    "reserved": (message(body())[:6] + b"\x01" + message(body())[7:], "byte 6: zero is 1; accepted: 0"),
    "head crc": (message(body())[:-10] + b"\xff" + message(body())[-9:], "header and head at byte 0: damaged"),
    "after the end": (message(body()) + b"x", "message of 50 bytes; accepted: the 49"),
    "huge body length": (message(body())[:12] + b"\xff" * 8 + message(body())[20:], "bytes; accepted: the 18446744"),
    "huge head length": (message(body())[:8] + b"\xff" * 4 + message(body())[12:], "bytes; accepted: the 4294967"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_refused_without_allocating(name: str) -> None:
    data, error = HOSTILE[name]
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=error):
            decode_update(data)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_limit_comes_first() -> None:
    data = encode_update(update(w=tensor(1)))
    assert decode_update(data, limit=len(data)).num_examples == 500
    with pytest.raises(WireError, match=f"accepted: 24 to {len(data) - 1}"):
        decode_update(data, limit=len(data) - 1)
    with pytest.raises(WireError, match="accepted: 24 to 10"):
        decode_task(data, limit=10)


def test_as_many_empty_tensors_as_allowed_stay_small() -> None:
    rows = [row(f"{at}".encode(), dims=(0,), size=0) for at in range(MAX_TENSORS)]
    tracemalloc.start()
    assert len(decode_update(message(body(*rows))).weights) == MAX_TENSORS
    assert tracemalloc.get_traced_memory()[1] < 8_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_diverged_can_be_sent_and_is_refused(value: float) -> None:
    weights = {"w": QTensor(torch.tensor([0.0, value]), FLOAT32)}
    with pytest.raises(WireError, match=r"tensor 'w', payload at byte .*: value 1 is"):
        decode_update(encode_update(replace(update(), weights=weights)))
    with pytest.raises(WireError, match="loss is"):
        decode_update(encode_update(replace(update(), metrics={"loss": value})))
