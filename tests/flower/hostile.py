"""A device that misbehaves: the real one, whose updates are spoiled round by round as its node configuration says.

Part of the app directory that the tests give to Flower, never of the package.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.supernode.runtime import run_clientapp as running

from prowd.errors import ConfigError
from prowd.flower import client_app
from prowd.flower.records import pack_update, unpack_task, unpack_update
from prowd.wire import decode_task, decode_update, encode_update

LONGER = 65.0  # seconds, than the deadline
LIMIT = 2**30
PAPER = "out of paper [/red] \x1b[2J\r\n[bold]"
"""A reason that would clear a terminal, and that is no markup."""

app = ClientApp()


def own(context: Context) -> Context:
    """The context without what only this file understands."""
    known = {key: value for key, value in context.node_config.items() if key not in ("faults", "folder")}
    return Context(context.run_id, context.node_id, known, context.state, context.run_config)


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    words = Path(f"{context.node_config['state']}-hello.txt")
    try:
        reply = client_app.hello(message, own(context))
    except ConfigError as error:
        words.write_text(str(error))
        raise
    words.write_text("welcome")
    return reply


@app.train()
def train(message: Message, context: Context) -> Message:
    round_ = decode_task(unpack_task(message.content, LIMIT)).round
    faults = str(context.node_config["faults"]).split()
    fault = faults[round_ - 1] if round_ <= len(faults) else "none"
    folder = Path(str(context.node_config["folder"]))
    (folder / f"client-{context.node_config['client']}-round-{round_}").touch()
    if fault == "straggle":
        time.sleep(LONGER)
    if fault == "fail":
        raise RuntimeError(PAPER)
    reply = client_app.train(message, own(context))
    while context.node_config["width"] == "float32" and round_ == 3 and not (folder / "back").exists():
        time.sleep(0.2)
    if fault == "twice":
        push_another_after(reply, Message(pack_update(os.urandom(999)), reply_to=message))
    if fault in ("none", "twice"):
        return reply
    return Message(pack_update(spoil(fault, unpack_update(reply.content, LIMIT))), reply_to=message)


def push_another_after(reply: Message, other: Message) -> None:
    """Have this process send a second reply to the same message, by what Flower sends the first with."""
    push = running.push_message

    def both(client: Any, message: Message, context: Context) -> None:
        push(client, message, context)
        if message is reply:
            time.sleep(2)
            with suppress(Exception):  # it is Flower's to refuse it
                push(client, other, context)

    running.push_message = both


def spoil(fault: str, honest: bytes) -> bytes:
    """What is sent in the place of an honest update."""
    if fault == "garbage":
        return os.urandom(len(honest))
    update = decode_update(honest)
    if fault == "old":
        return encode_update(replace(update, round=update.round - 1))
    name, tensor = next(iter(update.weights.items()))
    tensor.codes.view(-1)[0] = float(fault)  # nan
    return encode_update(replace(update, weights={**update.weights, name: tensor}))
