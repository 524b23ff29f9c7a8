"""One local round of a compiled client, byte by byte that of the Python client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prowd.device.scene import ClientSpec, Scene
from prowd.errors import RunError
from prowd.federation.client import ClientRuntime
from prowd.link import Gateway, Patience, Tally
from prowd.link.streams import start_program
from prowd.methods import Method
from prowd.wire import Task, encode_task

__all__ = ["Checked", "check", "first_task", "trained_by"]


@dataclass(frozen=True)
class Checked:
    """What a client that was asked for a round needed."""

    name: str
    update: bytes
    ram: int
    stack: int


def first_task(scene: Scene, method: Method, client: ClientSpec, steps: int | None = None) -> bytes:
    """The task of the first round, of fewer steps if they are given; nothing is to be measured."""
    weights = method.dispatch(scene, method.init(scene), client)
    work = scene.work(client.width, 1)
    if steps is not None:
        work = type(work)(steps, work.batch, work.rate, work.network)
    return encode_task(Task(1, scene.seed, client.id, weights, {}, work)).join()


def trained_by(command: Sequence[str], task: bytes, steps: int) -> Checked:
    """The update that a program makes of a task."""
    gateway = Gateway(start_program(command), Patience(answer=30.0, work=1200.0), tally := Tally())
    try:
        name = gateway.hello().name
        return Checked(name, gateway.exchange(task, steps), tally.ram, tally.stack)
    finally:
        gateway.close()


def check(command: Sequence[str], runtime: ClientRuntime, steps: int) -> Checked:
    """Have a program do a round, and raise RunError unless its update is the Python client's."""
    task = first_task(runtime.scene, runtime.method, runtime.device.spec, steps)
    found, expected = trained_by(command, task, steps), runtime.handle(task)
    if found.update != expected:
        same = next(
            (n for n, pair in enumerate(zip(found.update, expected, strict=False)) if pair[0] != pair[1]), "the end"
        )
        raise RunError(
            f"the compiled client's update of {len(found.update)} bytes is not that of the Python client "
            f"({len(expected)} bytes); they differ from byte {same} on"
        )
    return found
