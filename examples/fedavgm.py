"""Your own method in 30 lines, without touching the package: FedAvgM (Hsu et al., 2019), momentum at the server.

    prowd compare quick --methods fedavg,examples/fedavgm.py:FedAvgM --seeds 0-2
    prowd run quick -s method=examples/fedavgm.py:FedAvgM -s options.beta=0.5
"""  # fmt: skip

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from prowd import ConfigError, FedAvg, Scene, ServerState, Update


@dataclass(frozen=True)
class FedAvgM(FedAvg):
    """d ← β·d + (w̄ − w_G), then w_G ← w_G + d. Clients do as in FedAvg."""

    beta: float = 0.3

    name: ClassVar[str] = "fedavgm"
    summary: ClassVar[str] = "FedAvg with momentum at the server"

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise ConfigError(f"options.beta: {self.beta} is wrong; accepted: from 0 to below 1")

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Move on from the last model, with some of the last movement; what a resume needs is in the memory."""
        mean, last = super().aggregate(scene, state, updates), state.memory
        pull = {name: tensor - state.model[name] for name, tensor in mean.model.items()}
        moved = {name: pull[name] + self.beta * last[name] if name in last else pull[name] for name in pull}
        return replace(mean, model={name: state.model[name] + moved[name] for name in moved}, memory=moved)
