"""What ProWD-Plus was before each side had a model of its own: one model, which moves by the mean movement.

Use it as ``-s method=experiments/plus/one_model.py:OneModel``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from annotated_types import Gt
from torch import Tensor

from prowd.device.scene import ClientSpec, Scene
from prowd.methods import common
from prowd.methods.base import Device, ServerState, Slot
from prowd.methods.movement import best_ternary, largest_scale, stepped
from prowd.methods.notes import weight_notes
from prowd.methods.plus import sends_movement
from prowd.numbers.bits import INT2
from prowd.numbers.quantize import Weights
from prowd.wire import Task, Update

__all__ = ["OneModel"]


@dataclass(frozen=True)
class OneModel:
    """w_G ← w_G + γ·mean (ŵ_n − Q_{s_n}(w_G)), ŵ_n being what is known of a client's weights. Bytes are FedAvg's.

    Of a client whose weights arrive in its own width, everything is known. Under the ternary uplink the three levels
    that it may send are spent on its movement, and chosen to say the most of it.
    """

    gamma: Annotated[float, Gt(0)] = 1.5
    """γ, how far the server goes along the mean movement of the weights; gains are averaged."""

    name: ClassVar[str] = "prowd-one-model"
    summary: ClassVar[str] = "one model for all: go along the mean movement, sent as the best three levels"

    def init(self, scene: Scene) -> ServerState:
        """Start from the shared random model."""
        return common.initial_state(scene)

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        """Send Q_{s_n}(w_G)."""
        return common.quantized_model(scene, state.model, client)

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Train what was received, and send weights, or in three levels how far they moved."""
        model, metrics = common.local_round(scene, task, device, task.weights)
        trained, width = model.weights(), device.spec.width
        if not sends_movement(scene, width):
            return common.reply(task, device, common.uplink(scene, device.spec, trained), metrics)
        moves = {name: trained[name].codes.double() - q.codes.double() for name, q in task.weights.items()}
        return common.reply(task, device, {name: best_ternary(x, width) for name, x in moves.items()}, metrics)

    def expects(self, scene: Scene, client: ClientSpec) -> Mapping[str, Slot]:
        """The whole model, or a movement of it."""
        slots = common.uplink_slots(scene, client)
        if not sends_movement(scene, client.width):
            return slots
        largest = largest_scale(INT2)
        return {name: replace(slot, largest_scale=largest, movement=True) for name, slot in slots.items()}

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Move the shared model by the mean of what the clients did."""
        received = common.received(scene, state.model, updates)
        arrived = [_arrived(scene, update, received[update.width]) for update in updates]
        moves = [
            {name: value.double() - received[update.width][name].double() for name, value in values.items()}
            for update, values in zip(updates, arrived, strict=True)
        ]
        means = common.averages(scene, updates, moves)
        further = {name: self.gamma * means[name] for name in scene.architecture.shapes}
        model = common.rescaled(scene, stepped(state.model, {**means, **further}, 1.0))
        return replace(state, model=model, notes={**state.notes, **weight_notes(scene, updates, arrived)})


def _arrived(scene: Scene, update: Update, received: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """ŵ_n: the weights that were sent, or what was received and its movement, within the width's codes."""
    sent = {name: tensor.value() for name, tensor in update.weights.items()}
    if not sends_movement(scene, update.width):
        return sent
    end = update.width.max_code / update.width.steps
    return {name: value.clamp(-end, end) for name, value in stepped(received, sent, 1.0).items()}
