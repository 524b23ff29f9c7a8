"""FedProx (Li et al., 2020): FedAvg whose clients are held to what they received."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from annotated_types import Ge
from torch import Tensor

from prowd.device.scene import ClientSpec, Scene
from prowd.device.training import Correction
from prowd.methods import common
from prowd.methods.base import Device, ServerState, Slot
from prowd.methods.notes import weight_notes
from prowd.numbers.quantize import Weights
from prowd.wire import Task, Update

__all__ = ["FedProx"]


@dataclass(frozen=True)
class FedProx:
    """Local loss + μ/2·‖w − w_G‖². The server averages as in FedAvg, each client counting by its examples.

    w is the weight a network computes with, v/α, so the term adds μ·(v − v_G)/α² to the gradient of v. At integer
    widths μ·(q − q_G) is added to the gradient after it has been normalised by Shift, in the units of q.
    """

    mu: Annotated[float, Ge(0)] = 0.01

    name: ClassVar[str] = "fedprox"
    summary: ClassVar[str] = "FedAvg with a pull of each client towards what it received"

    def init(self, scene: Scene) -> ServerState:
        """Start from the shared random model."""
        return common.initial_state(scene)

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        """Send Q_{s_n}(w_G)."""
        return common.quantized_model(scene, state.model, client)

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Train with the proximal term."""
        pull = self._pull(scene, task, device.spec)
        model, metrics = common.local_round(scene, task, device, task.weights, correction=pull)
        return common.reply(task, device, common.uplink(scene, device.spec, model.weights()), metrics)

    def expects(self, scene: Scene, client: ClientSpec) -> Mapping[str, Slot]:
        """The whole model."""
        return common.uplink_slots(scene, client)

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Average, as FedAvg does."""
        model = common.global_model(scene, state.model, updates, common.shares(updates))
        return replace(state, model=model, notes=weight_notes(scene, updates, common.values(updates)))

    def _pull(self, scene: Scene, task: Task, client: ClientSpec) -> Correction:
        anchors = [task.weights[name].value().to(scene.device) for name in scene.architecture.shapes]
        alphas = scene.architecture.alphas
        strengths = [self.mu / alpha**2 if client.width.is_float else self.mu for alpha in alphas]

        def pull(values: Sequence[Tensor]) -> list[Tensor]:
            return [mu * (value - anchor) for value, anchor, mu in zip(values, anchors, strengths, strict=True)]

        return pull
