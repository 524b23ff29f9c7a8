"""FedGroupedAvg and its asymmetric variant (Section 4.1): widths that do not mix, or mix downwards only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from prowd.device.scene import ClientSpec, Scene
from prowd.methods import common
from prowd.methods.base import Device, ServerState, Slot
from prowd.methods.notes import weight_notes
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Weights
from prowd.wire import Task, Update

__all__ = ["FedGroupedAvg", "FedGroupedAvgAsymmetric"]


@dataclass(frozen=True)
class FedGroupedAvg:
    """w_G^s ← mean of the clients of width s. Local rates are scaled by group size / N, as in the paper.

    The server's model holds one network for each width, under names such as ``int8/conv1.weight``.
    """

    scale_rate: bool = True
    """Whether local learning rates are scaled by the share of a client's width in the federation."""

    name: ClassVar[str] = "fedgroupedavg"
    summary: ClassVar[str] = "average clients of the same width only"

    def init(self, scene: Scene) -> ServerState:
        """Start every width from the same random model."""
        model = common.initial_state(scene).model
        return ServerState(
            0, {f"{width}/{name}": tensor.clone() for width in scene.counts for name, tensor in model.items()}
        )

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        """Send the client its width's own model."""
        return common.quantized_model(scene, _model_of(state, client.width), client)

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Train, at the rate of the task."""
        model, metrics = common.local_round(scene, task, device, task.weights)
        return common.reply(task, device, common.uplink(scene, device.spec, model.weights()), metrics)

    def rate(self, scene: Scene, client: ClientSpec) -> float:
        """Learn more slowly the smaller the group."""
        return scene.counts[client.width] / len(scene.clients) if self.scale_rate else 1.0

    def expects(self, scene: Scene, client: ClientSpec) -> Mapping[str, Slot]:
        """The whole model."""
        return common.uplink_slots(scene, client)

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Average for each width over those it learns from; a width nobody spoke for keeps its model."""
        model = dict(state.model)
        for width in scene.counts:
            heard = [update for update in updates if self.learns_from(width, update.width)]
            if heard:
                averaged = common.global_model(scene, _model_of(state, width), heard, common.shares(heard))
                model |= {f"{width}/{name}": tensor for name, tensor in averaged.items()}
        return replace(state, model=model, notes=weight_notes(scene, updates, common.values(updates)))

    def learns_from(self, width: Bitwidth, other: Bitwidth) -> bool:
        """Whether a width's model takes in clients of another."""
        return other == width


@dataclass(frozen=True)
class FedGroupedAvgAsymmetric(FedGroupedAvg):
    """A width receives the average of all clients of the same or a higher width."""

    name: ClassVar[str] = "fedgroupedavg-asymmetric"
    summary: ClassVar[str] = "average clients of the same or a higher width"

    def learns_from(self, width: Bitwidth, other: Bitwidth) -> bool:
        """Whether a width's model takes in clients of another."""
        return other >= width


def _model_of(state: ServerState, width: Bitwidth) -> dict[str, Tensor]:
    prefix = f"{width}/"
    return {name.removeprefix(prefix): tensor for name, tensor in state.model.items() if name.startswith(prefix)}
