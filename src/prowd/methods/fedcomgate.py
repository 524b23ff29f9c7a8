"""FedCOMGATE (Haddadpour et al., 2021): FedCOM with gradient tracking, for clients whose data differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from prowd.device.scene import ClientSpec, Scene
from prowd.methods import common
from prowd.methods.base import Device, ServerState
from prowd.methods.fedpaq import FedCom
from prowd.methods.movement import scaled_codes
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import QTensor, Weights
from prowd.wire import Task, Update

__all__ = ["FedComGate"]

MEAN, OWN, DELTA = "mean/", "own/", "delta/"


@dataclass(frozen=True)
class FedComGate(FedCom):
    """A local step follows g − δ_n; after a round δ_n ← δ_n + (Δ_n − Δ̄)/steps, with Δ = (w_G − w)/η a movement.

    The downlink carries the last round's Δ̄. Δ_n and δ_n stay on the device, in its own width. η is what a unit of
    gradient moves a weight in a step, momentum and 1/γ included; at integer widths δ_n joins the gradient after its
    normalisation by Shift.
    """

    name: ClassVar[str] = "fedcomgate"
    summary: ClassVar[str] = "FedCOM with a correction of each client's drift"

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        """Send Q_{s_n}(w_G), and the last round's mean movement at the client's width."""
        means = {f"{MEAN}{name}": scaled_codes(tensor, client.width) for name, tensor in state.memory.items()}
        return {**common.quantized_model(scene, state.model, client), **means}

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Learn from the last round how far this client drifts, correct for it, and send the movement."""
        deltas = self._deltas(scene, task, device)
        sizes = [size / self.gamma for size in step_sizes(scene, device.spec.width)]
        additions = [(-delta / size).to(scene.device) for delta, size in zip(deltas.values(), sizes, strict=True)]
        model, metrics = common.local_round(scene, task, device, task.weights, correction=lambda _: additions)
        sent = self.moved(scene, task, device, model.weights())
        kept = {f"{DELTA}{name}": scaled_codes(delta, device.spec.width) for name, delta in deltas.items()}
        own = {f"{OWN}{name}": at_full_pace(sent[name], scene.local.pace(task.round)) for name in deltas}
        device.memory.save(task.round, {**kept, **own})
        return common.reply(task, device, sent, metrics)

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """w_G + γ·mean of the movements, which the next downlink carries."""
        means = common.averages(scene, updates, common.values(updates))
        memory = {name: means[name] for name in scene.architecture.shapes}
        return replace(super().aggregate(scene, state, updates), memory=memory)

    def _deltas(self, scene: Scene, task: Task, device: Device) -> dict[str, Tensor]:
        """δ_n in units of weights a step: how much further than the mean this client goes, at full pace."""
        known = device.memory.load(task.round)
        if known is None:
            return {name: torch.zeros(shape) for name, shape in scene.architecture.shapes.items()}
        deltas: dict[str, Tensor] = {}
        pace = scene.local.pace(task.round - 1)  # of the round whose mean this is; that of its own movement is undone
        for name in scene.architecture.shapes:
            drift = at_full_pace(task.weights[f"{MEAN}{name}"], pace).value() - known[f"{OWN}{name}"].value()
            deltas[name] = known[f"{DELTA}{name}"].value() + drift / scene.local.steps
        return deltas


def at_full_pace(moved: QTensor, pace: float) -> QTensor:
    """How far a movement would have gone with learning rates that had not fallen."""
    if moved.width.is_float:
        return replace(moved, codes=moved.codes / pace)
    return replace(moved, scale=moved.scale / pace)


def step_sizes(scene: Scene, width: Bitwidth) -> list[float]:
    """How far a lasting unit of gradient moves a weight of every layer in a step, at the full rates of the scene."""
    if width.is_float:
        settings = scene.local.float32
        return [rate / (1 - settings.momentum) for rate in settings.rates(scene.architecture)]
    return [scene.local.lowbit.rate_at(width).value / width.steps] * len(scene.architecture.alphas)
