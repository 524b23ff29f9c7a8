"""ProWD-Plus, our own: the server never forgets what it sent, and widths exchange movements instead of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor

from prowd.bits import INT2, Bitwidth
from prowd.float32 import FloatSettings
from prowd.methods import common
from prowd.methods.base import Device, ServerState, Slot
from prowd.methods.movement import nearest_ternary, residue
from prowd.methods.notes import weight_notes
from prowd.methods.sideinfo import drift_of, posterior_mean
from prowd.quantize import QTensor, Weights
from prowd.scene import ClientSpec, Scene
from prowd.wire import Task, Update

__all__ = ["ProWDPlus"]

Values = Mapping[str, Tensor]


@dataclass(frozen=True)
class ProWDPlus:
    """w^s ← w^s + mean of all movements ŵ_n − Q_{s_n}(w^{s_n}); those of other widths may count less.

    The server's model holds one network for each width, under names such as ``int8/conv1.weight``. Bytes are FedAvg's.
    """

    message: Literal["movement", "weights"] = "movement"
    """What three levels say: the nearest movement, or the weights, which the server refines by what it sent."""
    feedback: bool = False
    """Whether a device keeps what a movement left unsaid, and says it in its next round (error feedback)."""
    others: Annotated[float, Ge(0), Le(1)] = 1.0
    """How much a client of another width counts, against one of the same; at 1 all widths have the same model."""
    float_steps: Literal["scaled", "given"] = "scaled"
    """scaled: Float32 clients take steps of 0.03·α², those of the weights that they compute with; given: as set."""

    name: ClassVar[str] = "prowd-plus"
    summary: ClassVar[str] = "exchange movements between widths, in the nearest three levels"

    def init(self, scene: Scene) -> ServerState:
        """Start every width from the same random model."""
        return common.initial_states(scene)

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        """Send the client its width's own model."""
        return common.quantized_model(scene, common.model_of(state, client.width), client)

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Train what was received, and send weights, or in three levels how far they moved."""
        model, metrics = common.local_round(self._with_steps(scene), task, device, task.weights)
        trained = model.weights()
        if not self._sends_movement(scene, device.spec.width):
            return common.reply(task, device, common.uplink(scene, device.spec, trained), metrics)
        unsaid = (device.memory.load(task.round) or {}) if self.feedback else {}
        sent: dict[str, QTensor] = {}
        kept: dict[str, QTensor] = {}
        for name, received in task.weights.items():
            moved = trained[name].codes.double() - received.codes.double()
            moved += unsaid[name].codes.double() if name in unsaid else 0.0
            sent[name] = nearest_ternary(moved, device.spec.width)
            kept[name] = residue(moved, sent[name], device.spec.width)
        if self.feedback:
            device.memory.save(task.round, kept)
        return common.reply(task, device, sent, metrics)

    def expects(self, scene: Scene, client: ClientSpec) -> Mapping[str, Slot]:
        """The whole model, or a movement of it."""
        slots = common.uplink_slots(scene, client)
        scaled = self._sends_movement(scene, client.width)
        return {name: replace(slot, scaled=scaled) for name, slot in slots.items()}

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Move every width's model by what its own clients did, and in part by what the others did."""
        arrived, moves = self._read(scene, state, updates)
        model = dict(state.model)
        for width in common.widths_of(scene):
            own = common.model_of(state, width)
            factors = [1.0 if update.width == width else self.others for update in updates]
            shares = [share * factor for share, factor in zip(common.shares(updates), factors, strict=True)]
            moved = {name: _advanced(name, tensor, moves, shares) for name, tensor in own.items()}
            model |= {f"{width}/{name}": tensor for name, tensor in common.rescaled(scene, moved).items()}
        return replace(state, model=model, notes=weight_notes(scene, updates, arrived))

    def _read(
        self, scene: Scene, state: ServerState, updates: Sequence[Update]
    ) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
        """Every client's weights as far as they are known, and how far they are from what it received."""
        clients = {client.id: client for client in scene.clients}
        arrived: list[dict[str, Tensor]] = []
        moves: list[dict[str, Tensor]] = []
        drifts: dict[tuple[Bitwidth, str], float] = {}
        for update in updates:
            received = {n: q.value() for n, q in self.dispatch(scene, state, clients[update.client]).items()}
            values = {name: tensor.value() for name, tensor in update.weights.items()}
            if self._sends_movement(scene, update.width):
                values = {name: received[name] + value for name, value in values.items()}
            elif _is_ternary(scene, update.width):
                for name, tensor in update.weights.items():
                    key = (update.width, name)
                    if key not in drifts:
                        peers = [peer.weights[name].codes for peer in updates if peer.width == update.width]
                        drifts[key] = drift_of(received[name], peers, update.width)
                    values[name] = posterior_mean(received[name], tensor.codes, drifts[key], update.width)
            arrived.append(values)
            moves.append({name: value.double() - received[name].double() for name, value in values.items()})
        return arrived, moves

    def _sends_movement(self, scene: Scene, width: Bitwidth) -> bool:
        return self.message == "movement" and _is_ternary(scene, width)

    def _with_steps(self, scene: Scene) -> Scene:
        if self.float_steps == "given":
            return scene
        steps = replace(scene.local.float32, lr=FloatSettings.lr, update_exponent=FloatSettings.update_exponent)
        return replace(scene, local=replace(scene.local, float32=steps))


def _is_ternary(scene: Scene, width: Bitwidth) -> bool:
    """Whether a width's clients can say less than they know."""
    return scene.uplink == "ternary" and not width.is_float and width != INT2


def _advanced(name: str, tensor: Tensor, moves: Sequence[Values], shares: Sequence[float]) -> Tensor:
    """A tensor, moved by the mean of those that have it; one that counts for nobody stays."""
    senders = [(moved[name], share) for moved, share in zip(moves, shares, strict=True) if name in moved and share]
    if not senders:
        return tensor
    total = torch.zeros(tensor.shape, dtype=torch.float64)
    for moved, share in senders:
        total.add_(moved, alpha=share)
    return (tensor.double() + total / sum(share for _, share in senders)).float()
