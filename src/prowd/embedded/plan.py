"""What a client for microcontrollers is compiled for, and the memory that it takes: known before it is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from prowd.device.scene import ClientSpec, LocalSettings, Scene, Uplink
from prowd.embedded.network import Stage, stages_of
from prowd.errors import ConfigError
from prowd.methods import Method
from prowd.methods.recipe import CODES, LEVELS, WEIGHTS, client_half, recipe
from prowd.nets.architecture import Architecture, weight_name
from prowd.numbers.bits import Bitwidth

__all__ = ["CHUNK", "STACK", "Part", "Plan", "kilobytes", "plan_of"]

CHUNK = 512  # bytes of a message in a frame of the link
STACK = 2048  # bytes; what `prowd embed --check` and the tests measure stays below
HEAD = 512  # bytes of a task before its body
LINK = 128  # bytes that the link needs beside a frame
REPLIES = {WEIGHTS: 0, CODES: 1, LEVELS: 2}  # as in client.h
INT32 = 2**31 - 1


@dataclass(frozen=True)
class Part:
    """Some of the memory, and what it is for."""

    name: str
    size: int


@dataclass(frozen=True)
class Plan:
    """A client of a width: its network, how it trains, what it sends, and how much of an image it keeps."""

    architecture: Architecture
    width: Bitwidth
    method: str
    reply: int
    reply_width: Bitwidth
    uplink: Uplink
    local: LocalSettings
    recipe: int
    signed: bool
    """Whether bytes of images are int8."""
    batch: int
    examples: int
    kept: int = 1
    """Images of a batch that have a place of their own, but for the last, which is for all others."""
    gradient: int = 0
    """Numbers of a gradient that are summed up at once; 0: as many as the largest convolution has."""

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Its layers."""
        return stages_of(self.architecture, self.width)

    @cached_property
    def flat(self) -> int:
        """The first of the layers of one pixel that end the network."""
        found = len(self.stages)
        while found and self.stages[found - 1].is_flat:
            found -= 1
        return found

    @property
    def weights(self) -> int:
        """Weights of all layers."""
        return sum(stage.weights for stage in self.stages)

    @property
    def code(self) -> int:
        """Bytes of a code."""
        return 1 if self.width.bits <= 8 else 2

    @cached_property
    def sum(self) -> int:
        """Bytes of a sum of a gradient: positions of the batch times the largest product."""
        positions = max(stage.out_rows * stage.out_columns for stage in self.stages)
        return 4 if positions * self.batch * self.width.max_code**2 <= INT32 else 8

    @cached_property
    def values(self) -> int:
        """Codes of an image in all layers."""
        return self.stages[0].received + sum(stage.given for stage in self.stages)

    @cached_property
    def marks(self) -> int:
        """Bytes that say where errors of an image pass."""
        return sum(stage.given for stage in self.stages)

    @property
    def shared(self) -> int:
        """Images that have no place of their own."""
        return max(1, self.batch - self.kept + 1)

    @cached_property
    def plane(self) -> int:
        """Sums that are needed at once: of a plane, and of all that a layer of one pixel receives."""
        planes = [max(stage.conv_rows * stage.conv_columns, stage.rows * stage.columns) for stage in self.stages]
        return max(*planes, 32)

    @cached_property
    def widest(self) -> int:
        """Error codes of a convolution."""
        return max((stage.given for stage in self.stages[: self.flat]), default=1)

    @cached_property
    def spots(self) -> int:
        """Places of an output after the pooling."""
        return max(stage.out_rows * stage.out_columns for stage in self.stages)

    @cached_property
    def flat_errors(self) -> int:
        """Error codes of the layers of one pixel."""
        return sum(stage.given for stage in self.stages[self.flat :])

    @cached_property
    def least_gradient(self) -> int:
        """A gradient is summed up for whole outputs."""
        return max(stage.each for stage in self.stages)

    @cached_property
    def whole_gradient(self) -> int:
        """Enough for every layer whose images would otherwise have to pass more than once."""
        return max(self.least_gradient, *(stage.weights for stage in self.stages[: self.flat] or self.stages))

    @property
    def sums(self) -> int:
        """Numbers of a gradient that are summed up at once."""
        return self.gradient or self.whole_gradient

    @property
    def parts(self) -> list[Part]:
        """The memory by part, the largest first."""
        code, moved = self.code, 1 if self.reply else 0
        parts = [
            Part("weights", code * self.weights),
            Part("weights as received, to send how far they moved", code * self.weights * moved),
            Part("ternary weights, as a step began", (self.weights + 3) // 4),
            Part(f"activations of {self.kept} of {self.batch} images", self.kept * (code * self.values + self.marks)),
            Part(
                "inputs of the linear layers, of the other images", code * self.shared * self.stages[self.flat].received
            ),
            Part("errors of the linear layers", code * self.batch * self.flat_errors),
            Part("errors of convolutions", 2 * code * self.widest),
            Part(f"gradient, {self.sums} of {max(s.weights for s in self.stages)} at once", self.sum * self.sums),
            Part("sums of a plane, and where errors lie", 4 * self.plane + 12 * self.spots),
            Part("order of examples", 4 * (self.examples + self.batch)),
            Part("an image as it is varied", self.stages[0].received if self.local.augment else 0),
            Part("head of a task, and what is known of a round", HEAD + 256 + 16 * len(self.stages)),
            Part("a frame of the link", CHUNK + LINK),
            Part("stack, as allowed for", STACK),
        ]
        return sorted((part for part in parts if part.size), key=lambda part: -part.size)

    @property
    def total(self) -> int:
        """Bytes of memory in all."""
        return sum(part.size for part in self.parts)

    def within(self, ram: int) -> Plan:
        """The same with as much kept as there is room for, or a ConfigError that names the largest part."""
        least = replace(self, kept=1, gradient=self.least_gradient)
        if least.total > ram:
            largest = least.parts[0]
            taken = f"{kilobytes(least.total)} of memory, {kilobytes(largest.size)} of it for {largest.name}"
            raise ConfigError(
                f"ram: {kilobytes(ram)}; {taken}; accepted: {kilobytes(least.total)} or more{self._cures()}"
            )
        room = (ram - least.total) // self.sum + least.sums
        found = replace(least, gradient=min(room, self.whole_gradient))
        for kept in range(self.batch, 1, -1):
            more = replace(found, kept=kept)
            if more.total <= ram:
                return more
        return found

    def _cures(self) -> str:
        cures = []
        if self.width.bits > 8:
            cures.append("a width of at most 8 bits")
        if self.reply:
            cures.append("a method that sends weights")
        cures.append("a smaller model (-s width=0.5) or batch")
        return f", {', '.join(cures)}"

    def names(self) -> Iterator[str]:
        """Names of the tensors, in the order in which they travel."""
        return map(weight_name, self.architecture.weight_layers)


def plan_of(
    scene: Scene, method: Method, client: ClientSpec, *, signed: bool, examples: int = 0, ram: int | None = None
) -> Plan:
    """What a device of a client's width must have to take part, in as much memory as there is."""
    if client.width.is_float:
        raise ConfigError(f"width: {client.width}; accepted: int2 to int16, which a microcontroller computes with")
    half = client_half(method)
    if half is None:
        raise ConfigError(
            f"method: {method.name}: its clients remember or correct something, which no microcontroller does; "
            "accepted: fedavg, fedpaq, fedcom, prowd, prowd-swa, prowd-deq, prowd-plus, or a grouped average"
        )
    slots = list(method.expects(scene, client).values())
    moves = any(slot.movement for slot in slots)
    most = max(examples, client.num_examples)
    plan = Plan(
        architecture=scene.architecture,
        width=client.width,
        method=method.name,
        reply=REPLIES[half] if moves else REPLIES[WEIGHTS],
        reply_width=slots[0].width,
        uplink=scene.uplink,
        local=scene.local,
        recipe=recipe(method, scene.uplink, scene.local, client.width),
        signed=signed,
        batch=min(scene.local.batch, most),
        examples=most,
    )
    return plan if ram is None else plan.within(ram)


def kilobytes(size: int) -> str:
    """A size as people read it: K of 1024 bytes."""
    return f"{size / 1024:.1f}K"
