"""A node that is the gateway of a board: the server talks to it as to any device, the board does the work."""

from __future__ import annotations

from contextlib import closing

from prowd.config.options import make_method
from prowd.config.schema import RunConfig
from prowd.device.limits import Limits
from prowd.device.scene import ClientSpec, LocalSettings
from prowd.errors import ConfigError, LinkError, WireError
from prowd.federation.client import TASK_LIMIT
from prowd.federation.links import Agreed, LinkedDevice
from prowd.federation.transport import Refusal, Silence
from prowd.methods.recipe import recipe
from prowd.numbers.bits import Bitwidth
from prowd.wire import decode_task

__all__ = ["introduce_board", "task_board"]


def introduce_board(link: str, config: RunConfig, client: int, width: Bitwidth, limits: Limits) -> ClientSpec:
    """Who a board is in a run: it says itself how many examples it has."""
    _check_steps(config.steps, limits)
    with closing(_board(link, config, client, width)) as board:
        try:
            who = board.open().hello()
            board.agreed.check(who)
        except (LinkError, WireError) as error:
            raise LinkError(f"{link}: {error}") from None
    return ClientSpec(client, width, who.examples)


def task_board(link: str, config: RunConfig, client: int, width: Bitwidth, limits: Limits, message: bytes) -> bytes:
    """Have a board do a task of a run."""
    limits.check_message(len(message))
    task = decode_task(message, TASK_LIMIT)
    if (task.client, task.seed) != (client, config.seed):
        found = f"client {task.client} of seed {task.seed}"
        raise WireError(f"client {client} of seed {config.seed} received a task for {found}")
    _check_steps(task.work.steps, limits)
    with closing(_board(link, config, client, width)) as board:
        reply = board.handle(message)
    if isinstance(reply, Silence | Refusal):
        raise LinkError(reply.reason)
    return reply


def _board(link: str, config: RunConfig, client: int, width: Bitwidth) -> LinkedDevice:
    local = LocalSettings(config.steps, config.batch, config.augment, config.lowbit, config.float32)
    number = recipe(make_method(config.method, config.options), config.uplink, local, width)
    return LinkedDevice(link, Agreed(width.bits, client, number))


def _check_steps(steps: int, limits: Limits) -> None:
    if steps > limits.steps:
        raise ConfigError(f"steps: {steps}; accepted: up to {limits.steps}, the limit of this device")
