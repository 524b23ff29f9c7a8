"""Devices that lie: what each kind sends in the place of an honest update, in the format that is expected of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch

from prowd.federation.client import Clients
from prowd.methods import Slot
from prowd.numbers.quantize import QTensor, quantize
from prowd.wire import Parcel, Task, Update, decode_task, decode_update, encode_update

Lie = Callable[[QTensor, QTensor, Slot], QTensor]
"""From an honest tensor, what was sent, and what is expected."""

MANY = 2**62


def zeros(honest: QTensor, sent: QTensor, slot: Slot) -> QTensor:
    """Nothing."""
    return QTensor(torch.zeros_like(honest.codes), slot.width)


def thousandfold(honest: QTensor, sent: QTensor, slot: Slot) -> QTensor:
    """A thousand times the tensor, or as much of it as its format holds."""
    if slot.width.is_float:
        return replace(honest, codes=1000 * honest.codes)
    codes = (1000 * honest.codes.long()).clamp(-slot.width.max_code, slot.width.max_code).to(torch.int16)
    return QTensor(codes, slot.width, slot.largest_scale or 1.0)


def flipped(honest: QTensor, sent: QTensor, slot: Slot) -> QTensor:
    """The same with the other sign."""
    return replace(honest, codes=-honest.codes)


def ones(honest: QTensor, sent: QTensor, slot: Slot) -> QTensor:
    """As near to +1 as the format has it, everywhere."""
    code = 1 if slot.width.is_float else slot.width.max_code
    return QTensor(torch.full_like(honest.codes, code), slot.width)


def backwards(honest: QTensor, sent: QTensor, slot: Slot, times: float = 1.0) -> QTensor:
    """As far as it went, or some times as far, the other way."""
    if slot.movement and slot.width.is_float:
        return replace(honest, codes=-times * honest.codes)
    if slot.movement:
        far = times * honest.scale
        return replace(honest, codes=-honest.codes, scale=min(far, slot.largest_scale or far))
    origin = quantize(sent.value(), slot.width).value()
    return quantize(origin - times * (honest.value() - origin), slot.width)


KINDS: dict[str, Lie | None] = {
    "sign flip": flipped,
    "2^62 examples, backwards": backwards,  # its own movement, with a claim that it makes when the run begins
    "label flip": None,  # it trains, on wrong labels
    "+1 everywhere": ones,
    "three times backwards": partial(backwards, times=3.0),
    "collusion of two": partial(backwards, times=3.0),
    "2^62 examples": zeros,  # the same claim
    "zeros": zeros,
    "times 1,000": thousandfold,
}


@dataclass(frozen=True)
class Mixed:
    """All clients in this process; the hostile ones train, then send something else."""

    clients: Clients
    hostile: Sequence[int]
    kind: str
    remote: ClassVar[bool] = False

    def exchange(self, parcels: Mapping[int, Parcel]) -> Iterator[tuple[int, bytes]]:
        """Answer for each client in turn."""
        first: dict[str, QTensor] = {}
        for client, parcel in parcels.items():
            runtime, message = self.clients[client], parcel.join()
            reply = runtime.handle(message)
            lie = KINDS[self.kind] if client in self.hostile else None
            if lie is not None:
                slots = runtime.method.expects(runtime.scene, runtime.device.spec)
                made = falsified(decode_update(reply), decode_task(message), slots, lie)
                if self.kind == "collusion of two":  # both send what the first of them has made
                    first = first or dict(made.weights)
                    made = replace(made, weights=first)
                reply = encode_update(made)
            yield client, reply

    def close(self) -> None:
        """Nothing was started."""


def falsified(update: Update, task: Task, slots: Mapping[str, Slot], lie: Lie) -> Update:
    """An update with a lie in the place of every tensor."""
    weights = {name: lie(tensor, task.weights[name], slots[name]) for name, tensor in update.weights.items()}
    return replace(update, weights=weights)
