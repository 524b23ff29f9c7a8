"""The scene of a federation: the fixed facts that server and clients both know before the first round."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median_low
from typing import Annotated, Literal

import torch
from annotated_types import Ge
from torch import Tensor

from prowd.nets import Architecture
from prowd.nets.float32 import FloatSettings
from prowd.nets.lowbit.kernels import KernelChoice
from prowd.nets.lowbit.model import LowBitSettings
from prowd.numbers.averages import MEAN, Rule
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Rate
from prowd.wire import Work

__all__ = ["ClientSpec", "Decay", "Defence", "LocalSettings", "Operation", "Rescale", "Scene", "Uplink", "Weighting"]

Operation = Literal["crop", "flip", "rotate"]
Uplink = Literal["ternary", "native"]
Rescale = Literal["none", "layer", "channel"]
Decay = Literal["none", "cosine"]
Weighting = Literal["examples", "uniform"]


@dataclass(frozen=True)
class ClientSpec:
    """A registered client: who it is, the numbers it can hold and how much data it has."""

    id: int
    width: Bitwidth
    num_examples: int


@dataclass(frozen=True)
class LocalSettings:
    """What a client does in a round."""

    steps: Annotated[int, Ge(1)] = 200
    batch: Annotated[int, Ge(1)] = 64
    augment: tuple[Operation, ...] = ()
    lowbit: LowBitSettings = field(default_factory=LowBitSettings)
    float32: FloatSettings = field(default_factory=FloatSettings)
    horizon: int = 0
    """Rounds in which the learning rates fall along half a cosine, towards nothing; 0: they stay as they are."""

    def pace(self, round_: int) -> float:
        """What the learning rates are multiplied by in a round, counted from 1."""
        return (1 + math.cos(math.pi * (round_ - 1) / self.horizon)) / 2 if self.horizon else 1.0


@dataclass(frozen=True)
class Defence:
    """What no single device may do to the others, whatever the method."""

    weighting: Weighting = "examples"
    """Whether an update counts by its client's number of examples, or each counts the same (the paper's 1/M)."""
    cap: float | None = 4.0
    """How many times the median number of examples a client may count for."""
    clip: float | None = 2.0
    """How many times as far as the median of its width a tensor of an update may have moved."""
    robust: Rule = MEAN
    """What methods average by."""


@dataclass(frozen=True)
class Scene:
    """Everything about a federation that does not change from round to round."""

    architecture: Architecture
    clients: tuple[ClientSpec, ...]
    seed: int = 0
    uplink: Uplink = "ternary"
    """What integer clients send: Q_Int2(q), five weights a byte, or their native s-bit weights q."""
    rescale: Rescale = "none"
    """Whether aggregation brings v back to the scale of its initialisation, by layer or by output channel."""
    local: LocalSettings = field(default_factory=LocalSettings)
    defence: Defence = field(default_factory=Defence)
    buffer: Tensor = field(default_factory=lambda: torch.empty(0), repr=False, compare=False)
    """The server's own images U, in [−1, 1]; no client's, and not of the test set."""
    start: Mapping[str, Tensor] = field(default_factory=dict, repr=False, compare=False)
    """The shared weights before the first round, where they are not random."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    kernel: KernelChoice = "auto"
    """What s-bit clients compute with; the results are the same."""

    @cached_property
    def counts(self) -> Mapping[Bitwidth, int]:
        """How many clients there are of each width, low widths first; counted once, as all that follows."""
        found = Counter(client.width for client in self.clients)
        return {width: found[width] for width in sorted(found)}

    @cached_property
    def firsts(self) -> Mapping[Bitwidth, ClientSpec]:
        """The first client of each width, low widths first."""
        found = {client.width: client for client in reversed(self.clients)}
        return {width: found[width] for width in sorted(found)}

    @cached_property
    def by_id(self) -> Mapping[int, ClientSpec]:
        """The clients by their numbers."""
        return {client.id: client for client in self.clients}

    @cached_property
    def ranks(self) -> Mapping[int, int]:
        """Of each client how many of its width come before it."""
        before, found = Counter[Bitwidth](), dict[int, int]()
        for client in sorted(self.clients, key=lambda client: client.id):
            found[client.id] = before[client.width]
            before[client.width] += 1
        return found

    @cached_property
    def usual_examples(self) -> int:
        """The median of what clients hold, the lower one of two."""
        return median_low(client.num_examples for client in self.clients)

    def work(self, width: Bitwidth, round_: int, factor: float = 1.0) -> Work:
        """What a client of a width is told to do in a round; a method's factor scales its learning rates."""
        local, factor = self.local, factor * self.local.pace(round_)
        rate = Rate.exactly(factor) if width.is_float else local.lowbit.rate_at(width, factor)
        return Work(local.steps, local.batch, rate, self.architecture.digest)
