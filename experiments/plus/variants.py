"""Parts that ProWD-Plus might have had, each alone; README.md says what came of them.

Use one as ``-s method=experiments/plus/variants.py:Momentum``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from prowd.device.scene import ClientSpec, Scene
from prowd.methods import ProWDPlus, common
from prowd.methods.base import Device, ServerState
from prowd.methods.movement import best_ternary, stepped
from prowd.methods.plus import HIGH, LOW, arrived_weights, sends_movement
from prowd.numbers.bits import INT2, Bitwidth
from prowd.numbers.quantize import QTensor, Weights, quantize
from prowd.wire import Task, Update

__all__ = ["Feedback", "HandOver", "Momentum", "PerWidth"]

Values = Mapping[str, Tensor]


@dataclass(frozen=True)
class Momentum(ProWDPlus):
    """Each side's model goes on along its last direction: d ← β·d + step, w ← w + d."""

    beta: Annotated[float, Ge(0), Lt(1)] = 0.5

    name: ClassVar[str] = "plus-momentum"
    summary: ClassVar[str] = "ProWD-Plus with momentum at the server"

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """The step of ProWD-Plus, and a share of the last one."""
        made, last = super().aggregate(scene, state, updates), state.memory
        steps = {name: made.model[name] - state.model[name] for name in made.model}
        steps = {name: step + self.beta * last[name] if name in last else step for name, step in steps.items()}
        moved = {name: state.model[name] + step for name, step in steps.items()}
        model = {name: w.clamp(-1, 1) if name.startswith(LOW) else w for name, w in moved.items()}
        return replace(made, model=model, memory=steps)


@dataclass(frozen=True)
class Feedback(ProWDPlus):
    """Clients keep what three levels could not say of a movement, and add it to the next one."""

    name: ClassVar[str] = "plus-feedback"
    summary: ClassVar[str] = "ProWD-Plus with error feedback on the devices"

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Send the movement and what is left of those before, in three levels."""
        width = device.spec.width
        if not sends_movement(scene, width):
            return super().train(scene, task, device)
        model, metrics = common.local_round(scene, task, device, task.weights)
        trained, left = model.weights(), device.memory.load(task.round) or {}
        wanted = {name: trained[name].codes.double() - q.codes.double() for name, q in task.weights.items()}
        wanted = {name: (x + left[name].codes if name in left else x) for name, x in wanted.items()}
        sent = {name: best_ternary(x, width) for name, x in wanted.items()}
        rests = {name: (x - sent[name].value().double() * width.steps).round() for name, x in wanted.items()}
        end = width.max_code
        kept = {name: QTensor(rest.clamp(-end, end).to(torch.int16), width) for name, rest in rests.items()}
        device.memory.save(task.round, kept)
        return common.reply(task, device, sent, metrics)


@dataclass(frozen=True)
class HandOver(ProWDPlus):
    """The low side is pulled to s·w_H, with that s for each layer which Q_2 distorts least: cos(Q_2(s·w), w)."""

    name: ClassVar[str] = "plus-hand-over"
    summary: ClassVar[str] = "ProWD-Plus with a pull that knows of three levels"

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """ProWD-Plus without its pull, then the pull to the scaled model."""
        made = replace(self, pull=0.0)._without_pull(scene, state, updates)
        model = dict(made.model)
        for name in scene.architecture.shapes:
            low, high = model[f"{LOW}{name}"], model[f"{HIGH}{name}"]
            pulled = low + self.pull * (_best_scale(high) * high - low)
            model[f"{LOW}{name}"] = pulled.clamp(-1, 1)
        return replace(made, model=model)

    def _without_pull(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        return super().aggregate(scene, state, updates)


def _best_scale(w: Tensor) -> float:
    """The s at which three levels keep the direction of w best."""

    def kept(scale: float) -> float:
        return float(torch.cosine_similarity(quantize(scale * w, INT2).value().flatten(), w.flatten(), 0))

    rms = float(w.square().mean().sqrt())
    return max((step / 20 / rms for step in range(4, 21)), key=kept) if rms else 1.0


@dataclass(frozen=True)
class PerWidth(ProWDPlus):
    """A model for each width, in the order of bits; with two widths it is ProWD-Plus.

    A width moves by its own mean movement m, in full by that of all higher ones, and by ``up`` times that of all lower
    ones where signs agree; then a share ``pull`` of the way to the next higher width's model.
    """

    name: ClassVar[str] = "plus-per-width"
    summary: ClassVar[str] = "ProWD-Plus with a model for each width"

    def init(self, scene: Scene) -> ServerState:
        """Start every width from the shared random model; only Float32 clients have gains."""
        model, shapes = common.initial_state(scene).model, scene.architecture.shapes
        return ServerState(
            0,
            {
                f"{width}/{name}": tensor.clone()
                for width in _widths(scene)
                for name, tensor in model.items()
                if width.is_float or name in shapes
            },
        )

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        """Send Q_{s_n} of the width's model."""
        return common.quantized_model(scene, _of(client.width, state.model), client)

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Move every width's model, from the highest down."""
        moves = [_movement(scene, state, update) for update in updates]
        model: dict[str, Tensor] = {}
        above: Values | None = None
        for width in reversed(_widths(scene)):
            own, higher, lower = (
                self._mean(scene, updates, moves, [n for n, update in enumerate(updates) if test(update.width)])
                for test in (width.__eq__, lambda other, w=width: other > w, lambda other, w=width: other < w)
            )
            below = stepped(stepped(_of(width, state.model), own, 1.0), _weights_of(scene, higher), 1.0)
            direction = stepped({name: torch.zeros_like(w) for name, w in below.items()}, own, 1.0)
            direction = stepped(direction, _weights_of(scene, higher), 1.0)
            agreed = {name: torch.where(direction[name] * m > 0, m, 0.0) for name, m in lower.items()}
            moved = stepped(below, agreed, self.up)
            if above is not None:
                moved = {name: (w + self.pull * (above[name] - w)).clamp(-1, 1) for name, w in moved.items()}
            above = moved
            model |= {f"{width}/{name}": tensor for name, tensor in moved.items()}
        return replace(state, model={name: model[name] for name in state.model})

    def _mean(self, scene: Scene, updates: Sequence[Update], moves: Sequence[Values], some: Sequence[int]) -> Values:
        return common.averages(scene, [updates[n] for n in some], [moves[n] for n in some])


def _widths(scene: Scene) -> list[Bitwidth]:
    return sorted({client.width for client in scene.clients})


def _of(width: Bitwidth, model: Values) -> dict[str, Tensor]:
    prefix = f"{width}/"
    return {name.removeprefix(prefix): tensor for name, tensor in model.items() if name.startswith(prefix)}


def _weights_of(scene: Scene, moves: Values) -> dict[str, Tensor]:
    """Without gains, which only Float32 clients share."""
    return {name: move for name, move in moves.items() if name in scene.architecture.shapes}


def _movement(scene: Scene, state: ServerState, update: Update) -> dict[str, Tensor]:
    """How far a client's weights are from what it was sent."""
    sent = common.received(scene, _of(update.width, state.model), [update])[update.width]
    arrived = arrived_weights(scene, update, sent)
    return {name: value.double() - sent[name].double() for name, value in arrived.items()}
