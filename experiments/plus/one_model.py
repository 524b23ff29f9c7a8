"""What ProWD-Plus was before each side had a model of its own: one model, which moves by the mean movement.

Use it as ``-s method=experiments/plus/one_model.py:OneModel``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from annotated_types import Gt

from prowd.device.scene import ClientSpec, Scene
from prowd.methods import common
from prowd.methods.base import Device, ServerState, Slot
from prowd.methods.movement import stepped
from prowd.methods.notes import weight_notes
from prowd.methods.plus import ProWDPlus, arrived_weights
from prowd.numbers.quantize import Weights
from prowd.wire import Task, Update

__all__ = ["OneModel"]

PLUS = ProWDPlus()  # whose clients do the same


@dataclass(frozen=True)
class OneModel:
    """w_G ← w_G + γ·mean (ŵ_n − Q_{s_n}(w_G)), ŵ_n being what is known of a client's weights. Bytes are FedAvg's.

    Of a client whose weights arrive in its own width, everything is known. Under the ternary uplink the three levels
    that it may send are spent on its movement, and chosen to say the most of it.
    """

    gamma: Annotated[float, Gt(0)] = 1.5
    """γ, how far the server goes along the mean movement of the weights; gains are averaged."""

    name: ClassVar[str] = "prowd-one-model"
    summary: ClassVar[str] = "one model for all: go along the mean movement, sent as the best three levels"

    def init(self, scene: Scene) -> ServerState:
        """Start from the shared random model."""
        return common.initial_state(scene)

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        """Send Q_{s_n}(w_G)."""
        return common.quantized_model(scene, state.model, client)

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Train what was received, and send weights, or in three levels how far they moved."""
        return PLUS.train(scene, task, device)

    def expects(self, scene: Scene, client: ClientSpec) -> Mapping[str, Slot]:
        """The whole model, or a movement of it."""
        return PLUS.expects(scene, client)

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Move the shared model by the mean of what the clients did."""
        received = common.received(scene, state.model, updates)
        arrived = [arrived_weights(scene, update, received[update.width]) for update in updates]
        moves = [
            {name: value.double() - received[update.width][name].double() for name, value in values.items()}
            for update, values in zip(updates, arrived, strict=True)
        ]
        means = common.averages(scene, updates, moves)
        further = {name: self.gamma * means[name] for name in scene.architecture.shapes}
        model = common.rescaled(scene, stepped(state.model, {**means, **further}, 1.0))
        return replace(state, model=model, notes={**state.notes, **weight_notes(scene, updates, arrived)})
