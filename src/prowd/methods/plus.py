"""ProWD-Plus, our own: the server knows what it sent, and three levels say how far that has moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torch import Tensor

from prowd.bits import INT2, Bitwidth
from prowd.errors import ConfigError
from prowd.methods import common
from prowd.methods.base import Device, ServerState, Slot
from prowd.methods.movement import largest_scale, nearest_ternary, residue, stepped
from prowd.methods.notes import weight_notes
from prowd.methods.sideinfo import drift_of, posterior_mean
from prowd.quantize import Weights
from prowd.scene import ClientSpec, Scene
from prowd.wire import Task, Update

__all__ = ["ProWDPlus"]

Values = dict[str, Tensor]


@dataclass(frozen=True)
class ProWDPlus:
    """w_G ← w_G + mean (ŵ_n − Q_{s_n}(w_G)), ŵ_n being what is known of a client's weights. Bytes are FedAvg's.

    Of a client whose weights arrive in its own width, everything is known. Under the ternary uplink the three levels
    that it may send are spent on its movement, and chosen to be nearest to it.
    """

    message: Literal["movement", "weights"] = "movement"
    """What three levels say: the nearest movement, or the weights, which the server refines by what it sent."""
    feedback: bool = False
    """Whether a device keeps what a movement left unsaid for its next message; of a message that is lost, nothing."""

    name: ClassVar[str] = "prowd-plus"
    summary: ClassVar[str] = "average movements, sent as the nearest three levels"

    def __post_init__(self) -> None:
        if self.feedback and self.message == "weights":
            raise ConfigError('options.feedback: true with message "weights"; accepted: with message "movement" only')

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
        if not self._sends_movement(scene, width):
            return common.reply(task, device, common.uplink(scene, device.spec, trained), metrics)
        unsaid = (device.memory.load(task.round) or {}) if self.feedback else {}
        moves: Values = {}
        for name, received in task.weights.items():
            moves[name] = trained[name].codes.double() - received.codes.double()
            moves[name] += unsaid[name].codes.double() if name in unsaid else 0.0
        sent = {name: nearest_ternary(moved, width) for name, moved in moves.items()}
        if self.feedback:
            kept = {name: residue(moved, sent[name], width) for name, moved in moves.items()}
            device.memory.save(task.round, kept)
        return common.reply(task, device, sent, metrics)

    def expects(self, scene: Scene, client: ClientSpec) -> Mapping[str, Slot]:
        """The whole model, or a movement of it."""
        slots = common.uplink_slots(scene, client)
        largest = largest_scale(INT2) if self._sends_movement(scene, client.width) else None
        return {name: replace(slot, largest_scale=largest) for name, slot in slots.items()}

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Move the shared model by the mean of what the clients did."""
        received = common.received(scene, state.model, updates)
        drifts = self._drifts(scene, received, updates)
        arrived = [self._known(scene, update, received[update.width], drifts) for update in updates]
        moved: Values = {}
        for name in state.model:
            senders = [n for n, values in enumerate(arrived) if name in values]
            moves = [arrived[n][name].double() - received[updates[n].width][name].double() for n in senders]
            if senders:
                moved[name] = common.average(moves, common.shares([updates[n] for n in senders]))
        model = common.rescaled(scene, stepped(state.model, moved, 1.0))
        return replace(state, model=model, notes=weight_notes(scene, updates, arrived))

    def _drifts(
        self, scene: Scene, received: Mapping[Bitwidth, Values], updates: Sequence[Update]
    ) -> dict[tuple[Bitwidth, str], float]:
        """How far each tensor of a width has moved, where only levels tell of it."""
        if self.message == "movement":
            return {}
        drifts: dict[tuple[Bitwidth, str], float] = {}
        for width in [width for width in received if _is_ternary(scene, width)]:
            peers = [update.weights for update in updates if update.width == width]
            for name in peers[0]:
                drifts[width, name] = drift_of(received[width][name], [peer[name].codes for peer in peers], width)
        return drifts

    def _known(
        self, scene: Scene, update: Update, received: Values, drifts: Mapping[tuple[Bitwidth, str], float]
    ) -> Values:
        """A client's weights as far as they are known."""
        if self._sends_movement(scene, update.width):
            end = update.width.max_code / update.width.steps  # no weight of its width is beyond
            return {name: (received[name] + q.value()).clamp(-end, end) for name, q in update.weights.items()}
        if _is_ternary(scene, update.width):
            return {
                name: posterior_mean(received[name], tensor.codes, drifts[update.width, name], update.width)
                for name, tensor in update.weights.items()
            }
        return {name: tensor.value() for name, tensor in update.weights.items()}

    def _sends_movement(self, scene: Scene, width: Bitwidth) -> bool:
        return self.message == "movement" and _is_ternary(scene, width)


def _is_ternary(scene: Scene, width: Bitwidth) -> bool:
    """Whether a width's clients can say less than they know."""
    return scene.uplink == "ternary" and not width.is_float and width != INT2
