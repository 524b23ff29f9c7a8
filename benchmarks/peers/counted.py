"""FedAvg that counts the local steps its clients take, in the workers where they take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from prowd.device.scene import Scene
from prowd.methods import Device, ServerState, common
from prowd.methods.fedavg import FedAvg
from prowd.nets.lowbit.model import LowBitModel
from prowd.wire import Task, Update


@dataclass(frozen=True)
class Counted(FedAvg):
    """A method of its own for prowd: what FedAvg does, and ``steps`` in the notes of every round."""

    name: ClassVar[str] = "fedavg-counted"
    summary: ClassVar[str] = "FedAvg that counts local steps"

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Train as FedAvg does; a correction is asked for at every step, and this one only counts.

        Integer clients count by themselves, and would turn their weights into floats for a correction.
        """
        steps = 0

        def count(_values: Sequence[Tensor]) -> Sequence[Tensor]:
            nonlocal steps
            steps += 1
            return ()

        correction = count if device.spec.width.is_float else None
        model, metrics = common.local_round(scene, task, device, task.weights, correction=correction)
        steps = model.steps if isinstance(model, LowBitModel) else steps
        weights = common.uplink(scene, device.spec, model.weights())
        return common.reply(task, device, weights, {**metrics, "steps": float(steps)})

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Average as FedAvg does."""
        averaged = super().aggregate(scene, state, updates)
        steps = int(sum(update.metrics["steps"] for update in updates))
        return replace(averaged, notes={**averaged.notes, "steps": steps})
