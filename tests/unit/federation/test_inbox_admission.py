"""Every way an update can differ from what was agreed, refused with its reason; and the ways it may not."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from prowd.device.scene import ClientSpec
from prowd.errors import WireError
from prowd.federation.inbox import ALLOWANCE, admit
from prowd.methods import FedAvg, Local, Method
from prowd.numbers.bits import FLOAT32
from prowd.numbers.quantize import QTensor
from prowd.wire import Task, Update, encode_task, encode_update
from tests.unit.scenes import INT2, INT8, INT16, codes, dot, floats, scene

SCENE = replace(scene(INT8, FLOAT32, architecture=dot()), uplink="native")
LOW, HIGH = SCENE.clients
INTEGERS = Update(
    round=3,
    client=0,
    width=INT8,
    num_examples=12,
    weights={"fc.weight": codes(INT8, 127, -127, 3, 0, shape=(2, 2))},
    metrics={"loss": 2.5, "accuracy_trained": 1.0, "accuracy_received": 0.0},
)
FLOATS = replace(
    INTEGERS, client=1, width=FLOAT32, weights={"fc.weight": floats(1, 2, 3, 4, shape=(2, 2)), "fc.gain": floats(1, 2)}
)


def refusal(message: bytes, spec: ClientSpec = LOW, method: Method | None = None) -> str:
    with pytest.raises(WireError) as error:
        admit(SCENE, method or FedAvg(), 3, spec, message)
    return str(error.value)


def weights(tensor: QTensor, name: str = "fc.weight") -> Update:
    return replace(INTEGERS, weights={name: tensor})


@pytest.mark.parametrize(
    ("spec", "good"),
    [
        (LOW, INTEGERS),
        (HIGH, FLOATS),
        (LOW, replace(INTEGERS, metrics={})),
        (HIGH, replace(FLOATS, weights=dict(sorted(FLOATS.weights.items())))),  # in any order
    ],
    ids=["int8", "float32", "no metrics", "other order"],
)
def test_a_good_update_is_admitted(spec: ClientSpec, good: Update) -> None:
    found = admit(SCENE, FedAvg(), 3, spec, encode_update(good))
    assert encode_update(found) == encode_update(good)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (replace(INTEGERS, round=2), "round is 2; accepted: 3"),
        (replace(INTEGERS, round=4), "round is 4"),
        (replace(INTEGERS, client=1), "client is 1"),
        (replace(INTEGERS, width=INT16), "width is int16"),
        (replace(INTEGERS, width=FLOAT32), "width is float32"),
        (replace(INTEGERS, num_examples=10**9), "number of examples is 1000000000"),
        (replace(INTEGERS, num_examples=0), "number of examples is 0"),
        (replace(INTEGERS, weights={}), "tensors is []"),
        (weights(INTEGERS.weights["fc.weight"], "fc.bias"), "tensors is ['fc.bias']"),
        (replace(INTEGERS, weights={**INTEGERS.weights, "fc.gain": codes(INT8, 1, 1)}), "tensors is ['fc.gain', "),
        (weights(codes(INT8, 1, 2, 3, 4)), "shape of 'fc.weight' is (4,)"),
        (weights(codes(INT8, 1, 2, 3, 4, shape=(1, 4))), "shape of 'fc.weight' is (1, 4)"),
        (weights(codes(INT8, *range(6), shape=(2, 3))), "shape of 'fc.weight' is (2, 3)"),
        (weights(codes(INT2, 1, -1, 0, 0, shape=(2, 2))), "width of 'fc.weight' is int2"),
        (weights(codes(INT16, 1, 2, 3, 4, shape=(2, 2))), "width of 'fc.weight' is int16"),
        (weights(floats(1, 2, 3, 4, shape=(2, 2))), "width of 'fc.weight' is float32"),
        (weights(QTensor(INTEGERS.weights["fc.weight"].codes, INT8, scale=1e6)), "'fc.weight' has scale 1000000.0"),
        (replace(INTEGERS, metrics={"accuracy_trained": 1.5}), "metric 'accuracy_trained' is 1.5"),
        (replace(INTEGERS, metrics={"accuracy_received": -0.1}), "metric 'accuracy_received' is -0.1"),
        (replace(INTEGERS, metrics={"loss": math.nan}), "loss is nan"),
        (replace(INTEGERS, metrics={"loss": math.inf}), "loss is inf"),
    ],
)
def test_what_was_not_agreed_is_refused(bad: Update, reason: str) -> None:
    assert reason in refusal(encode_update(bad))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["fc.weight", "fc.gain"])
def test_numbers_that_are_not_finite_are_refused(name: str, value: float) -> None:
    sent = {other: QTensor(tensor.codes.clone(), FLOAT32) for other, tensor in FLOATS.weights.items()}
    sent[name].codes.view(-1)[1] = value
    found = refusal(encode_update(replace(FLOATS, weights=sent)), HIGH)
    assert f"tensor {name!r}" in found
    assert f"value 1 is {value}" in found


@pytest.mark.parametrize("name", ["fc.weight", "fc.gain"])
@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_that_would_make_sums_infinite_are_refused(name: str, sign: int) -> None:
    def sent(size: float) -> bytes:
        tensor = FLOATS.weights[name]
        values = tensor.codes.clone()
        values.view(-1)[-1] = sign * size
        return encode_update(replace(FLOATS, weights={**FLOATS.weights, name: QTensor(values, FLOAT32)}))

    assert admit(SCENE, FedAvg(), 3, HIGH, sent(2.0**60))
    assert refusal(sent(1.0001 * 2.0**60), HIGH).startswith(f"{name!r} has a value of size 1.15304e+18")


def test_float_clients_must_send_their_gains() -> None:
    bare = replace(FLOATS, weights={"fc.weight": FLOATS.weights["fc.weight"]})
    assert "tensors is ['fc.weight']; accepted: ['fc.gain', 'fc.weight']" in refusal(encode_update(bare), HIGH)


def test_local_training_sends_no_weights() -> None:
    bare = replace(INTEGERS, weights={})
    assert admit(SCENE, Local(), 3, LOW, encode_update(bare)).weights == {}
    assert "tensors is ['fc.weight']; accepted: []" in refusal(encode_update(INTEGERS), LOW, Local())


GOOD = encode_update(INTEGERS)


def test_an_update_cut_off_anywhere_is_refused() -> None:
    reasons = [refusal(GOOD[:length]) for length in range(len(GOOD))]
    assert all(f"message of {length} bytes; accepted: " in reason for length, reason in enumerate(reasons))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda good: b"\x00" * len(good), "magic"),
        (lambda good: b"not a message at all, only some text", "magic"),
        (lambda good: b"", "message of 0 bytes"),
        (lambda good: good + b"\x00", "its header declares"),
        (lambda good: good[:-1] + bytes([good[-1] ^ 1]), "body at byte"),
        (lambda good: good[:30] + bytes([good[30] ^ 1]) + good[31:], "damaged"),
        (lambda good: encode_task(Task(3, 5, 0, INTEGERS.weights)).join(), "kind is 1; accepted: 2"),
    ],
    ids=["zeros", "text", "nothing", "a byte more", "a bit of the body", "a bit of the head", "a task"],
)
def test_garbage_is_refused(spoil: Callable[[bytes], bytes], reason: str) -> None:
    assert reason in refusal(spoil(GOOD))


def test_a_code_that_is_no_number_is_refused() -> None:
    # Int8 codes travel as code + 127; 255 stands for nothing. The body's crc is made right again.
    body = len(GOOD) - struct.unpack_from("<Q", GOOD, 12)[0]
    rest = GOOD[body + 4 : -1] + b"\xff"
    assert "stand for nothing" in refusal(GOOD[:body] + struct.pack("<I", zlib.crc32(rest)) + rest)


def test_no_more_is_read_than_the_agreed_weights_and_an_allowance() -> None:
    # Four Int8 codes are four bytes; so many more may be names, shapes and metrics.
    most = ALLOWANCE + 4
    room = most - len(encode_update(replace(INTEGERS, metrics={})))
    names = [f"{number:03d}".ljust(255, "x") for number in range(room // 264 + 1)]  # each takes 1 + 255 + 8 bytes
    fits = replace(INTEGERS, metrics=dict.fromkeys(names[:-1], 0.0))
    assert most - 264 < len(encode_update(fits)) <= most
    assert admit(SCENE, FedAvg(), 3, LOW, encode_update(fits)).metrics == fits.metrics
    long = encode_update(replace(INTEGERS, metrics=dict.fromkeys(names, 0.0)))
    assert f"message of {len(long)} bytes; accepted: 24 to {most}" in refusal(long)


def test_the_limit_grows_with_the_declared_width() -> None:
    # 200×200 weights: 40,000 bytes at Int8 and 160,000 (and the gains) at Float32, which an Int8 client may not send.
    wide = replace(SCENE, architecture=dot(200, 200))
    tensor = floats(*[0.5] * 40_000, shape=(200, 200))
    gains = floats(*[1.0] * 200)
    big = replace(FLOATS, weights={"fc.weight": tensor, "fc.gain": gains})
    assert admit(wide, FedAvg(), 3, HIGH, encode_update(big)).weights["fc.weight"].shape == (200, 200)
    with pytest.raises(WireError, match=rf"accepted: 24 to {ALLOWANCE + 40_000}"):
        admit(wide, FedAvg(), 3, LOW, encode_update(weights(tensor)))
