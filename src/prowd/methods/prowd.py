"""ProWD (Yoon et al., 2022): progressive weight dequantization, selective weight aggregation, and its two ablations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Gt, Le
from torch import Tensor

from prowd.bits import Bitwidth
from prowd.dequantizer import Dequantizer, DequantizerSettings, Ladder, Net, dequantize, fit
from prowd.errors import ConfigError
from prowd.methods import common
from prowd.methods.base import Device, ServerState, Slot
from prowd.quantize import Weights
from prowd.scene import ClientSpec, Scene
from prowd.seeds import generator
from prowd.selection import Mask, select
from prowd.wire import Task, Update

__all__ = ["ProWD", "ProWDDeq", "ProWDSwa"]

PHI, LOW, HIGH = "phi/", "low/", "high/"
Values = Mapping[str, Tensor]


@dataclass(frozen=True)
class ProWD:
    """The server lifts low-bit weights to full precision by φ, and keeps of them what moves with the high-bit ones."""

    ladder: str = "int2, int4, int8, int16, float32"
    """Π: must have every width in which weights arrive."""
    dequantizer: DequantizerSettings = field(default_factory=DequantizerSettings)
    tau: Annotated[float, Gt(0), Le(1)] = 1.0
    """Largest share of entries that a mask may keep."""
    scope: Literal["tensor", "global"] = "tensor"
    """Whether each tensor has a mask of its own, or one optimisation decides for all."""
    zeros: Literal["drop", "keep"] = "drop"
    """What becomes of entries that did not move at all, which leave the cosine as it is."""
    combine: Literal["mean", "literal"] = "mean"
    """mean: Σ c_n⊙w_n / Σ c_n entry by entry; literal: 1/M·Σ c_n⊙w_n, which shrinks what is masked."""

    name: ClassVar[str] = "prowd"
    summary: ClassVar[str] = "dequantize low-bit weights, keep what moves with the high-bit ones"
    dequantizes: ClassVar[bool] = True
    selects: ClassVar[bool] = True

    def init(self, scene: Scene) -> ServerState:
        """Start from the shared random model and a fresh φ."""
        state = common.initial_state(scene)
        if not self.dequantizes:
            return state
        if self.dequantizer.lam > 0 and not len(scene.buffer):
            raise ConfigError(
                "buffer: 0 images for the server to distill with; accepted: 1 or more, or dequantizer.lam=0"
            )
        ladder = Ladder.parse(self.ladder)
        ladder.require(slot.width for client in scene.clients for slot in self.expects(scene, client).values())
        phi = Dequantizer(ladder, self.dequantizer, scene.seed)
        return replace(state, memory={f"{PHI}{name}": tensor for name, tensor in phi.state().items()})

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

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Lines 9 to 11 of Algorithm 1."""
        phi_state, values = self._lift(scene, state, updates)  # 9: w_n ← φ(w_n)
        averages, masks = self._select(scene, state, updates, values)  # 10: c*, Eq. 8
        model = self._combine(scene, state, updates, values, masks)  # 11: w_G ← Σ c_n⊙w_n, Eq. 9
        memory = {**state.memory, **phi_state, **averages}
        return replace(state, model=common.rescaled(scene, model), memory=memory)

    def _lift(
        self, scene: Scene, state: ServerState, updates: Sequence[Update]
    ) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
        """Fit φ on the round's weights (Algorithm 2), going on from the last round's, and dequantize with it."""
        if not self.dequantizes:
            return {}, [{name: tensor.value() for name, tensor in update.weights.items()} for update in updates]
        phi = Dequantizer(Ladder.parse(self.ladder), self.dequantizer, scene.seed).to(scene.device)
        phi.load({name.removeprefix(PHI): kept for name, kept in state.memory.items() if name.startswith(PHI)})
        nets = [Net(scene.architecture, _arrived(scene, update), update.weights) for update in updates]
        fit(phi, nets, scene.buffer, generator(scene.seed, "phi", state.round + 1))
        with torch.no_grad():
            values = [dequantize(phi, scene.architecture, update.weights) for update in updates]
        return {f"{PHI}{name}": tensor for name, tensor in phi.state().items()}, values

    def _select(
        self, scene: Scene, state: ServerState, updates: Sequence[Update], values: Sequence[Values]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Averages of the low-bit and the high-bit side, and the masks of what the low side may contribute.

        Without movements of both sides to compare, in the first round or when one is absent, there is no mask.
        """
        if not self.selects:
            return {}, {}
        low = [_is_low(scene, update.width) for update in updates]
        now = {
            **_averages(scene, updates, values, low, LOW),
            **_averages(scene, updates, values, [not is_low for is_low in low], HIGH),
        }
        names = list(scene.architecture.shapes)
        keys = [f"{side}{name}" for side in (LOW, HIGH) for name in names]
        if any(key not in now or key not in state.memory for key in keys):
            return now, {}
        moved = {key: now[key] - state.memory[key] for key in keys}
        return now, {name: mask.kept for name, mask in self._masks(names, moved).items()}

    def _masks(self, names: Sequence[str], moved: Values) -> dict[str, Mask]:
        keep_zeros = self.zeros == "keep"
        if self.scope == "tensor":
            pairs = {name: (moved[f"{LOW}{name}"], moved[f"{HIGH}{name}"]) for name in names}
            return {name: select(low, high, self.tau, keep_zeros=keep_zeros) for name, (low, high) in pairs.items()}
        low, high = (torch.cat([moved[f"{side}{name}"].flatten() for name in names]) for side in (LOW, HIGH))
        whole = select(low, high, self.tau, keep_zeros=keep_zeros)
        sizes = [moved[f"{LOW}{name}"].numel() for name in names]
        parts = zip(names, torch.split(whole.kept, sizes), strict=True)
        return {name: replace(whole, kept=part.reshape(moved[f"{LOW}{name}"].shape)) for name, part in parts}

    def _combine(
        self,
        scene: Scene,
        state: ServerState,
        updates: Sequence[Update],
        values: Sequence[Values],
        masks: Values,
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
            low = [_is_low(scene, updates[n].width) for n in senders]
            weights = [
                share * (masks[name].double() if is_low else 1.0) for share, is_low in zip(shares, low, strict=True)
            ]
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


def _is_low(scene: Scene, width: Bitwidth) -> bool:
    """Whether a width is below the mean bitwidth of the federation's widths (Section 4.3); Float32 counts 32."""
    bits = {client.width.bits for client in scene.clients}
    return width.bits < sum(bits) / len(bits)


def _arrived(scene: Scene, update: Update) -> Bitwidth:
    """The width in which a client's weights came, which is not its own under the ternary uplink."""
    return update.weights[next(iter(scene.architecture.shapes))].width


def _averages(
    scene: Scene, updates: Sequence[Update], values: Sequence[Values], chosen: Sequence[bool], side: str
) -> dict[str, Tensor]:
    """Average weights of one side; nothing, so that the last average stays, when it is absent."""
    members = [n for n, is_in in enumerate(chosen) if is_in]
    if not members:
        return {}
    shares = common.shares([updates[n] for n in members])
    return {
        f"{side}{name}": common.average([values[n][name] for n in members], shares)
        for name in scene.architecture.shapes
    }
