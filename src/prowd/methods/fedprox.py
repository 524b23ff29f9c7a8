"""FedProx (Li et al., 2020): FedAvg with a pull of each client towards what it received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge
from torch import Tensor

from prowd.device.scene import Scene
from prowd.device.training import Correction
from prowd.methods import common
from prowd.methods.base import Device
from prowd.methods.fedavg import FedAvg
from prowd.wire import Task, Update

__all__ = ["FedProx"]


@dataclass(frozen=True)
class FedProx(FedAvg):
    """Local loss + μ/2·‖w − w_G‖². The server averages as in FedAvg.

    w is what is federated: v at Float32, where the term adds μ·(v − v_G) to the clipped gradient, and q at integer
    widths, where μ·(q − q_G) is added to the gradient after it has been normalised by Shift, in the units of q.
    """

    mu: Annotated[float, Ge(0)] = 0.01

    name: ClassVar[str] = "fedprox"
    summary: ClassVar[str] = "FedAvg with a pull of each client towards what it received"

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Train with the proximal term."""
        pull = self._pull(scene, task)
        model, metrics = common.local_round(scene, task, device, task.weights, correction=pull)
        return common.reply(task, device, common.uplink(scene, device.spec, model.weights()), metrics)

    def _pull(self, scene: Scene, task: Task) -> Correction:
        anchors = [task.weights[name].value().to(scene.device) for name in scene.architecture.shapes]

        def pull(values: Sequence[Tensor]) -> list[Tensor]:
            return [self.mu * (value - anchor) for value, anchor in zip(values, anchors, strict=True)]

        return pull
