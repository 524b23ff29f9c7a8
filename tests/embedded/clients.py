"""Small federations whose first client is compiled C, asked frame by frame."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from prowd.device.memory import ClientMemory
from prowd.device.scene import ClientSpec, LocalSettings, Scene
from prowd.device.training import Examples
from prowd.embedded.build import build, run_command
from prowd.embedded.card import card_bytes
from prowd.embedded.check import first_task
from prowd.embedded.plan import Plan, plan_of
from prowd.embedded.sources import write_client
from prowd.federation.client import ClientRuntime
from prowd.link.frames import Frame, Frames, Kind, encode
from prowd.methods import Device, Method
from prowd.nets import Architecture, Conv, Flatten, Linear, MaxPool
from prowd.nets.lowbit.model import LowBitSettings
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.wire.fields import crc32

__all__ = ["NETS", "Board", "Case", "case_of", "started"]

NETS = {
    "watch": Architecture(
        (
            Conv("a", 2, 4, (5, 1), (1, 1), (2, 0)), MaxPool((2, 1), (2, 1)),
            Conv("b", 4, 6, (3, 1), (1, 1), (1, 0)), MaxPool((4, 1), (4, 1)),
            Flatten(), Linear("c", 24, 8), Linear("d", 8, 3, relu=False),
        ), (2, 32, 1),
    ),
    "odd": Architecture(
        (
            Conv("a", 3, 6, (3, 2), (2, 1), (1, 0)), MaxPool((2, 2), (2, 2)),
            Conv("b", 6, 4, (3, 3), (1, 2), (2, 1), relu=False, groups=2), MaxPool((1, 2), (2, 3)),
            Flatten(), Linear("c", 8, 4), Linear("d", 4, 3, relu=False),
        ), (3, 8, 7),
    ),
    "no convolution": Architecture((Flatten(), Linear("a", 12, 9), Linear("b", 9, 2, relu=False)), (1, 3, 4)),
}  # fmt: skip
CHUNK = 512
SECONDS = 120


@dataclass(frozen=True)
class Case:
    """A client of a network, a width and a method, in Python and as it is to be compiled."""

    scene: Scene
    method: Method
    runtime: ClientRuntime
    plan: Plan

    def task(self, steps: int | None = None) -> bytes:
        """What it is asked in the first round."""
        return first_task(self.scene, self.method, self.scene.clients[0], steps)

    def compiled(self, folder: Path, target: str = "posix", **options: Any) -> list[str]:
        """The command that runs it."""
        card = self.written(folder)
        return run_command(build(folder, target, **options), target, card)

    def written(self, folder: Path) -> Path:
        """Write what is to be compiled; return the card."""
        folder.mkdir(parents=True, exist_ok=True)
        write_client(self.plan, folder, (self.plan.total + 1023) // 1024 * 1024)
        card = folder / "card"
        card.write_bytes(card_bytes(self.scene.architecture.digest, 0, self.runtime.device.train))
        return card


def case_of(
    net: str, bits: int, method: Method, folder: Path, *, examples: int = 11, signed: bool = True,
    kept: int = 1, gradient: int = 0, **settings: Any,
) -> Case:  # fmt: skip
    """One client beside a Float32 one. Of ``settings`` steps, batch, augment, loss and uplink are known."""
    architecture, uplink = NETS[net], settings.pop("uplink", "ternary")
    lowbit = LowBitSettings(loss=settings.pop("loss", "cross-entropy"))
    local = LocalSettings(**{"steps": 3, "batch": 4, **settings}, lowbit=lowbit)
    specs = ClientSpec(0, Bitwidth(bits), examples), ClientSpec(1, FLOAT32, examples)
    scene = Scene(architecture, specs, seed=2**63 + 17, uplink=uplink, local=local)
    draws = torch.Generator().manual_seed(bits)
    images = torch.randint(0, 256, (examples, *architecture.input_shape), generator=draws).to(torch.uint8)
    data = Examples(
        images.view(torch.int8) if signed else images,
        torch.randint(0, architecture.classes, (examples,), generator=draws),
    )
    device = Device(specs[0], data, data, ClientMemory(folder / "memory", scene.seed, 0))
    plan = replace(plan_of(scene, method, specs[0], signed=signed), kept=kept, gradient=gradient)
    return Case(scene, method, ClientRuntime(scene, method, device), plan)


class Board:
    """A running client, asked frame by frame; it answers each of them once."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.number, self._frames = process, 0, Frames()
        self._found: list[Frame] = []

    def tell(self, kind: int, payload: bytes, number: int | None = None) -> None:
        """Send a request."""
        self.number = self.number + 1 if number is None else number
        self.send(encode(Frame(kind, self.number, payload)))

    def send(self, data: bytes) -> None:
        """Send bytes."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def next(self) -> Frame:
        """The next frame that it sends."""
        assert self.process.stdout is not None
        while not self._found:
            data = self.process.stdout.read1(4096)  # type: ignore[attr-defined]
            assert data, "it has ended"
            self._found += self._frames.feed(data)
        return self._found.pop(0)

    def ask(self, kind: int, payload: bytes = b"", number: int | None = None) -> Frame:
        """Send a request and return the answer, with the number of the request."""
        self.tell(kind, payload, number)
        while (answer := self.next()).kind == Kind.WORKING or answer.number != self.number:
            pass
        return answer

    @staticmethod
    def requests(task: bytes) -> Iterator[tuple[int, bytes]]:
        """What must be asked to have a task done, but for the update."""
        for at in range(0, len(task), CHUNK):
            yield Kind.PUT, words(len(task), at) + task[at : at + CHUNK]
        yield Kind.RUN, words(len(task), crc32(task))

    def handle(self, task: bytes) -> bytes | str:
        """The update, or why there is none."""
        for kind, payload in self.requests(task):
            answer = self.ask(kind, payload)
        if answer.kind == Kind.REFUSED:
            return answer.payload[2:].decode()
        return self.update(int.from_bytes(answer.payload[:4], "little"))

    def update(self, length: int) -> bytes:
        """The update that it has."""
        found = b""
        while len(found) < length:
            answer = self.ask(Kind.GET, words(len(found)))
            assert answer.kind == Kind.DATA
            assert answer.payload[:4] == words(len(found))
            found += answer.payload[4:]
        return found


def words(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


@contextmanager
def started(command: Sequence[str], hello: bool = True) -> Iterator[Board]:
    """A client that runs until it is no longer needed."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        try:
            board = Board(process)
            if hello:
                assert board.next().kind == Kind.I_AM
            yield board
        finally:
            process.kill()
