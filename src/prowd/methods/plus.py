"""ProWD-Plus, our own: the server knows what it sent, and three levels say how far that has moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le
from torch import Tensor

from prowd.device.scene import ClientSpec, Scene
from prowd.errors import ConfigError
from prowd.methods import common
from prowd.methods.base import Device, ServerState, Slot
from prowd.methods.movement import best_ternary, blended, largest_scale, residue, stepped
from prowd.methods.notes import weight_notes
from prowd.methods.prowd.dequantizer import DequantizerSettings, Ladder, eligible
from prowd.methods.prowd.lifting import Lifter
from prowd.methods.prowd.masking import mask_notes, masked_mean, tensor_masks
from prowd.methods.prowd.selection import Mask, select
from prowd.methods.sideinfo import refined
from prowd.numbers.bits import INT2, Bitwidth
from prowd.numbers.quantize import QTensor, Weights
from prowd.wire import Task, Update

__all__ = ["ProWDPlus"]

Values = dict[str, Tensor]
OWN = "own/"  # where a device keeps the weights that it had trained; what it left unsaid has the tensor's name


@dataclass(frozen=True)
class ProWDPlus:
    """w_G ← w_G + γ·mean (ŵ_n − Q_{s_n}(w_G)), ŵ_n being what is known of a client's weights. Bytes are FedAvg's.

    Of a client whose weights arrive in its own width, everything is known. Under the ternary uplink the three levels
    that it may send are spent on its movement, and chosen to say the most of it.
    """

    gamma: Annotated[float, Gt(0)] = 1.5
    """γ, how far the server goes along the mean movement of the weights; gains are averaged."""

    message: Literal["movement", "weights"] = "movement"
    """What three levels say: the movement, or the weights, which the server refines by what it sent."""
    level: Literal["nearest", "full"] = "full"
    """How large a movement's level is: nearest to it, which is shorter, or going as far along it as it went itself."""
    feedback: bool = False
    """Whether a device keeps what a movement left unsaid for its next message; of a message that is lost, nothing."""
    blend: Annotated[int, Ge(0), Le(15)] = 0
    """A sender of movements sets out from w + ((own − w) >> blend), own being what it trained last; 0: from w."""
    sparsity: Annotated[float, Ge(0), Le(1)] = 0.0
    """Largest share of entries that a mask on low-bit movements may drop, as those of the high side go; 0: no mask."""
    refine: Literal["posterior", "phi"] = "posterior"
    """How weights are refined: by the mean of a truncated Gaussian, or by a φ that reads what was sent as well."""
    ladder: str = "int2, int4, int8, int16, float32"
    """Π of that φ."""
    dequantizer: DequantizerSettings = field(default_factory=DequantizerSettings)

    name: ClassVar[str] = "prowd-plus"
    summary: ClassVar[str] = "go along the mean movement, sent as the best three levels"

    def __post_init__(self) -> None:
        if self.feedback and (self.message, self.level) != ("movement", "nearest"):
            found = f'options.feedback: true with message "{self.message}" and level "{self.level}"'
            raise ConfigError(f'{found}; accepted: with message "movement" and level "nearest" only')
        if self.refine == "phi" and self.message != "weights":
            found = f'options.refine: "phi" with message "{self.message}"'
            raise ConfigError(f'{found}; accepted: with message "weights" only')
        if self.blend and self.message != "movement":
            found = f'options.blend: {self.blend} with message "{self.message}"'
            raise ConfigError(f'{found}; accepted: with message "movement" only')

    def init(self, scene: Scene) -> ServerState:
        """Start from the shared random model, and a fresh φ if there is to be one."""
        state = common.initial_state(scene)
        if self.refine != "phi":
            return state
        if not eligible(scene.architecture, self.dequantizer.module):
            found = f"no convolution has whole modules of {self.dequantizer.module} channels"
            raise ConfigError(f'options.refine: "phi", but {found}; accepted: a smaller dequantizer.module')
        lifter = self._lifter(scene)
        widths = [slot.width for client in scene.clients for slot in self.expects(scene, client).values()]
        memory = lifter.begin(widths)
        if not any(lifter.ladder.entry(width) for width in widths):
            raise ConfigError('options.refine: "phi", but all send three levels; accepted: with a client that does not')
        return replace(state, memory=memory)

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
        model, metrics = common.local_round(scene, task, device, task.weights, start=start if self.blend else None)
        trained, kept = model.weights(), dict[str, QTensor]()
        if self.blend:
            kept |= {OWN + name: tensor for name, tensor in trained.items()}
        if self.message == "weights":
            sent = common.uplink(scene, device.spec, trained)
        else:
            moves = {name: _moved(trained[name], start[name], known.get(name)) for name in start}
            full = self.level == "full"
            sent = {name: best_ternary(moved, width, full=full) for name, moved in moves.items()}
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
        means = masked_mean(scene, updates, moves, masks)
        further = {name: self.gamma * means[name] for name in scene.architecture.shapes if name in means}
        model = common.rescaled(scene, stepped(state.model, {**means, **further}, 1.0))
        came = common.values(updates) if self.message == "weights" else arrived
        notes = {**state.notes, **weight_notes(scene, updates, came, arrived)}
        return replace(state, model=model, notes={**notes, "masks": mask_notes(masks)} if masks else notes)

    def _arrived(
        self, scene: Scene, state: ServerState, received: Mapping[Bitwidth, Values], updates: Sequence[Update]
    ) -> tuple[ServerState, list[Values]]:
        """The clients' weights as far as they are known: a message in three levels leaves something open."""
        arrived = common.values(updates)
        for width in [width for width in received if _is_ternary(scene, width)]:
            peers = [n for n, update in enumerate(updates) if update.width == width]
            if self.message == "weights":
                found = refined(received[width], [updates[n].weights for n in peers], width)
            else:
                found = [stepped(received[width], arrived[n], 1.0) for n in peers]
            for n, values in zip(peers, found, strict=True):
                arrived[n] = values if self.blend else _within(width, values)
        return self._lifted(scene, state, received, updates, arrived) if self.refine == "phi" else (state, arrived)

    def _lifted(
        self,
        scene: Scene,
        state: ServerState,
        received: Mapping[Bitwidth, Values],
        updates: Sequence[Update],
        arrived: Sequence[Values],
    ) -> tuple[ServerState, list[Values]]:
        """The same, with what φ makes of the tensors that have modules in place of their posterior means."""
        lifter, names = self._lifter(scene), eligible(scene.architecture, self.dequantizer.module)
        state = lifter.fitted(state, lifter.nets(updates, received))
        found, ternary = list(arrived), [n for n, update in enumerate(updates) if _is_ternary(scene, update.width)]
        lifted = lifter.lift(state.memory, [updates[n] for n in ternary], received)
        for n, values in zip(ternary, lifted, strict=True):
            found[n] = {**arrived[n], **_within(updates[n].width, {name: values[name] for name in names})}
        return state, found

    def _lifter(self, scene: Scene) -> Lifter:
        return Lifter(scene, Ladder.parse(self.ladder), self.dequantizer, informed=True)

    def _masks(self, scene: Scene, updates: Sequence[Update], moves: Sequence[Values]) -> dict[str, Mask]:
        """What of the low-bit clients' movements counts (Eq. 8); all of it in a round without one of the sides."""
        low, high = common.side_averages(scene, updates, moves) if self.sparsity else ({}, {})
        return tensor_masks(low, high, partial(select, sparsity=self.sparsity)) if low and high else {}

    def _sends_movement(self, scene: Scene, width: Bitwidth) -> bool:
        return self.message == "movement" and _is_ternary(scene, width)


def _is_ternary(scene: Scene, width: Bitwidth) -> bool:
    """Whether a width's clients can say less than they know."""
    return scene.uplink == "ternary" and not width.is_float and width != INT2


def _within(width: Bitwidth, values: Values) -> Values:
    """No weight of a width is beyond the ends of its codes."""
    end = width.max_code / width.steps
    return {name: value.clamp(-end, end) for name, value in values.items()}


def _moved(trained: QTensor, start: QTensor, unsaid: QTensor | None) -> Tensor:
    """How many code steps a tensor has gone, with what was left unsaid before."""
    moved = trained.codes.double() - start.codes.double()
    return moved if unsaid is None else moved + unsaid.codes.double()
