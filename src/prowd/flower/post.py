"""Messages to nodes and their replies, through Flower's grid. A reply is hostile before it is even read."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping

import httpx
from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from prowd.errors import WireError

__all__ = ["Letter", "SilenceError", "content_of", "poll", "present"]

log = logging.getLogger(__name__)
POLL = 0.25  # seconds
LATE = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)

Letter = Message | WireError
"""A reply, or what is wrong with one that can't be read."""


class SilenceError(WireError):
    """A node did not answer: its program failed, or Flower answers in its place."""


def content_of(letter: Letter) -> RecordDict:
    """What a reply holds, or raise what is wrong with it."""
    if isinstance(letter, WireError):
        raise letter
    if letter.has_error():
        if letter.error.code in LATE:
            raise SilenceError("no reply in time")
        raise SilenceError(f"failed: {letter.error.reason}")
    return letter.content


def poll(grid: Grid, messages: Mapping[int, Message], seconds: float) -> Iterator[tuple[int, Letter]]:
    """Send each node its message and yield (node, reply) as replies come in, until all are there or time is up.

    Replies are fetched one by one and known by what was asked, never by what they say of themselves.
    """
    end = time.monotonic() + seconds
    taken = _push(grid, list(messages.values()))
    numbers = {node: message.metadata.message_id for node, message in messages.items()}
    waiting = {node: number for node, number in numbers.items() if number and number in taken}
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


def present(grid: Grid) -> list[int]:
    """The nodes that Flower knows; none while the SuperLink is away."""
    try:
        return list(grid.get_node_ids())
    except httpx.HTTPError as error:
        log.warning("the SuperLink does not answer: %s", error)
        return []


def _push(grid: Grid, messages: list[Message]) -> set[str]:
    """Send messages; the numbers of those that Flower has taken."""
    try:
        return set(grid.push_messages(messages)) if messages else set()
    except httpx.HTTPError as error:
        log.warning("the SuperLink does not answer: %s", error)
        return set()


def _fetch(grid: Grid, number: str) -> Letter | None:
    """The reply to a message, if it has come."""
    try:
        found = list(grid.pull_messages([number]))
    except httpx.HTTPError as error:  # the SuperLink is away for a moment
        log.warning("the SuperLink does not answer: %s", error)
        return None
    except Exception as error:  # noqa: BLE001 - Flower decodes a stranger's bytes here, and may stumble over anything
        return WireError(f"Flower can't read its reply: {error!r}")
    return found[0] if found else None
