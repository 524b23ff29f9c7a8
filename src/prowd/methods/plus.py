"""ProWD-Plus, our own: the server knows what it sent, and three levels say how far that has moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le
from torch import Tensor

from prowd.bits import INT2, Bitwidth
from prowd.dequantizer import DequantizerSettings, Ladder
from prowd.errors import ConfigError
from prowd.methods import common
from prowd.methods.base import Device, ServerState, Slot
from prowd.methods.lifting import Lifter
from prowd.methods.masking import masked_mean, tensor_masks
from prowd.methods.movement import blended, largest_scale, nearest_ternary, residue, stepped
from prowd.methods.notes import mask_notes, weight_notes
from prowd.methods.sideinfo import refined
from prowd.quantize import QTensor, Weights
from prowd.scene import ClientSpec, Scene
from prowd.selection import Mask, select
from prowd.wire import Task, Update

__all__ = ["ProWDPlus"]

Values = dict[str, Tensor]
OWN = "own/"  # where a device keeps the weights that it had trained; what it left unsaid has the tensor's name


@dataclass(frozen=True)
class ProWDPlus:
    """w_G ← w_G + γ·mean (ŵ_n − Q_{s_n}(w_G)), ŵ_n being what is known of a client's weights. Bytes are FedAvg's.

    Of a client whose weights arrive in its own width, everything is known. Under the ternary uplink the three levels
    that it may send are spent on its movement, and chosen to be nearest to it.
    """

    gamma: Annotated[float, Gt(0)] = 1.5
    """γ, how far the server goes along the mean movement."""

    message: Literal["movement", "weights"] = "movement"
    """What three levels say: the movement, or the weights, which the server refines by what it sent."""
    level: Literal["nearest", "unbiased"] = "unbiased"
    """How large a movement's level is: nearest to it, which is shorter, or going as far along it as it went itself."""
    feedback: bool = False
    """Whether a device keeps what a movement left unsaid for its next message; of a message that is lost, nothing."""
    blend: Annotated[int, Ge(0), Le(15)] = 0
    """A ternary sender sets out from w + ((own − w) >> blend), own being what it had trained last; 0: from w."""
    sparsity: Annotated[float, Ge(0), Le(1)] = 0.0
    """Largest share of low-bit movements that a mask may drop, those that go least with the high-bit ones; 0: none."""
    refine: Literal["posterior", "phi"] = "posterior"
    """How weights are refined: by the mean of a truncated Gaussian, or by a φ that reads what was sent as well."""
    ladder: str = "int2, int4, int8, int16, float32"
    """Π of that φ."""
    dequantizer: DequantizerSettings = field(default_factory=DequantizerSettings)

    name: ClassVar[str] = "prowd-plus"
    summary: ClassVar[str] = "average movements, sent as the nearest three levels"

    def __post_init__(self) -> None:
        if self.feedback and (self.message, self.level) != ("movement", "nearest"):
            found = f'options.feedback: true with message "{self.message}" and level "{self.level}"'
            raise ConfigError(f'{found}; accepted: with message "movement" and level "nearest" only')
        if self.refine == "phi" and self.message != "weights":
            found = f'options.refine: "phi" with message "{self.message}"'
            raise ConfigError(f'{found}; accepted: with message "weights" only')

    def init(self, scene: Scene) -> ServerState:
        """Start from the shared random model, and a fresh φ if there is to be one."""
        state = common.initial_state(scene)
        if self.refine != "phi":
            return state
        widths = [slot.width for client in scene.clients for slot in self.expects(scene, client).values()]
        return replace(state, memory=self._lifter(scene).begin(widths))

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        """Send Q_{s_n}(w_G)."""
        return common.quantized_model(scene, state.model, client)

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Train what was received, and send weights, or in three levels how far they moved."""
        width = device.spec.width
        if not _is_ternary(scene, width):
            model, metrics = common.local_round(scene, task, device, task.weights)
            return common.reply(task, device, common.uplink(scene, device.spec, model.weights()), metrics)
        known = (device.memory.load(task.round) or {}) if self.feedback or self.blend else {}
        start = {name: blended(q, known.get(OWN + name), self.blend) for name, q in task.weights.items()}
        model, metrics = common.local_round(scene, task, device, start)
        trained, kept = model.weights(), dict[str, QTensor]()
        if self.blend:
            kept |= {OWN + name: tensor for name, tensor in trained.items()}
        if self.message == "weights":
            sent = common.uplink(scene, device.spec, trained)
        else:
            moves = {name: _moved(trained[name], start[name], known.get(name)) for name in start}
            shrunk = self.level == "nearest"
            sent = {name: nearest_ternary(moved, width, shrunk=shrunk) for name, moved in moves.items()}
            kept |= {name: residue(moves[name], q, width) for name, q in sent.items() if self.feedback}
        if kept:
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
        state, arrived = self._arrived(scene, state, received, updates)
        moves = [
            {name: value.double() - received[update.width][name].double() for name, value in values.items()}
            for update, values in zip(updates, arrived, strict=True)
        ]
        masks = self._masks(scene, updates, moves)
        model = stepped(state.model, masked_mean(scene, updates, moves, masks), self.gamma)
        notes = {**state.notes, **weight_notes(scene, updates, arrived)}
        if masks:
            notes["masks"] = mask_notes(masks)
        return replace(state, model=common.rescaled(scene, model), notes=notes)

    def _lifter(self, scene: Scene) -> Lifter:
        return Lifter(scene, Ladder.parse(self.ladder), self.dequantizer, informed=True)

    def _arrived(
        self, scene: Scene, state: ServerState, received: Mapping[Bitwidth, Values], updates: Sequence[Update]
    ) -> tuple[ServerState, list[Values]]:
        """The clients' weights as far as they are known."""
        if self.refine == "phi":
            lifter = self._lifter(scene)
            state = lifter.fitted(state, lifter.nets(updates, received))
            return state, lifter.lift(state.memory, updates, received)
        arrived = common.values(updates)
        for width in [width for width in received if _is_ternary(scene, width)]:
            peers = [n for n, update in enumerate(updates) if update.width == width]
            if self.message == "weights":
                found = refined(received[width], [updates[n].weights for n in peers], width)
            else:
                end = width.max_code / width.steps  # no weight of this width is beyond
                found = [
                    {name: (received[width][name] + moved).clamp(-end, end) for name, moved in arrived[n].items()}
                    for n in peers
                ]
            for n, values in zip(peers, found, strict=True):
                arrived[n] = values
        return state, arrived

    def _masks(self, scene: Scene, updates: Sequence[Update], moves: Sequence[Values]) -> dict[str, Mask]:
        """What of the low-bit clients' movements counts (Eq. 8): relative to what was sent, from the first round on."""
        low, high = common.side_averages(scene, updates, moves) if self.sparsity else ({}, {})
        return tensor_masks(low, high, partial(select, sparsity=self.sparsity)) if low and high else {}

    def _sends_movement(self, scene: Scene, width: Bitwidth) -> bool:
        return self.message == "movement" and _is_ternary(scene, width)


def _is_ternary(scene: Scene, width: Bitwidth) -> bool:
    """Whether a width's clients can say less than they know."""
    return scene.uplink == "ternary" and not width.is_float and width != INT2


def _moved(trained: QTensor, start: QTensor, unsaid: QTensor | None) -> Tensor:
    """How many code steps a tensor has gone, with what was left unsaid before."""
    moved = trained.codes.double() - start.codes.double()
    return moved if unsaid is None else moved + unsaid.codes.double()
