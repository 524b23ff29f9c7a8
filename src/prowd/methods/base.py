"""What a federated method is: two halves that talk in bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from prowd.device.memory import ClientMemory
from prowd.device.scene import ClientSpec, Scene
from prowd.device.training import Examples
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Weights
from prowd.wire import Task, Update

__all__ = [
    "Device",
    "LiftsInStages",
    "Method",
    "Notes",
    "Sampler",
    "ScalesRates",
    "ServerState",
    "Slot",
    "WorksMeanwhile",
]

Notes = Mapping[str, Any]
"""Figures that explain a round: plain JSON values, for rounds.jsonl."""


@dataclass(frozen=True)
class ServerState:
    """Everything a resume needs: plain tensors, no modules."""

    round: int
    model: Mapping[str, Tensor]
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    notes: Notes = field(default_factory=dict)
    """What the method has to say of the round just aggregated; reported with it, and then forgotten."""


class Sampler(Protocol):
    """Keeps samples of simulated devices' weights, for figures."""

    def wants(self, round_: int) -> bool:
        """Whether a round is kept."""

    def wants_client(self, rank: int) -> bool:
        """Whether the rank-th client of its width is kept."""

    def keep_client(self, round_: int, client: int, weights: Weights) -> None:
        """Keep samples of a device's weights after its local training."""


@dataclass(frozen=True)
class Device:
    """The client's side of the world: who it is, its data, its memory. Never seen by the server."""

    spec: ClientSpec
    train: Examples
    test: Examples
    memory: ClientMemory
    snapshots: Sampler | None = None
    """Where samples of its weights are kept for figures; nowhere on a real device."""
    own: Examples | None = None
    """Examples of its own that it does not train on: how well a model works for its owner."""


@dataclass(frozen=True)
class Slot:
    """A tensor as two sides have agreed on it."""

    shape: tuple[int, ...]
    width: Bitwidth
    largest_scale: float | None = None
    """Up to which a tensor may have a scale, where the method uses one; None: its scale is 1."""
    movement: bool = False
    """Whether it is how far a tensor has moved from what the client was sent, not the tensor itself."""


class Method(Protocol):
    """Both halves of a method, a frozen dataclass; its fields are its hyperparameters."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    name: ClassVar[str]
    summary: ClassVar[str]

    def init(self, scene: Scene) -> ServerState:
        """Server: the state before the first round."""

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        """Server: what this client receives."""

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Client: local training on what was received."""

    def expects(self, scene: Scene, client: ClientSpec) -> Mapping[str, Slot]:
        """Server: the tensors this client must send, no more and no fewer."""

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Server: the next state, from the updates in client order (at least one)."""


@runtime_checkable
class WorksMeanwhile(Protocol):
    """A method whose server has something to do while clients train."""

    def meanwhile(self, scene: Scene, state: ServerState) -> ServerState:
        """Server: work that needs nothing but the last round's state; what it returns is what is aggregated into."""


@runtime_checkable
class ScalesRates(Protocol):
    """A method whose clients learn at other rates than the federation's."""

    def rate(self, scene: Scene, client: ClientSpec) -> float:
        """Server: what the learning rates of this client are multiplied by."""


@runtime_checkable
class LiftsInStages(Protocol):
    """A method whose server takes low-bit weights to full precision step by step."""

    def lift_in_stages(self, scene: Scene, state: ServerState, update: Update) -> Sequence[Mapping[str, Tensor]]:
        """Server: a client's weights as they came, and after each step, of the tensors that are lifted."""
