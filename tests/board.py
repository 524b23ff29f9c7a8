"""A board that is none: a program that speaks the link's frames and computes with the ordinary client.

``python tests/board.py CONFIG.toml CLIENT [FOLDER [PORT]]`` is client CLIENT of a run, over standard input and output
or a port. With a folder it remembers what methods have it remember, and measures as asked, which no real board does.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from prowd.config.schema import load_config
from prowd.link.frames import Frame, Frames, Kind, encode
from prowd.methods.recipe import recipe
from prowd.runs.build import as_used, assemble, load_data
from prowd.wire import decode_task, encode_task
from prowd.wire.fields import crc32

__all__ = ["Board", "hello"]

Train = Callable[[bytes], bytes]
CHUNK = 256


def hello(
    width: int = 8,
    client: int = 2**32 - 1,
    network: int = 1,
    recipe: int = 0,
    examples: int = 12,
    data: int = 0,
    largest: int = 2**20,
    chunk: int = CHUNK,
    name: str = "fake",
) -> bytes:
    """What a board says of itself."""
    return (
        struct.pack("<BBHIQQIIII", width, 0, chunk, client, network, recipe, examples, data, largest, 0) + name.encode()
    )


@dataclass
class Board:
    """The device's side of docs/embedded.md, as short as it can be."""

    train: Train
    me: bytes = field(default_factory=hello)
    steps: int = 2
    last: int = 0
    total: int = 0
    task: bytes = b""
    crc: int = 0
    update: bytes = b""
    trained: int = 0
    """How often it has trained."""
    frames: Frames = field(default_factory=Frames)

    def boot(self) -> bytes:
        """Switched on, or on again: it knows nothing."""
        self.last, self.total, self.task, self.update, self.frames = 0, 0, b"", b"", Frames()
        return encode(Frame(Kind.I_AM, 0, self.me))

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes in, give the answers out."""
        for frame in self.frames.feed(data):
            again, self.last = frame.number == self.last, frame.number
            for kind, payload in self.answers(frame, again=again):
                yield encode(Frame(kind, frame.number, payload))

    def answers(self, frame: Frame, *, again: bool) -> Iterator[tuple[Kind, bytes]]:
        """What it says to a request."""
        if frame.kind == Kind.HELLO:
            self.last = 0
            yield Kind.I_AM, self.me
        elif frame.kind == Kind.PUT:
            total, offset = struct.unpack_from("<II", frame.payload)
            if not again and offset == 0:
                self.total, self.task, self.update = total, b"", b""
            if not again and (total, offset) == (self.total, len(self.task)):
                self.task += frame.payload[8:]
            yield Kind.TAKEN, struct.pack("<I", len(self.task))
        elif frame.kind == Kind.RUN:
            yield from self.run(*struct.unpack("<II", frame.payload))
        elif frame.kind == Kind.GET and self.update:
            (offset,) = struct.unpack("<I", frame.payload)
            yield Kind.DATA, frame.payload + self.update[offset : offset + CHUNK]
        elif frame.kind == Kind.GET:
            yield refused(3, "no update")
        else:
            yield refused(1, "unknown")

    def run(self, total: int, crc: int) -> Iterator[tuple[Kind, bytes]]:
        """Train, unless that is done."""
        if not self.update:
            if not self.task or len(self.task) != total:
                yield refused(3, "the task is not whole")
                return
            if crc32(self.task) != crc:
                self.task = b""
                yield refused(4, "the task is damaged")
                return
            yield Kind.WORKING, struct.pack("<II", 0, self.steps)
            try:
                self.update = self.train(self.task)
            except Exception as error:  # noqa: BLE001 - whatever it is, the gateway is told
                yield refused(5, str(error))
                return
            self.trained += 1
            yield Kind.WORKING, struct.pack("<II", self.steps, self.steps)
        yield Kind.DONE, struct.pack("<IIII", len(self.update), crc32(self.update), 4096, 1024)


def refused(code: int, text: str) -> tuple[Kind, bytes]:
    """An answer that is none."""
    return Kind.REFUSED, struct.pack("<H", code) + text.encode()[:200]


def client_of(config: Path, client: int, folder: Path, *, measures: bool) -> tuple[Train, bytes]:
    """The ordinary client, and what it says of itself."""
    loaded = load_config(config)
    assembly = assemble(loaded, as_used(loaded, load_data(loaded)))
    runtime = assembly.clients(folder)[client]
    scene, spec, examples = runtime.scene, runtime.device.spec, runtime.device.train
    data = crc32(examples.images.numpy().tobytes(), bytes(examples.labels.tolist()))
    number = recipe(runtime.method, scene.uplink, scene.local, spec.width)
    me = hello(spec.width.bits, client, scene.architecture.digest, number, spec.num_examples, data)

    def train(task: bytes) -> bytes:
        return runtime.handle(task if measures else encode_task(replace(decode_task(task), settings={})).join())

    return train, me


def main() -> None:
    """Speak over standard input and output, or with whoever connects."""
    config, client, *rest = sys.argv[1:]
    folder, port = (*rest, "", "")[:2]
    with tempfile.TemporaryDirectory() as temporary:
        train, me = client_of(Path(config), int(client), Path(folder or temporary), measures=bool(folder))
        if not port:
            serve(Board(train, me), 0, 1)
            return
        with socket.create_server(("127.0.0.1", int(port))) as server:
            while True:
                connection, _ = server.accept()
                with connection, suppress(OSError):
                    serve(Board(train, me), connection.fileno(), connection.fileno())


def serve(board: Board, reads: int, writes: int) -> None:
    """From being switched on to the end of the link."""
    write(writes, board.boot())
    while data := os.read(reads, 65536):
        for answer in board.feed(data):
            write(writes, answer)


def write(descriptor: int, data: bytes) -> None:
    """All of it."""
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
