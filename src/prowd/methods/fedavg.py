"""FedAvg (McMahan et al., 2017): everybody trains the same model, the server averages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from prowd.device.scene import ClientSpec, Scene
from prowd.methods import common
from prowd.methods.base import Device, ServerState, Slot
from prowd.methods.notes import weight_notes
from prowd.numbers.quantize import Weights
from prowd.wire import Task, Update

__all__ = ["FedAvg"]


@dataclass(frozen=True)
class FedAvg:
    """w_G ← Σ n_k·w_k / Σ n_k, whatever the widths of the w_k."""

    name: ClassVar[str] = "fedavg"
    summary: ClassVar[str] = "average all clients' weights, whatever their widths"

    def init(self, scene: Scene) -> ServerState:
        """Start from the shared random model."""
        return common.initial_state(scene)

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        """Send Q_{s_n}(w_G)."""
        return common.quantized_model(scene, state.model, client)

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Train what was received and send it back."""
        model, metrics = common.local_round(scene, task, device, task.weights)
        return common.reply(task, device, common.uplink(scene, device.spec, model.weights()), metrics)

    def expects(self, scene: Scene, client: ClientSpec) -> Mapping[str, Slot]:
        """The whole model."""
        return common.uplink_slots(scene, client)

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Average."""
        model = common.global_model(scene, state.model, updates, common.shares(updates))
        return replace(state, model=model, notes=weight_notes(scene, updates, common.values(updates)))
