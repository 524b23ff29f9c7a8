"""FedPAQ and FedCOM: clients send how far they moved, quantized without bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from annotated_types import Gt

from prowd.device.scene import ClientSpec, Scene
from prowd.methods import common
from prowd.methods.base import Device, ServerState, Slot
from prowd.methods.movement import largest_scale, movement, stepped
from prowd.methods.notes import weight_notes
from prowd.numbers.quantize import QTensor, Weights
from prowd.numbers.streams import Stream
from prowd.wire import Task, Update

__all__ = ["FedCom", "FedPaq"]


@dataclass(frozen=True)
class FedPaq:
    """w_G ← w_G + mean Q(w_n − w_G) (Reisizadeh et al., 2020), with Q at the client's width."""

    bits: Literal["width", "uplink"] = "width"
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
        return common.reply(task, device, self.moved(scene, task, device, model.weights()), metrics)

    def expects(self, scene: Scene, client: ClientSpec) -> Mapping[str, Slot]:
        """A movement for every tensor that a client receives."""
        slots = common.uplink_slots(scene, client) if self.bits == "uplink" else common.model_slots(scene, client)
        return {
            name: replace(slot, largest_scale=largest_scale(slot.width), movement=True) for name, slot in slots.items()
        }

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """w_G + mean of the movements."""
        return advanced(scene, state, updates, gamma=1.0)

    def moved(self, scene: Scene, task: Task, device: Device, trained: Weights) -> dict[str, QTensor]:
        """Quantize the way from what was received to what was made of it."""
        stream = Stream.of(scene.seed, "movement", task.round, task.client)
        return {
            name: movement(trained[name], task.weights[name], slot.width, stream, number)
            for number, (name, slot) in enumerate(self.expects(scene, device.spec).items())
        }


@dataclass(frozen=True)
class FedCom(FedPaq):
    """w_G ← w_G − ηγ·mean Q((w_G − w_n)/η) (Haddadpour et al., 2021): FedPAQ with a global step γ; η cancels out.

    Local rates are divided by γ, so that η·γ stays what FedPAQ has: in the analysis the local rate falls with γ.
    """

    gamma: Annotated[float, Gt(0)] = 10.0
    """Global step size, by which local rates are divided; 10 in the paper, and 1 makes it FedPAQ."""

    name: ClassVar[str] = "fedcom"
    summary: ClassVar[str] = "FedPAQ with a global step size"

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """w_G + γ·mean of the movements."""
        return advanced(scene, state, updates, self.gamma)

    def rate(self, scene: Scene, client: ClientSpec) -> float:
        """Learn the more slowly the further the server goes."""
        return 1 / self.gamma


def advanced(scene: Scene, state: ServerState, updates: Sequence[Update], gamma: float) -> ServerState:
    """Move the shared model by γ times the mean movement."""
    sent = common.values(updates)
    model = stepped(state.model, common.averages(scene, updates, sent), gamma)
    received = common.received(scene, state.model, updates)
    arrived = [stepped(received[update.width], moves, 1.0) for update, moves in zip(updates, sent, strict=True)]
    return replace(state, model=common.rescaled(scene, model), notes=weight_notes(scene, updates, arrived))
