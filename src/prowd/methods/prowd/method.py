"""ProWD (Yoon et al., 2022): progressive weight dequantization, selective weight aggregation, and its two ablations."""

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
from prowd.methods.notes import weight_notes
from prowd.methods.prowd.dequantizer import DequantizerSettings, Ladder
from prowd.methods.prowd.lifting import LAST, Lifter
from prowd.methods.prowd.masking import mask_notes, masked_mean, one_mask, tensor_masks
from prowd.methods.prowd.selection import Mask, select
from prowd.numbers.quantize import Weights
from prowd.wire import Task, Update

__all__ = ["ProWD", "ProWDDeq", "ProWDSwa"]

LOW, HIGH = "low/", "high/"  # where the server's memory keeps the averages of the two sides
Values = Mapping[str, Tensor]


@dataclass(frozen=True)
class ProWD:
    """The server lifts low-bit weights to full precision by φ, and keeps of them what moves with the high-bit ones."""

    ladder: str = "int2, int4, int8, int16, float32"
    """Π: must have every width in which weights arrive."""
    dequantizer: DequantizerSettings = field(default_factory=DequantizerSettings)
    fit: Literal["inline", "concurrent"] = "inline"
    """When φ is fitted: on a round's weights before it is used on them, or on the last round's while clients train."""
    sparsity: Annotated[float, Ge(0), Le(1)] = 0.2
    """Largest share of entries that a mask may drop: the paper disregards "a few outliers" (docs/fidelity.md)."""
    sparsity_of: Literal["all", "moved"] = "all"
    """Whether it is a share of all entries, or of those that moved: of averages of three levels, that is few."""
    tau: Annotated[float, Gt(0), Le(1)] = 1.0
    """Largest share of entries that a mask may keep."""
    scope: Literal["tensor", "global"] = "tensor"
    """Whether each tensor has a mask of its own, or one optimisation decides for all."""
    zeros: Literal["drop", "keep"] = "drop"
    """What becomes of entries that did not move at all, which leave the cosine as it is; drop: as sparsity allows."""
    combine: Literal["mean", "literal"] = "mean"
    """mean: Σ c_n⊙w_n / Σ c_n entry by entry; literal: 1/M·Σ c_n⊙w_n, which shrinks what is masked."""

    name: ClassVar[str] = "prowd"
    summary: ClassVar[str] = "dequantize low-bit weights, keep what moves with the high-bit ones"
    dequantizes: ClassVar[bool] = True
    selects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.sparsity + self.tau < 1 - 1e-9:
            found = f"a mask keeps at most {self.tau:g} of the entries"
            raise ConfigError(f"options.sparsity: {self.sparsity:g}, but {found}; accepted: 1 − tau or more")

    def init(self, scene: Scene) -> ServerState:
        """Start from the shared random model and a fresh φ."""
        state = common.initial_state(scene)
        if not self.dequantizes:
            return state
        widths = [slot.width for client in scene.clients for slot in self.expects(scene, client).values()]
        return replace(state, memory=self._lifter(scene).begin(widths))

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        """Send Q_{s_n}(w_G)."""
        return common.quantized_model(scene, state.model, client)

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Train what was received and send it back, as FedAvg's clients do."""
        model, metrics = common.local_round(scene, task, device, task.weights)
        return common.reply(task, device, common.uplink(scene, device.spec, model.weights()), metrics)

    def expects(self, scene: Scene, client: ClientSpec) -> Mapping[str, Slot]:
        """The whole model."""
        return common.uplink_slots(scene, client)

    def meanwhile(self, scene: Scene, state: ServerState) -> ServerState:
        """Algorithm 2 on the last round's weights, if φ is to be fitted while clients train."""
        if not self.dequantizes or self.fit == "inline":
            return state
        lifter = self._lifter(scene)
        nets = lifter.recall(state.memory, {client: self.expects(scene, client) for client in scene.clients})
        return lifter.fitted(state, nets)

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Lines 9 to 11 of Algorithm 1."""
        state, values = self._lift(scene, state, updates)  # 9: w_n ← φ(w_n)
        averages, masks = self._select(scene, state, updates, values)  # 10: c*, Eq. 8
        literal = self.combine == "literal"
        means = masked_mean(scene, updates, values, masks, literal=literal)  # 11: w_G ← Σ c_n⊙w_n, Eq. 9
        explained = weight_notes(scene, updates, common.values(updates), values)
        return replace(
            state,
            model=common.rescaled(scene, {**state.model, **means}),
            memory={**state.memory, **averages},
            notes={**state.notes, **explained, "masks": mask_notes(masks)},
        )

    def lift_in_stages(self, scene: Scene, state: ServerState, update: Update) -> list[dict[str, Tensor]]:
        """A client's weights as they came, and after each block of φ that they pass (Figure 6)."""
        return self._lifter(scene).stages(state.memory, update) if self.dequantizes else []

    def _lifter(self, scene: Scene) -> Lifter:
        return Lifter(scene, Ladder.parse(self.ladder), self.dequantizer)

    def _lift(
        self, scene: Scene, state: ServerState, updates: Sequence[Update]
    ) -> tuple[ServerState, list[dict[str, Tensor]]]:
        """Fit φ on the round's weights, or keep them for the next fit, and dequantize with it."""
        if not self.dequantizes:
            return state, common.values(updates)
        lifter = self._lifter(scene)
        if self.fit == "inline":
            state = lifter.fitted(state, lifter.nets(updates))
        else:
            kept = {name: tensor for name, tensor in state.memory.items() if not name.startswith(LAST)}
            state = replace(state, memory={**kept, **lifter.remember(updates)})
        return state, lifter.lift(state.memory, updates)

    def _select(
        self, scene: Scene, state: ServerState, updates: Sequence[Update], values: Sequence[Values]
    ) -> tuple[dict[str, Tensor], dict[str, Mask]]:
        """Averages of the low-bit and the high-bit side, and the masks of what the low side may contribute.

        Without movements of both sides to compare, in the first round or when one is absent, there is no mask.
        """
        if not self.selects:
            return {}, {}
        sides = zip((LOW, HIGH), common.side_averages(scene, updates, values), strict=True)
        now = {f"{side}{name}": tensor for side, averages in sides for name, tensor in averages.items()}
        names = list(scene.architecture.shapes)
        if any(f"{side}{name}" not in known for side in (LOW, HIGH) for name in names for known in (now, state.memory)):
            return now, {}
        low, high = (
            {name: now[f"{side}{name}"] - state.memory[f"{side}{name}"] for name in names} for side in (LOW, HIGH)
        )
        return now, self.masks(scene, state, low, high)

    def masks(self, scene: Scene, state: ServerState, low: Values, high: Values) -> dict[str, Mask]:
        """Eq. 8, from how far the averages of the two sides have moved; for other rules, a method may have its own."""
        solve = partial(
            select,
            tau=self.tau,
            sparsity=self.sparsity,
            of_moved=self.sparsity_of == "moved",
            keep_zeros=self.zeros == "keep",
        )
        return (tensor_masks if self.scope == "tensor" else one_mask)(low, high, solve)


@dataclass(frozen=True)
class ProWDDeq(ProWD):
    """ProWD without selection: dequantize, then average (Table 3)."""

    name: ClassVar[str] = "prowd-deq"
    summary: ClassVar[str] = "ProWD's dequantizer alone"
    selects: ClassVar[bool] = False


@dataclass(frozen=True)
class ProWDSwa(ProWD):
    """ProWD without a dequantizer: select among the weights as they came (Table 3)."""

    name: ClassVar[str] = "prowd-swa"
    summary: ClassVar[str] = "ProWD's selective aggregation alone"
    dequantizes: ClassVar[bool] = False
