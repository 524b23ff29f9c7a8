"""Messages to nodes and their replies, through Flower's grid. A reply is hostile before it is even read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import httpx
from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from prowd.errors import WireError

__all__ = ["Letter", "SilenceError", "ask", "content_of", "poll"]

log = logging.getLogger(__name__)
POLL = 0.25  # seconds
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

    Replies are fetched one by one and known by what was asked, never by what they say of themselves.
    """
    end = time.monotonic() + seconds
    taken = {*ask(lambda: grid.push_messages(messages.values()))} - {""} if messages else set()
    numbers = {node: message.metadata.message_id for node, message in messages.items()}
    waiting = {node: number for node, number in numbers.items() if number in taken}
    for node in numbers:
        if node not in waiting:
            yield node, SilenceError("Flower does not take a message for it")
    while waiting:
        for node, number in list(waiting.items()):
            letter = _fetch(grid, number)
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
