"""Small federations for the unit tests: networks of a few channels, data a net of that size can learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from prowd.device.memory import ClientMemory
from prowd.device.scene import ClientSpec, LocalSettings, Scene
from prowd.device.training import Examples
from prowd.federation.client import ClientRuntime
from prowd.methods import Device, Method
from prowd.nets import Architecture, Conv, Flatten, Linear, MaxPool
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.numbers.quantize import QTensor, Weights
from prowd.wire import Parcel, Task

INT2, INT4, INT6, INT8, INT16 = (Bitwidth(bits) for bits in (2, 4, 6, 8, 16))
SHAPE, CLASSES = (2, 8, 8), 3


def network() -> Architecture:
    """Conv 2→4 (fan-in 18, α = 2), pool, linear 64→3 (α = 4): every scale is one that shows when it is left out."""
    layers = (Conv("conv", 2, 4), MaxPool(), Flatten(), Linear("fc", 64, CLASSES, relu=False))
    return Architecture(layers, SHAPE)


def liftable() -> Architecture:
    """A network with a layer that passes φ."""
    layers = (Conv("conv", 2, 16), MaxPool(), MaxPool(), Flatten(), Linear("lift", 64, 16))
    return Architecture((*layers, Linear("fc", 16, CLASSES, relu=False)), SHAPE)


def dot(inputs: int = 2, outputs: int = 2) -> Architecture:
    """A single linear layer: a model that can be written out by hand."""
    return Architecture((Flatten(), Linear("fc", inputs, outputs, relu=False)), (1, 1, inputs))


def blobs(count: int, seed: int = 0, shape: tuple[int, int, int] = SHAPE, classes: int = CLASSES) -> Examples:
    """A fixed pattern of ±0.7 for each class, with noise, as int8 codes of 1/128; the classes come in turn.

    A linear net can learn them.
    """
    pattern = torch.randn((classes, *shape), generator=torch.Generator().manual_seed(7)).sign() * 0.7
    noise = torch.randn((count, *shape), generator=torch.Generator().manual_seed(seed)) * 0.3
    labels = torch.arange(count) % classes
    return Examples(((pattern[labels] + noise) * 128).round().clamp(-128, 127).to(torch.int8), labels)


def scene(
    *widths: Bitwidth, architecture: Architecture | None = None, steps: int = 2, batch: int = 4, examples: int = 12
) -> Scene:
    """One client for each width, all with the same number of examples; vary it with dataclasses.replace."""
    clients = tuple(ClientSpec(number, width, examples) for number, width in enumerate(widths))
    return Scene(architecture or network(), clients, seed=5, local=LocalSettings(steps=steps, batch=batch))


def asked(
    given: Scene, spec: ClientSpec, weights: Weights, round_: int = 1, factor: float = 1.0, **measures: float
) -> Task:
    """The task of a round, as the engine writes it."""
    return Task(round_, given.seed, spec.id, weights, measures, given.work(spec.width, round_, factor))


def device(spec: ClientSpec, folder: Path, seed: int = 5, shape: tuple[int, int, int] = SHAPE) -> Device:
    """A client with its own blobs, and its memory under ``folder``."""
    memory = ClientMemory(folder / f"client-{spec.id}", seed, spec.id)
    return Device(spec, blobs(spec.num_examples, spec.id, shape), blobs(10, 99, shape), memory)


def floats(*values: float, shape: tuple[int, ...] | None = None) -> QTensor:
    """A Float32 tensor of these values."""
    return QTensor(torch.tensor(values, dtype=torch.float32).reshape(shape or (len(values),)), FLOAT32)


def codes(width: Bitwidth, *values: int, shape: tuple[int, ...] | None = None) -> QTensor:
    """A tensor of these codes."""
    return QTensor(torch.tensor(values, dtype=torch.int16).reshape(shape or (len(values),)), width)


def same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    """Whether two models are equal, bit for bit."""
    return list(left) == list(right) and all(torch.equal(left[name], right[name]) for name in left)


Answer = Callable[[int, bytes], bytes | None]


@dataclass
class FakeTransport:
    """Answers for the clients with a function; None is a lost client. Replies come in the order given."""

    answer: Answer
    order: Callable[[list[int]], list[int]] = field(default=lambda clients: clients)
    sent: dict[int, bytes] = field(default_factory=dict)
    came: dict[int, bytes] = field(default_factory=dict)
    remote: bool = False

    def exchange(self, parcels: Mapping[int, Parcel]) -> Iterator[tuple[int, bytes]]:
        self.sent = {client: parcel.join() for client, parcel in parcels.items()}
        self.came = {}
        for client in self.order(list(parcels)):
            reply = self.answer(client, self.sent[client])
            if reply is not None:
                self.came[client] = reply
                yield client, reply

    def close(self) -> None: ...


def honest(scene: Scene, method: Method, folder: Path) -> Answer:
    """Clients that do what they are asked."""

    def answer(client: int, message: bytes) -> bytes:
        return ClientRuntime(scene, method, device(scene.clients[client], folder)).handle(message)

    return answer
