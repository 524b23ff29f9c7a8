"""Ternary weights instead of movements, refined by what the server sent: the one model with another message.

A client received the code values μ and moved them. Taking the movement of a tensor for Gaussian with deviation σ, what
came back is known up to an interval, the one that Q_Int2 rounds to the level that arrived, and its best estimate is the
mean of N(μ, σ²) truncated to that interval. σ is the one for which as many weights should have changed their level as
did: no byte is needed for it. Use it as ``-s method=experiments/plus/method.py:RefinedWeights``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from experiments.plus.one_model import OneModel
from prowd.device.scene import ClientSpec, Scene
from prowd.methods import ServerState, common
from prowd.methods.base import Device, Slot
from prowd.methods.movement import stepped
from prowd.numbers.bits import INT2, Bitwidth
from prowd.numbers.quantize import Weights
from prowd.wire import Task, Update

__all__ = ["RefinedWeights", "drift_of", "posterior_mean", "refined"]

SMALLEST, LARGEST, HALVINGS = 2.0**-14, 2.0, 40  # of σ, and of the interval in which it is looked for
ROOT = math.sqrt(2)


@dataclass(frozen=True)
class RefinedWeights(OneModel):
    """w_G ← w_G + γ·mean (ŵ_n − Q_{s_n}(w_G)), ŵ_n being the posterior mean of weights that arrived in three levels."""

    name: ClassVar[str] = "prowd-plus-weights"
    summary: ClassVar[str] = "go along the mean movement of ternary weights, refined by what was sent"

    def train(self, scene: Scene, task: Task, device: Device) -> Update:
        """Train what was received and send the weights, as FedAvg's clients do."""
        model, metrics = common.local_round(scene, task, device, task.weights)
        return common.reply(task, device, common.uplink(scene, device.spec, model.weights()), metrics)

    def expects(self, scene: Scene, client: ClientSpec) -> Mapping[str, Slot]:
        """The whole model."""
        return common.uplink_slots(scene, client)

    def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """Move the shared model by the mean of what the clients did, as far as it is known; gains are averaged."""
        received, arrived = common.received(scene, state.model, updates), common.values(updates)
        for width in received:
            if scene.uplink == "ternary" and not width.is_float and width != INT2:
                peers = [n for n, update in enumerate(updates) if update.width == width]
                found = refined(received[width], [updates[n].weights for n in peers], width)
                for n, values in zip(peers, found, strict=True):
                    arrived[n] = values
        means: dict[str, Tensor] = {}
        for name in dict.fromkeys(name for values in arrived for name in values):
            senders = [n for n, values in enumerate(arrived) if name in values]
            moves = [arrived[n][name].double() - received[updates[n].width][name].double() for n in senders]
            mean = common.average(scene, moves, common.shares([updates[n] for n in senders]))
            means[name] = self.gamma * mean if name in scene.architecture.shapes else mean
        return replace(state, model=common.rescaled(scene, stepped(state.model, means, 1.0)))


def refined(received: Mapping[str, Tensor], sent: Sequence[Weights], width: Bitwidth) -> list[dict[str, Tensor]]:
    """The weights of clients of a width that received the same and sent ternary weights back."""
    found: list[dict[str, Tensor]] = [{} for _ in sent]
    for name, values in received.items():
        levels = [weights[name].codes for weights in sent]
        sigma = drift_of(values, levels, width)
        for weights, codes in zip(found, levels, strict=True):
            weights[name] = posterior_mean(values, codes, sigma, width)
    return found


def drift_of(received: Tensor, levels: Sequence[Tensor], width: Bitwidth) -> float:
    """σ of a tensor that clients of a width received as ``received`` and sent back as ternary ``levels``."""
    mean, edge = received.double(), _edge(width)
    before = (mean > edge).double() - (mean < -edge).double()
    changed = sum(int((codes != before).sum()) for codes in levels) / sum(codes.numel() for codes in levels)
    low, high = _interval(before, edge, math.inf)
    least, most = SMALLEST, LARGEST
    for _ in range(HALVINGS):
        sigma = math.sqrt(least * most)
        stays = _below((high - mean) / sigma) - _below((low - mean) / sigma)
        if 1 - float(stays.mean()) < changed:
            least = sigma
        else:
            most = sigma
    return math.sqrt(least * most)


def posterior_mean(received: Tensor, levels: Tensor, sigma: float, width: Bitwidth) -> Tensor:
    """E[w | w ~ N(received, σ²), Q_Int2(w) = levels / 2], within what a width can hold."""
    mean = received.double()
    low, high = _interval(levels, _edge(width), width.max_code / width.steps)
    a, b = (low - mean) / sigma, (high - mean) / sigma
    mirrored = a > 0  # an interval above the mean is looked at from the other side: all are below it, or have it inside
    shift = _shift(torch.where(mirrored, -b, a), torch.where(mirrored, -a, b))
    found = mean + sigma * torch.where(mirrored, -shift, shift)
    return torch.minimum(torch.maximum(found, low), high).float()


def _shift(a: Tensor, b: Tensor) -> Tensor:
    """Mean of the standard normal between a and b, a ≤ 0: (density(a) − density(b)) / (probability up to b − up to a).

    Where b is negative too, both are divided by the density at b, which may be too small for a number.
    """
    inside = (_density(a) - _density(b)) / (_below(b) - _below(a))
    ratio = torch.exp((b.square() - a.square()) / 2)
    scaled = torch.special.erfcx(-b / ROOT) - ratio * torch.special.erfcx(-a / ROOT)
    return torch.where(b < 0, math.sqrt(2 / math.pi) * (ratio - 1) / scaled, inside)


def _edge(width: Bitwidth) -> float:
    """Halfway between the largest code that Q_Int2 rounds to 0 and the next; a quarter itself rounds to even, to 0."""
    return (width.steps // 4 + 0.5) / width.steps


def _interval(levels: Tensor, edge: float, end: float) -> tuple[Tensor, Tensor]:
    """Where the values of ternary levels lie."""
    low = torch.where(levels > 0, edge, torch.where(levels < 0, -end, -edge)).double()
    high = torch.where(levels > 0, end, torch.where(levels < 0, -edge, edge)).double()
    return low, high


def _density(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x.square()) / math.sqrt(2 * math.pi)


def _below(x: Tensor) -> Tensor:
    """Probability that a standard normal number is below x, exact in both tails."""
    return 0.5 * torch.erfc(-x / ROOT)
