"""The dequantizer's place in a federation: φ in the server's memory, fitted round by round, and what it lifts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from prowd.device.scene import ClientSpec, Scene
from prowd.errors import ConfigError
from prowd.methods.base import ServerState, Slot
from prowd.methods.notes import figure
from prowd.methods.prowd.dequantizer import (
    Dequantizer,
    DequantizerSettings,
    Ladder,
    Net,
    dequantize,
    dequantize_in_stages,
    eligible,
    fit,
)
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import QTensor, Weights
from prowd.numbers.seeds import generator
from prowd.wire import Update

__all__ = ["LAST", "PHI", "Lifter"]

PHI, LAST = "phi/", "last/"  # where the server's memory keeps φ, and the last round's weights

Memory = Mapping[str, Tensor]


@dataclass(frozen=True)
class Lifter:
    """φ of one federation. Its parameters, and the weights that it is to learn from, are tensors in a memory."""

    scene: Scene
    ladder: Ladder
    settings: DequantizerSettings

    def begin(self, widths: Sequence[Bitwidth]) -> dict[str, Tensor]:
        """The memory of an untrained φ, for weights that arrive in ``widths``."""
        if self.settings.lam > 0 and not len(self.scene.buffer):
            raise ConfigError(
                "buffer: 0 images for the server to distill with; accepted: 1 or more, or dequantizer.lam=0"
            )
        for width in widths:
            self.ladder.entry(width)  # or says which it lacks
        if not eligible(self.scene.architecture, self.settings.module):
            found = f"{self.settings.module}, and no layer after the first has such a multiple of inputs and outputs"
            raise ConfigError(
                f"dequantizer.module: {found}; accepted: a smaller square, or method prowd-swa, without φ"
            )
        return _under(PHI, self._untrained().state())

    def fitted(self, state: ServerState, nets: Sequence[Net]) -> ServerState:
        """The state after Algorithm 2 on some networks, going on from its φ, for the round that is being made."""
        phi = self._phi(state.memory)
        losses = fit(phi, nets, self.scene.buffer, generator(self.scene.seed, "phi", state.round + 1))
        notes = {"recon": [figure(loss) for loss in losses.recon], "distill": [figure(loss) for loss in losses.distill]}
        memory = {**state.memory, **_under(PHI, phi.state())}
        return replace(state, memory=memory, notes={**state.notes, "phi": notes})

    def lift(self, memory: Memory, updates: Sequence[Update]) -> list[dict[str, Tensor]]:
        """w_n ← φ(w_n) of all clients, a client on each core: those who train are idle by now."""
        phi = self._phi(memory)
        with ThreadPoolExecutor(os.cpu_count(), initializer=torch.set_num_threads, initargs=(1,)) as threads:
            return list(threads.map(lambda update: dequantize(phi, self.scene.architecture, update.weights), updates))

    def stages(self, memory: Memory, update: Update) -> list[dict[str, Tensor]]:
        """A client's weights as they came, and after each block of φ that they pass; nothing if they pass none."""
        return dequantize_in_stages(self._phi(memory), self.scene.architecture, update.weights)

    def nets(self, updates: Sequence[Update]) -> list[Net]:
        """The networks of a round, as φ learns from them."""
        return [self._net(update.weights) for update in updates]

    def remember(self, updates: Sequence[Update]) -> dict[str, Tensor]:
        """A memory of the weights that have something to teach: those above the foot of the ladder."""
        teachers = [update for update in updates if self.ladder.entry(self._net(update.weights).width) > 0]
        return {
            f"{LAST}{update.client}/{name}": tensor.codes
            for update in teachers
            for name, tensor in update.weights.items()
        }

    def remembered(self, memory: Memory) -> list[int]:
        """Of whom a memory has weights."""
        return sorted({int(name.partition("/")[0]) for name in _within(LAST, memory)})

    def recall(self, memory: Memory, slots: Mapping[ClientSpec, Mapping[str, Slot]]) -> list[Net]:
        """The networks of a memory, which arrived as ``slots`` says."""
        return [
            self._net(
                {name: QTensor(memory[f"{LAST}{client.id}/{name}"], slot.width) for name, slot in expected.items()}
            )
            for client, expected in slots.items()
        ]

    def _net(self, weights: Weights) -> Net:
        """A network with the width in which it came, which is not its client's under the ternary uplink."""
        architecture = self.scene.architecture
        return Net(architecture, weights[next(iter(architecture.shapes))].width, weights)

    def _phi(self, memory: Memory) -> Dequantizer:
        phi = self._untrained().to(self.scene.device)
        phi.load(_within(PHI, memory))
        return phi

    def _untrained(self) -> Dequantizer:
        return Dequantizer(self.ladder, self.settings, self.scene.seed)


def _under(prefix: str, tensors: Memory) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _within(prefix: str, memory: Memory) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in memory.items() if name.startswith(prefix)}
