"""The Flower app of a device. Flower starts a new process for each message: what must last is on the device's disk."""

from __future__ import annotations

import logging
import time

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from prowd.federation.client import TASK_LIMIT
from prowd.flower.logs import event, log_to_stderr
from prowd.flower.node import Node, read_run
from prowd.flower.records import Brief, introduce, pack_update, unpack_task

__all__ = ["app"]

log = logging.getLogger(__name__)

app = ClientApp()


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Say who this device is."""
    log_to_stderr()
    brief = Brief.read(message.content)
    config = read_run(brief.config)
    spec = Node.read(context.node_config, config).introduce(config)
    who = {"client": spec.id, "width": str(spec.width), "examples": spec.num_examples}
    event(log, "introduced", {"run": brief.run, **who})
    return Message(introduce(spec), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train what the server sent."""
    log_to_stderr()
    began = time.perf_counter()
    brief = Brief.read(message.content)
    config = read_run(brief.config)
    node = Node.read(context.node_config, config)
    task = unpack_task(message.content, TASK_LIMIT)
    update = node.handle(config, brief.run, task)
    facts = {"run": brief.run, "client": node.client, "bytes_in": len(task), "bytes_out": len(update)}
    event(log, "trained", {**facts, "seconds": round(time.perf_counter() - began, 3)})
    return Message(pack_update(update), reply_to=message)
