"""ProWD (Yoon et al., 2022): progressive weight dequantization, selective weight aggregation, and its two ablations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from prowd.dequantizer import DequantizerSettings, Ladder, Net
from prowd.errors import ConfigError
from prowd.methods import common
from prowd.methods.base import Device, ServerState, Slot
from prowd.methods.lifting import LAST, Lifter, loss_notes
from prowd.methods.notes import mask_notes, weight_notes
from prowd.quantize import Weights
from prowd.scene import ClientSpec, Scene
from prowd.selection import Mask, select
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
        return _fitted(lifter, state, nets)

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Lines 9 to 11 of Algorithm 1."""
        state, values = self._lift(scene, state, updates)  # 9: w_n ← φ(w_n)
        averages, masks = self._select(scene, state, updates, values)  # 10: c*, Eq. 8
        model = self._combine(scene, state, updates, values, masks)  # 11: w_G ← Σ c_n⊙w_n, Eq. 9
        explained = weight_notes(scene, updates, common.values(updates), values)
        return replace(
            state,
            model=common.rescaled(scene, model),
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
            state = _fitted(lifter, state, lifter.nets(updates))
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
        keys = [f"{side}{name}" for side in (LOW, HIGH) for name in names]
        if any(key not in now or key not in state.memory for key in keys):
            return now, {}
        return now, self._masks(names, {key: now[key] - state.memory[key] for key in keys})

    def _masks(self, names: Sequence[str], moved: Values) -> dict[str, Mask]:
        solve = partial(select, tau=self.tau, sparsity=self.sparsity, keep_zeros=self.zeros == "keep")
        if self.scope == "tensor":
            return {name: solve(moved[f"{LOW}{name}"], moved[f"{HIGH}{name}"]) for name in names}
        low, high = (torch.cat([moved[f"{side}{name}"].flatten() for name in names]) for side in (LOW, HIGH))
        whole = solve(low, high)
        sizes = [moved[f"{LOW}{name}"].numel() for name in names]
        parts = zip(names, torch.split(whole.kept, sizes), strict=True)
        return {name: replace(whole, kept=part.reshape(moved[f"{LOW}{name}"].shape)) for name, part in parts}

    def _combine(
        self,
        scene: Scene,
        state: ServerState,
        updates: Sequence[Update],
        values: Sequence[Values],
        masks: Mapping[str, Mask],
    ) -> dict[str, Tensor]:
        """Average each tensor over those that sent it, of the low-bit clients only what their mask keeps."""
        model = dict(state.model)
        for name in model:
            senders = [n for n in range(len(updates)) if name in values[n]]
            tensors, shares = [values[n][name] for n in senders], common.shares([updates[n] for n in senders])
            if not senders:
                continue
            if name not in masks:
                model[name] = common.average(tensors, shares)
                continue
            low = [common.is_low(scene, updates[n].width) for n in senders]
            mask = masks[name].kept.double()
            weights = [share * (mask if is_low else 1.0) for share, is_low in zip(shares, low, strict=True)]
            model[name] = self._masked(tensors, weights, sum(shares))
        return model

    def _masked(self, tensors: Sequence[Tensor], weights: Sequence[Tensor | float], whole: float) -> Tensor:
        total = torch.zeros(tensors[0].shape, dtype=torch.float64)
        kept = torch.zeros_like(total)
        for tensor, weight in zip(tensors, weights, strict=True):
            total += weight * tensor.double()
            kept += weight
        return (total / (kept if self.combine == "mean" else whole)).float()


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


def _fitted(lifter: Lifter, state: ServerState, nets: Sequence[Net]) -> ServerState:
    """The state with φ fitted to some networks, for the round that is being made."""
    memory, losses = lifter.fit(state.memory, nets, state.round + 1)
    return replace(state, memory={**state.memory, **memory}, notes={**state.notes, "phi": loss_notes(losses)})
