"""Local training: every client on its own data, nothing shared. The bar that a federation has to clear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from prowd.device.scene import ClientSpec, Scene
from prowd.methods import common
from prowd.methods.base import Device, ServerState, Slot
from prowd.numbers.quantize import Weights
from prowd.wire import Task, Update

__all__ = ["Local"]


@dataclass(frozen=True)
class Local:
    """All clients start from the same random model; each keeps its own on its own device."""

    name: ClassVar[str] = "local"
    summary: ClassVar[str] = "each client trains alone; nothing is shared"

    def init(self, scene: Scene) -> ServerState:
        """Start from the shared random model."""
        return common.initial_state(scene)

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        """Send nothing: the first model follows from the scene's seed, all later ones stay where they are."""
        return {}

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Go on from the device's own weights, and keep them there."""
        weights = device.memory.load(task.round)
        if weights is None:
            weights = common.quantized_model(scene, common.initial_state(scene).model, device.spec)
        model, metrics = common.local_round(scene, task, device, weights)
        device.memory.save(task.round, model.weights())
        return common.reply(task, device, {}, metrics)

    def expects(self, scene: Scene, client: ClientSpec) -> Mapping[str, Slot]:
        """Nothing but the measurements."""
        return {}

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Nothing to aggregate."""
        return state
