"""What the server accepts from a client: bytes are hostile, and whatever is not exactly as agreed is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping

from prowd.device.scene import ClientSpec, Scene
from prowd.errors import WireError
from prowd.methods import Method, Slot
from prowd.wire import Update, decode_update
from prowd.wire.packing import packed_size

__all__ = ["admit"]


ALLOWANCE = 65_536  # bytes for everything in an update that is not weights
LARGEST_FLOAT = 2.0**60  # far beyond any weight that learns, and far below what a server's sums and steps can hold


def admit(scene: Scene, method: Method, round_: int, client: ClientSpec, message: bytes) -> Update:
    """Decode a client's reply and hold it to what was agreed, or raise WireError with the reason."""
    slots = method.expects(scene, client)
    weights = sum(packed_size(math.prod(slot.shape), slot.width) for slot in slots.values())
    update = decode_update(message, ALLOWANCE + weights)
    _same("round", update.round, round_)
    _same("client", update.client, client.id)
    _same("width", str(update.width), str(client.width))
    _same("number of examples", update.num_examples, client.num_examples)
    _check_weights(update, slots)
    for name, value in update.metrics.items():
        if name.startswith("accuracy") and not 0 <= value <= 1:
            raise WireError(f"metric {name!r} is {value}; accepted: 0 to 1")
    return update


def _check_weights(update: Update, slots: Mapping[str, Slot]) -> None:
    _same("tensors", sorted(update.weights), sorted(slots))
    for name, tensor in update.weights.items():
        _same(f"shape of {name!r}", tensor.shape, slots[name].shape)
        _same(f"width of {name!r}", str(tensor.width), str(slots[name].width))
        size = float(tensor.codes.abs().amax()) if tensor.width.is_float and tensor.codes.numel() else 0.0
        if size > LARGEST_FLOAT:
            raise WireError(f"{name!r} has a value of size {size:g}; accepted: to {LARGEST_FLOAT:g}")
        largest = slots[name].largest_scale
        if tensor.scale != 1.0 and (largest is None or tensor.scale > largest):
            accepted = "1" if largest is None else f"above 0, to {largest:g}"
            raise WireError(f"{name!r} has scale {tensor.scale}; accepted: {accepted}")


def _same(what: str, found: object, accepted: object) -> None:
    if found != accepted:
        raise WireError(f"{what} is {found}; accepted: {accepted}")
