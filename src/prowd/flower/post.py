"""Messages to nodes and their replies, through Flower's grid. A reply is hostile before it is even read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import httpx
from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from prowd.errors import WireError
from prowd.federation.background import begin

__all__ = ["Letter", "SilenceError", "ask", "content_of", "poll"]

log = logging.getLogger(__name__)
POLL = 0.25  # seconds
PIECE = 2.0  # seconds that the other nodes wait for one whose reply is on its way; it goes on arriving meanwhile
LATE = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)

T = TypeVar("T")
Letter = Message | WireError
"""A reply, or what is wrong with one that can't be read."""


class SilenceError(WireError):
    """A node did not answer: its program failed, or Flower answers in its place."""


def content_of(letter: Letter) -> RecordDict:
    """What a reply holds, or raise what is wrong with it."""
    if isinstance(letter, WireError):
        raise letter
    if letter.has_error():
        late = letter.error.code in LATE
        raise SilenceError("no reply in time" if late else f"failed: {letter.error.reason}")
    return letter.content


def poll(grid: Grid, messages: Mapping[int, Message], seconds: float) -> Iterator[tuple[int, Letter]]:
    """Send each node its message and yield (node, reply) as replies come in, until all are there or time is up.

    Replies are fetched one by one and known by what was asked, never by what they say of themselves. Flower waits for
    the parts of a reply that a node has announced and not sent, by its own rules three minutes to two hours: whoever
    dies or dawdles there must not hold up the others, nor the round beyond its deadline.
    """
    end = time.monotonic() + seconds
    taken = {*ask(lambda: grid.push_messages(messages.values()))} - {""} if messages else set()
    numbers = {node: message.metadata.message_id for node, message in messages.items()}
    waiting = {node: number for node, number in numbers.items() if number in taken}
    for node in numbers:
        if node not in waiting:
            yield node, SilenceError("Flower does not take a message for it")
    arriving: dict[int, Future[Letter | None]] = {}
    while waiting:
        for node, number in list(waiting.items()):
            begun = arriving.pop(node, None)
            fetch = begun or begin(partial(_fetch, grid, number))
            try:
                letter = fetch.result(0 if begun else PIECE)
            except TimeoutError:
                arriving[node] = fetch
                continue
            if letter is not None:
                del waiting[node]
                yield node, letter
        if not waiting or time.monotonic() >= end:
            return
        time.sleep(POLL)


def _fetch(grid: Grid, number: str) -> Letter | None:
    """The reply to a message, if it has come."""
    try:
        found = ask(lambda: grid.pull_messages([number]))
    except Exception as error:  # noqa: BLE001 - Flower decodes a stranger's bytes here, and may stumble over anything
        return WireError(f"Flower can't read its reply: {error!r}")
    return found[0] if found else None


def ask(call: Callable[[], Iterable[T]]) -> list[T]:
    """What Flower answers; nothing while the SuperLink is away."""
    try:
        return list(call())
    except httpx.HTTPError as error:
        log.warning("the SuperLink does not answer: %s", error)
        return []
