"""FedPAQ and FedCOM: clients send how far they moved, quantized without bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from annotated_types import Gt

from prowd.device.scene import ClientSpec, Scene
from prowd.methods import common
from prowd.methods.base import Device, ServerState, Slot
from prowd.methods.movement import largest_scale, mean_movement, movement, stepped
from prowd.methods.notes import weight_notes
from prowd.numbers.bits import INT2
from prowd.numbers.quantize import QTensor, Weights
from prowd.numbers.seeds import generator
from prowd.wire import Task, Update

__all__ = ["FedCom", "FedPaq"]

Bits = Literal["width", "uplink"]


@dataclass(frozen=True)
class FedPaq:
    """w_G ← w_G + mean Q(w_n − w_G) (Reisizadeh et al., 2020), with Q at the client's width."""

    bits: Bits = "width"
    """Whether movements travel at the client's width, or at the width in which it would send weights."""

    name: ClassVar[str] = "fedpaq"
    summary: ClassVar[str] = "average quantized movements instead of weights"

    def init(self, scene: Scene) -> ServerState:
        """Start from the shared random model."""
        return common.initial_state(scene)

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        """Send Q_{s_n}(w_G)."""
        return common.quantized_model(scene, state.model, client)

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Train, and send the movement."""
        model, metrics = common.local_round(scene, task, device, task.weights)
        return common.reply(task, device, moved(scene, task, device, model.weights(), self.bits), metrics)

    def expects(self, scene: Scene, client: ClientSpec) -> Mapping[str, Slot]:
        """A movement for every tensor of the model."""
        return movement_slots(scene, client, self.bits)

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """w_G + mean of the movements."""
        return advanced(scene, state, updates, gamma=1.0)


@dataclass(frozen=True)
class FedCom(FedPaq):
    """w_G ← w_G − ηγ·mean Q((w_G − w_n)/η) (Haddadpour et al., 2021): FedPAQ with a global step γ; η cancels out."""

    gamma: Annotated[float, Gt(0)] = 10.0
    """Global step size; 10 in the paper, and 1 makes it FedPAQ."""

    name: ClassVar[str] = "fedcom"
    summary: ClassVar[str] = "FedPAQ with a global step size"

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """w_G + γ·mean of the movements."""
        return advanced(scene, state, updates, self.gamma)


def movement_slots(scene: Scene, client: ClientSpec, bits: Bits) -> dict[str, Slot]:
    """A movement for every tensor that a client receives."""
    ternary = bits == "uplink" and scene.uplink == "ternary" and not client.width.is_float
    width = INT2 if ternary else client.width
    slots = common.model_slots(scene, client)
    largest = largest_scale(width)
    return {name: replace(slot, width=width, largest_scale=largest) for name, slot in slots.items()}


def moved(scene: Scene, task: Task, device: Device, trained: Weights, bits: Bits) -> dict[str, QTensor]:
    """Quantize the way from what was received to what was made of it."""
    random = generator(scene.seed, "movement", task.round, task.client)
    slots = movement_slots(scene, device.spec, bits)
    return {name: movement(trained[name], task.weights[name], slot.width, random) for name, slot in slots.items()}


def advanced(scene: Scene, state: ServerState, updates: Sequence[Update], gamma: float) -> ServerState:
    """Move the shared model by γ times the mean movement."""
    model = stepped(state.model, mean_movement(state.model, updates), gamma)
    received = common.received(scene, state.model, updates)
    sent = common.values(updates)
    arrived = [stepped(received[update.width], moves, 1.0) for update, moves in zip(updates, sent, strict=True)]
    return replace(state, model=common.rescaled(scene, model), notes=weight_notes(scene, updates, arrived))
