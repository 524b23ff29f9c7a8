"""ProWD-Plus, our own: low-bit and high-bit clients each keep a model of their own, and exchange movements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from prowd.device.scene import ClientSpec, Scene
from prowd.methods import common
from prowd.methods.base import Device, ServerState, Slot
from prowd.methods.movement import best_ternary, largest_scale, stepped
from prowd.methods.notes import weight_notes
from prowd.numbers.bits import INT2, Bitwidth
from prowd.numbers.quantize import Weights
from prowd.wire import Task, Update

__all__ = ["ProWDPlus", "arrived_weights", "sends_movement"]

LOW, HIGH = "low/", "high/"  # where the server's model keeps those of the two sides
Values = Mapping[str, Tensor]


@dataclass(frozen=True)
class ProWDPlus:
    """Sides exchange movements, not places. Bytes are FedAvg's.

    With m_L and m_H the mean movements of the low-bit and of the high-bit clients from what each was sent,

        w_H ← w_H + m_H + up·[m_L·m_H > 0]·m_L
        w_L ← w_L + m_L + m_H, and from there a share ``pull`` of the way to w_H, within ±1.

    So low-bit clients never lose what they have learnt for their levels, and high-bit clients never see these levels.
    Under the ternary uplink the three levels that a client may send are spent on its movement.
    """

    up: Annotated[float, Ge(0)] = 0.5
    """How much of the low side's movement the high side takes in, where both have the same sign."""
    pull: Annotated[float, Ge(0), Le(1)] = 0.1
    """Which share of the way to the high side's model the low side's goes after each round."""

    name: ClassVar[str] = "prowd-plus"
    summary: ClassVar[str] = "a model for each side; the sides exchange movements, in three levels"

    def init(self, scene: Scene) -> ServerState:
        """Start both sides from the shared random model; only Float32 clients, which are high, have gains."""
        model, shapes = common.initial_state(scene).model, scene.architecture.shapes
        low = {f"{LOW}{name}": model[name].clone() for name in shapes if _has_low(scene)}
        return ServerState(0, {**low, **{f"{HIGH}{name}": tensor for name, tensor in model.items()}})

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        """Send Q_{s_n} of the model of the client's side."""
        return common.quantized_model(scene, _model_of(scene, state, client.width), client)

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
        """Move both models, each by what its own clients did and what it takes from the others."""
        received = _received(scene, state, updates)
        arrived = [arrived_weights(scene, update, received[update.width]) for update in updates]
        low, high = (_mean_movement(scene, updates, received, arrived, low=low) for low in (True, False))
        model = common.rescaled(scene, stepped(_within(HIGH, state.model), {**high, **self._upwards(low, high)}, 1.0))
        moved = {f"{HIGH}{name}": tensor for name, tensor in model.items()}
        if _has_low(scene):
            below = stepped(stepped(_within(LOW, state.model), low, 1.0), high, 1.0)
            pulled = {name: tensor + self.pull * (model[name] - tensor) for name, tensor in below.items()}
            clipped = {name: tensor.clamp(-1.0, 1.0) for name, tensor in common.rescaled(scene, pulled).items()}
            moved |= {f"{LOW}{name}": tensor for name, tensor in clipped.items()}
        notes = weight_notes(scene, updates, arrived)
        return replace(state, model={name: moved[name] for name in state.model}, notes={**state.notes, **notes})

    def _upwards(self, low: Values, high: Values) -> dict[str, Tensor]:
        """How far the weights of the high side go, where the low side has moved as well."""
        both = low if high else {}
        return {name: high[name] + self.up * torch.where(high[name] * m > 0, m, 0.0) for name, m in both.items()}


def sends_movement(scene: Scene, width: Bitwidth) -> bool:
    """Whether a width's clients know more of their weights than three levels can say."""
    return scene.uplink == "ternary" and not width.is_float and width != INT2


def arrived_weights(scene: Scene, update: Update, received: Values) -> dict[str, Tensor]:
    """ŵ_n: the weights that came, or what the client received and its movement, within the width's codes."""
    came = {name: tensor.value() for name, tensor in update.weights.items()}
    if not sends_movement(scene, update.width):
        return came
    end = update.width.max_code / update.width.steps
    return {name: value.clamp(-end, end) for name, value in stepped(received, came, 1.0).items()}


def _has_low(scene: Scene) -> bool:
    return any(common.is_low(scene, width) for width in scene.counts)


def _model_of(scene: Scene, state: ServerState, width: Bitwidth) -> dict[str, Tensor]:
    """The model of a width's side."""
    return _within(LOW if common.is_low(scene, width) else HIGH, state.model)


def _within(prefix: str, model: Values) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in model.items() if name.startswith(prefix)}


def _received(scene: Scene, state: ServerState, updates: Sequence[Update]) -> dict[Bitwidth, dict[str, Tensor]]:
    """What the clients of each width were sent, as floats."""
    found: dict[Bitwidth, dict[str, Tensor]] = {}
    for width in sorted({update.width for update in updates}):
        members = [update for update in updates if update.width == width]
        found |= common.received(scene, _model_of(scene, state, width), members)
    return found


def _mean_movement(
    scene: Scene,
    updates: Sequence[Update],
    received: Mapping[Bitwidth, Values],
    arrived: Sequence[Values],
    *,
    low: bool,
) -> dict[str, Tensor]:
    """m_L or m_H, by examples; nothing if no client of the side has answered."""
    members = [n for n, update in enumerate(updates) if common.is_low(scene, update.width) == low]
    moves = [
        {name: value.double() - received[updates[n].width][name].double() for name, value in arrived[n].items()}
        for n in members
    ]
    return common.averages(scene, [updates[n] for n in members], moves)
