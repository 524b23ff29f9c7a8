"""FedProx (Li et al., 2020): FedAvg with a pull of each client towards what it received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge
from torch import Tensor

from prowd.device.scene import ClientSpec, Scene
from prowd.device.training import Correction
from prowd.methods import common
from prowd.methods.base import Device
from prowd.methods.fedavg import FedAvg
from prowd.wire import Task, Update

__all__ = ["FedProx"]


@dataclass(frozen=True)
class FedProx(FedAvg):
    """Local loss + μ/2·‖w − w_G‖². The server averages as in FedAvg.

    w is the weight a network computes with, v/α, so the term adds μ·(v − v_G)/α² to the gradient of v. At integer
    widths μ·(q − q_G) is added to the gradient after it has been normalised by Shift, in the units of q.
    """

    mu: Annotated[float, Ge(0)] = 0.01

    name: ClassVar[str] = "fedprox"
    summary: ClassVar[str] = "FedAvg with a pull of each client towards what it received"

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Train with the proximal term."""
        pull = self._pull(scene, task, device.spec)
        model, metrics = common.local_round(scene, task, device, task.weights, correction=pull)
        return common.reply(task, device, common.uplink(scene, device.spec, model.weights()), metrics)

    def _pull(self, scene: Scene, task: Task, client: ClientSpec) -> Correction:
        anchors = [task.weights[name].value().to(scene.device) for name in scene.architecture.shapes]
        alphas = scene.architecture.alphas
        strengths = [self.mu / alpha**2 if client.width.is_float else self.mu for alpha in alphas]

        def pull(values: Sequence[Tensor]) -> list[Tensor]:
            return [mu * (value - anchor) for value, anchor, mu in zip(values, anchors, strengths, strict=True)]

        return pull
