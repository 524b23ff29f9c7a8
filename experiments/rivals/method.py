"""Public rivals of ProWD-Plus: what other servers do with the movements that its clients send, at the same bytes.

Use one as ``-s method=experiments/rivals/method.py:FedAdam``. The README says what each is taken from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from prowd.device.scene import ClientSpec, Scene
from prowd.methods import ProWDPlus, common
from prowd.methods.base import Device, ServerState, Slot
from prowd.methods.movement import stepped
from prowd.methods.notes import weight_notes
from prowd.methods.plus import arrived_weights, sends_movement
from prowd.numbers.bits import INT2
from prowd.numbers.quantize import QTensor, Weights
from prowd.wire import Task, Update

__all__ = ["FedAdam", "FedAvgM", "FedWsq", "LptFl", "Movements"]

Values = Mapping[str, Tensor]
PLUS = ProWDPlus()
FIRST, SECOND, DEVIATION = "first/", "second/", "/deviation"
LEVEL, EDGE = 1.2240, 0.6120  # the three levels 0, ±LEVEL of least squared error for N(0, 1), and where they meet
ONE = torch.ones(1, dtype=torch.int16)  # a code: a device holds no floats, but every tensor has a scale
LEAST = 2.0**-20  # of a deviation: a scale of zero cannot be sent


class Movements:
    """One model for all; clients do what those of ProWD-Plus do. What the server makes of m, a rival says in ``step``.

    m is the mean movement of the weights, by examples, from what clients were sent; gains are averaged.
    """

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
        """Move the shared model as far as ``step`` says."""
        received = common.received(scene, state.model, updates)
        arrived = [arrived_weights(scene, update, received[update.width]) for update in updates]
        moves = [
            {name: value.double() - received[update.width][name].double() for name, value in values.items()}
            for update, values in zip(updates, arrived, strict=True)
        ]
        means = common.averages(scene, updates, moves)
        step, memory = self.step(state, {name: means[name] for name in scene.architecture.shapes})
        model = common.rescaled(scene, stepped(state.model, {**means, **step}, 1.0))
        return replace(state, model=model, memory=memory, notes=weight_notes(scene, updates, arrived))

    def step(self, state: ServerState, mean: Values) -> tuple[Values, Values]:
        """How far the weights go, from m, and what the server remembers."""
        raise NotImplementedError


@dataclass(frozen=True)
class FedAvgM(Movements):
    """d ← β·d + m, w_G ← w_G + η·d (Hsu et al., 2019; in Reddi et al., 2021, with β = 0.9)."""

    beta: Annotated[float, Ge(0), Lt(1)] = 0.9
    eta: Annotated[float, Gt(0)] = 0.3

    name: ClassVar[str] = "fedavgm-ternary"
    summary: ClassVar[str] = "momentum at the server, over ternary movements"

    def step(self, state: ServerState, mean: Values) -> tuple[Values, Values]:
        """Some of the last direction, and m."""
        last = state.memory
        direction = {name: self.beta * last[name] + m if name in last else m for name, m in mean.items()}
        return {name: self.eta * d for name, d in direction.items()}, direction


@dataclass(frozen=True)
class FedAdam(Movements):
    """FedAdam (Reddi et al., 2021, Algorithm 2), which has no correction of bias and starts from v = τ².

    d ← β1·d + (1 − β1)·m, v ← β2·v + (1 − β2)·m², w_G ← w_G + η·d / (√v + τ).
    """

    eta: Annotated[float, Gt(0)] = 0.03
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.99
    tau: Annotated[float, Gt(0)] = 1e-3

    name: ClassVar[str] = "fedadam-ternary"
    summary: ClassVar[str] = "Adam at the server, over ternary movements"

    def step(self, state: ServerState, mean: Values) -> tuple[Values, Values]:
        """Every weight by a length of its own."""
        steps: dict[str, Tensor] = {}
        memory: dict[str, Tensor] = {}
        for name, m in mean.items():
            first = state.memory.get(f"{FIRST}{name}", torch.zeros_like(m))
            second = state.memory.get(f"{SECOND}{name}", torch.full_like(m, self.tau**2))
            memory[f"{FIRST}{name}"] = first = self.beta1 * first + (1 - self.beta1) * m
            memory[f"{SECOND}{name}"] = second = self.beta2 * second + (1 - self.beta2) * m.square()
            steps[name] = self.eta * first / (second.sqrt() + self.tau)
        return steps, memory


@dataclass(frozen=True)
class LptFl(Movements):
    """The server's moving average of LPT-FL (Li et al., 2024): w_G ← α·w_G + (1 − α)·mean w_n, the first round in full.

    Clients are sent the average itself, so that it is a step of 1 − α along the mean movement.
    """

    alpha: Annotated[float, Ge(0), Lt(1)] = 0.9

    name: ClassVar[str] = "lpt-fl-ternary"
    summary: ClassVar[str] = "a moving average of server models, over ternary movements"

    def step(self, state: ServerState, mean: Values) -> tuple[Values, Values]:
        """A share of m; all of it in the first round."""
        share = 1 - self.alpha if state.round else 1.0
        return {name: share * m for name, m in mean.items()}, {}


@dataclass(frozen=True)
class FedWsq(Movements):
    """Movements standardised as FedWSQ does (Kim et al., 2025), in three levels: DANUQ without weight standardisation.

    A movement x of a tensor is divided by a deviation σ that all clients share, and sent as the nearest of the levels
    0, ±1.224 that are best for a normal distribution. The message's scale is the client's own deviation; from these the
    server has σ ← (1 − β)·σ + β·mean σ_n, which the next task carries. In the first round σ is the client's own.
    """

    beta: Annotated[float, Gt(0), Le(1)] = 0.1

    name: ClassVar[str] = "fedwsq-ternary"
    summary: ClassVar[str] = "movements standardised by a deviation that all share, in three levels"

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        """Send Q_{s_n}(w_G), and σ to clients that send movements."""
        known = state.memory if sends_movement(scene, client.width) else {}
        shared = {name: QTensor(ONE, INT2, INT2.steps * float(sigma)) for name, sigma in known.items()}
        return {**super().dispatch(scene, state, client), **shared}

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Train, and send which of the three levels is nearest, and the client's own deviation."""
        width = device.spec.width
        if not sends_movement(scene, width):
            return super().train(scene, task, device)
        weights = {name: task.weights[name] for name in scene.architecture.shapes}
        model, metrics = common.local_round(scene, task, device, weights)
        trained, sent = model.weights(), dict[str, QTensor]()
        for name, received in weights.items():
            moved = (trained[name].codes.double() - received.codes.double()) / width.steps
            own = max(float(moved.std(correction=0)), LEAST)
            shared = task.weights.get(f"{name}{DEVIATION}")
            sigma = own if shared is None else float(shared.value())
            codes = moved.sign() * (moved.abs() > EDGE * sigma)
            sent[name] = QTensor(codes.to(torch.int16), INT2, _scale(own))
        return common.reply(task, device, sent, metrics)

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Read all movements with the shared deviation, go along their mean, and follow the deviations."""
        senders = [update for update in updates if sends_movement(scene, update.width)]
        own = [{name: torch.tensor([q.scale / _scale(1.0)]) for name, q in one.weights.items()} for one in senders]
        means = {f"{name}{DEVIATION}": mean for name, mean in common.averages(scene, senders, own).items()}
        known = dict(state.memory)
        followed = {name: torch.lerp(known.get(name, mean), mean, self.beta) for name, mean in means.items()}
        read = [_read(update, known) if sends_movement(scene, update.width) else update for update in updates]
        return replace(super().aggregate(scene, state, read), memory={**known, **followed})

    def step(self, state: ServerState, mean: Values) -> tuple[Values, Values]:
        """As far as the clients went."""
        return mean, {}


def _scale(sigma: float) -> float:
    """Of Int2 codes, for levels of ±LEVEL·σ."""
    return LEVEL * sigma * INT2.steps


def _read(update: Update, known: Values) -> Update:
    """An update with the shared deviations instead of its client's own, as far as they are known."""
    scales = {name: known.get(f"{name}{DEVIATION}") for name in update.weights}
    weights = {
        name: q if (sigma := scales[name]) is None else replace(q, scale=_scale(float(sigma)))
        for name, q in update.weights.items()
    }
    return replace(update, weights=weights)
