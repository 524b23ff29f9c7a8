"""Messages: updates and tasks as they are decoded, and updates as the server admits them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from random import Random

import torch

from fuzz.mending import mutate
from fuzz.targets import Change, Target, bounded
from prowd.device.scene import ClientSpec, Scene
from prowd.errors import WireError
from prowd.federation.inbox import ALLOWANCE, admit
from prowd.methods import FedAvg, FedCom, Local, Method
from prowd.nets import Architecture, Flatten, Linear
from prowd.numbers.bits import FLOAT32, INT2, Bitwidth
from prowd.numbers.quantize import QTensor, Rate, Weights
from prowd.wire import Task, Update, Work, decode_task, decode_update, encode_task, encode_update
from prowd.wire.packing import packed_size

__all__ = ["ADMIT", "WIRE_TASK", "WIRE_UPDATE", "agreements", "check_admit", "check_task", "check_update"]

TASK, UPDATE = 1, 2
FIXED, EACH = 2**18, 256  # an entry of 20 bytes becomes several objects, a ternary byte ten bytes


def check_update(data: bytes) -> bool:
    """Decode an update; WireError is the only error, and what decodes encodes to the same bytes."""
    with bounded(FIXED, EACH, len(data)):
        try:
            update = decode_update(data)
        except WireError:
            return False
    check_content(data, update.weights, update.metrics)
    assert encode_update(update) == data
    return True


def check_task(data: bytes) -> bool:
    """Decode a task; the same holds."""
    with bounded(FIXED, EACH, len(data)):
        try:
            task = decode_task(data)
        except WireError:
            return False
    check_content(data, task.weights, task.settings)
    assert task.work.rate.mantissa % 2 == 1
    assert encode_task(task).join() == data
    return True


def check_content(data: bytes, weights: Weights, scalars: Mapping[str, float]) -> None:
    """All numbers are what their width allows, and there are no more of them than the bytes can hold."""
    assert sum(tensor.codes.nbytes for tensor in weights.values()) <= 10 * len(data)
    assert all(math.isfinite(value) for value in scalars.values())
    for tensor in weights.values():
        assert math.isfinite(tensor.scale)
        assert tensor.scale > 0
        if tensor.width.is_float:
            assert tensor.codes.dtype == torch.float32
            assert tensor.codes.isfinite().all()
        else:
            assert tensor.codes.dtype == torch.int16
            assert not (tensor.codes.int().abs() > tensor.width.max_code).any()


@dataclass(frozen=True)
class Agreement:
    """Who was asked for what."""

    scene: Scene
    method: Method
    client: ClientSpec
    round: int = 3

    def update(self) -> Update:
        """A reply that is as agreed."""
        slots = self.method.expects(self.scene, self.client)
        weights = {name: tensor(slot.width, slot.shape) for name, slot in slots.items()}
        metrics = {"loss": 2.5, "accuracy_trained": 1.0, "accuracy_received": 0.0}
        return Update(self.round, self.client.id, self.client.width, self.client.num_examples, weights, metrics)


@cache
def agreements() -> tuple[Agreement, ...]:
    """Weights in a native width and in base 3, floats with their gains, movements with a scale, and no weights."""
    network = Architecture((Flatten(), Linear("fc", 3, 2, relu=False)), (1, 1, 3))
    clients = ClientSpec(0, Bitwidth(6), 12), ClientSpec(1, FLOAT32, 7)
    ternary = Scene(network, clients)
    native = replace(ternary, uplink="native")
    kinds: list[tuple[Scene, Method]] = [(native, FedAvg()), (ternary, FedAvg()), (native, FedCom()), (native, Local())]
    return tuple(Agreement(scene, method, client) for scene, method in kinds for client in clients)


def check_admit(data: bytes) -> bool:
    """Admit what follows the first byte, which says to what agreement; the update is then as agreed."""
    agreed, message = agreements()[data[0] % len(agreements())] if data else agreements()[0], data[1:]
    with bounded(FIXED, EACH, len(data)):
        try:
            update = admit(agreed.scene, agreed.method, agreed.round, agreed.client, message)
        except WireError:
            return False
    check_content(message, update.weights, update.metrics)
    assert encode_update(update) == message
    expected = replace(agreed.update(), weights=update.weights, metrics=update.metrics)
    assert update == expected
    slots = agreed.method.expects(agreed.scene, agreed.client)
    assert {name: tensor.shape for name, tensor in update.weights.items()} == {n: s.shape for n, s in slots.items()}
    assert all(tensor.width == slots[name].width for name, tensor in update.weights.items())
    for name, sent in update.weights.items():
        largest = slots[name].largest_scale
        assert sent.scale == 1 or (largest is not None and 0 < sent.scale <= largest)
    assert all(0 <= value <= 1 for name, value in update.metrics.items() if name.startswith("accuracy"))
    most = ALLOWANCE + sum(packed_size(math.prod(slot.shape), slot.width) for slot in slots.values())
    assert len(message) <= most
    return True


def tensor(width: Bitwidth, shape: tuple[int, ...], scale: float = 1.0) -> QTensor:
    """Numbers from the least of a width to the largest."""
    count, most = math.prod(shape), 1.0 if width.is_float else width.max_code
    values = torch.linspace(-most, most, count).reshape(shape)
    return QTensor(values if width.is_float else values.to(torch.int16), width, scale)


def sample_weights() -> list[dict[str, QTensor]]:
    """No tensor, one of each width, and some of odd shapes."""
    widths = [Bitwidth(bits) for bits in range(2, 17)] + [FLOAT32]
    odd = {
        "scalar": tensor(Bitwidth(8), ()),
        "é": tensor(Bitwidth(3), (3, 0, 2)),
        "deep": tensor(INT2, (1, 2, 1, 2, 1, 2, 1, 1), 0.25),
    }
    return [{}, *({"w": tensor(width, (11,), 1 / 3)} for width in widths), odd]


def updates() -> list[bytes]:
    """Updates to begin with."""
    metrics = {"loss": 0.5, "accuracy": 1.0}
    return [encode_update(Update(1, 2, Bitwidth(8), 500, weights, metrics)) for weights in sample_weights()]


def tasks() -> list[bytes]:
    """Tasks to begin with."""
    work = Work(200, 64, Rate(205, -11), 2**64 - 1)
    settings = {"rate": 0.1, "mu": -1e300}
    return [encode_task(Task(1, 2, 3, weights, settings, work)).join() for weights in sample_weights()]


def replies() -> list[bytes]:
    """Updates that are admitted, each behind the number of what was agreed."""
    return [bytes([number]) + encode_update(agreed.update()) for number, agreed in enumerate(agreements())]


def mutate_reply(data: bytes, random: Random, change: Change) -> bytes:
    """Change the update, and seldom what was agreed."""
    first = random.randrange(256) if random.random() < 0.1 or not data else data[0]
    return bytes([first]) + mutate(UPDATE, data[1:], random, change)


def names() -> list[str]:
    """The names that something depends on."""
    return ["PRWD", "accuracy", "fc.weight", "fc.gain"]


WIRE_UPDATE = Target(check_update, updates, names, partial(mutate, UPDATE))
WIRE_TASK = Target(check_task, tasks, names, partial(mutate, TASK))
ADMIT = Target(check_admit, replies, names, mutate_reply)
