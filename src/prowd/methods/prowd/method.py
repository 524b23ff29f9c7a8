"""ProWD (Yoon et al., 2022): progressive weight dequantization, selective weight aggregation, and its two ablations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Gt, Le
from torch import Tensor

from prowd.device.scene import ClientSpec, Scene
from prowd.methods import common
from prowd.methods.base import Device, Notes, ServerState, Slot
from prowd.methods.notes import figure, weight_notes
from prowd.methods.prowd.dequantizer import DequantizerSettings, Ladder
from prowd.methods.prowd.lifting import LAST, Lifter
from prowd.methods.prowd.mask import Mask, select
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
    tau: Annotated[float, Gt(0), Le(1)] = 1.0
    """Largest share of a tensor's entries that a mask may keep: the paper's bound |c| ≤ τ."""

    name: ClassVar[str] = "prowd"
    summary: ClassVar[str] = "dequantize low-bit weights, keep what moves with the high-bit ones"
    dequantizes: ClassVar[bool] = True
    selects: ClassVar[bool] = True
    unused: ClassVar[tuple[str, ...]] = ()
    """Fields that an ablation inherits and does not read: they are not options of it."""

    def init(self, scene: Scene) -> ServerState:
        """Start from the shared random model and a fresh φ."""
        state = common.initial_state(scene)
        if not self.dequantizes:
            return state
        widths = [slot.width for client in scene.firsts.values() for slot in self.expects(scene, client).values()]
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
        last = [scene.by_id[client] for client in lifter.remembered(state.memory)]
        return lifter.fitted(
            state, lifter.recall(state.memory, {client: self.expects(scene, client) for client in last})
        )

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Lines 9 to 11 of Algorithm 1."""
        state, values = self._lift(scene, state, updates)  # 9: w_n ← φ(w_n)
        averages, masks = self._select(scene, state, updates, values)  # 10: c*, Eq. 8
        means = _masked_mean(scene, updates, values, masks)  # 11: w_G ← Σ c_n⊙w_n, Eq. 9
        explained = weight_notes(scene, updates, common.values(updates), values)
        return replace(
            state,
            model=common.rescaled(scene, {**state.model, **means}),
            memory={**state.memory, **averages},
            notes={**state.notes, **explained, "masks": _mask_notes(masks)},
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
        """Eq. 8 of each tensor, from how far the averages of the two sides moved; a variant may have another rule."""
        return {name: select(low[name], high[name], self.tau) for name in low}


@dataclass(frozen=True)
class ProWDDeq(ProWD):
    """ProWD without selection: dequantize, then average (Table 3)."""

    name: ClassVar[str] = "prowd-deq"
    summary: ClassVar[str] = "ProWD's dequantizer alone"
    selects: ClassVar[bool] = False
    unused: ClassVar[tuple[str, ...]] = ("tau",)


@dataclass(frozen=True)
class ProWDSwa(ProWD):
    """ProWD without a dequantizer: select among the weights as they came (Table 3)."""

    name: ClassVar[str] = "prowd-swa"
    summary: ClassVar[str] = "ProWD's selective aggregation alone"
    dequantizes: ClassVar[bool] = False
    unused: ClassVar[tuple[str, ...]] = ("ladder", "dequantizer", "fit")


def _masked_mean(
    scene: Scene, updates: Sequence[Update], values: Sequence[Values], masks: Mapping[str, Mask]
) -> dict[str, Tensor]:
    """Σ c_n⊙w_n / Σ c_n of each tensor over those that sent it: of low-bit clients counts what their mask keeps."""
    means = common.averages(scene, updates, values)
    high = [n for n, update in enumerate(updates) if not common.is_low(scene, update.width)]
    shares = common.shares([updates[n] for n in high])
    for name, mask in masks.items():
        others = common.average(scene, [values[n][name] for n in high], shares)
        means[name] = torch.where(mask.kept, means[name], others)
    return means


def _mask_notes(masks: Mapping[str, Mask]) -> dict[str, Notes]:
    """Of each mask the shares of entries and of movement that it keeps, and the cosine before and after."""
    return {
        name: {
            "kept": figure(mask.kept_fraction),
            "kept_movement": figure(mask.kept_movement),
            "cosine_before": figure(mask.cosine_before),
            "cosine_after": figure(mask.cosine_after),
        }
        for name, mask in masks.items()
    }
