"""Flower without processes: a grid whose nodes answer by the app of a device, in this process, and a jumping clock."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from prowd.files import sha256
from prowd.flower.client_app import app
from prowd.flower.records import TRAIN, Brief, pack_update, unpack_task, unpack_update
from prowd.wire import Update, decode_task, decode_update, encode_update

FIRST = 100
"""Node 100 is client 0, node 101 client 1 and so on."""

Honest = Callable[[], Message]
Trick = Callable[[Message, Honest], Message | None]
"""What a node does in the place of an answer, given what it was asked and the honest answer; None is silence."""


@dataclass
class Clock:
    """Time that passes when somebody sleeps. Stands in for the module ``time``."""

    now: float = 0.0
    naps: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.naps.append(seconds)
        self.now += seconds or 0.01


@dataclass
class FakeGrid:
    """Nodes by number, each with the configuration its operator gave it, and what they do wrong.

    ``tricks`` are by node and round (0 is the hello), one for each time it is asked; after them it is honest.
    """

    clock: Clock
    nodes: dict[int, dict[str, Any]]
    tricks: dict[tuple[int, int], list[Trick]] = field(default_factory=dict)
    slow: dict[tuple[int, int], float] = field(default_factory=dict)
    """Seconds that a node takes in a round; others take 2."""
    refuses: set[tuple[int, int]] = field(default_factory=set)
    """Nodes and rounds whose messages Flower does not take."""
    asked: list[tuple[int, int]] = field(default_factory=list)
    ttls: list[float] = field(default_factory=list)
    waiting: dict[str, tuple[float, Message]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    thrifty: bool = False
    """Whether what was answered once to the same task, in whatever run, is answered again. Not where nodes remember."""

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self.push(message) for message in messages]

    def push(self, message: Message) -> str:
        node, round_ = message.metadata.dst_node_id, round_of(message)
        assert message.metadata.ttl > 0
        self.asked.append((node, round_))
        self.ttls.append(message.metadata.ttl)
        if node not in self.nodes or (node, round_) in self.refuses:
            return ""
        number = f"message-{next(self.numbers)}"
        message.metadata.__dict__["_message_id"] = number
        tricks = self.tricks.get((node, round_), [])
        trick = tricks.pop(0) if tricks else honest
        reply = trick(message, lambda: self.answer(message))
        if reply is not None:
            self.waiting[number] = self.clock.now + self.slow.get((node, round_), 2.0), travelled(reply)
        return number

    def answer(self, message: Message) -> Message:
        """As the process that Flower starts on a node."""
        node = message.metadata.dst_node_id
        config = self.nodes[node]
        if not self.thrifty:
            return run_app(message, node, config)
        key = digest(message, config)
        if key not in ANSWERS:
            ANSWERS[key] = run_app(message, node, config)
        known = ANSWERS[key]
        return Message(known.error if known.has_error() else known.content, reply_to=message)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        ready = [number for number in message_ids if number in self.waiting]
        return [self.waiting.pop(number)[1] for number in ready if self.waiting[number][0] <= self.clock.now]


ANSWERS: dict[str, Message] = {}


def digest(message: Message, config: Mapping[str, Any]) -> str:
    """What an answer depends on."""
    own = {key: value for key, value in config.items() if key != "state"}
    task = unpack_task(message.content, 2**30) if message.metadata.message_type == TRAIN else b""
    return sha256(json.dumps([own, Brief.read(message.content).config]).encode() + task)


def run_app(message: Message, node: int, config: dict[str, Any]) -> Message:
    try:
        reply = app(travelled(message), Context(1, node, config, RecordDict(), {}))
    except Exception as error:  # noqa: BLE001 - as in Flower
        reason = f"{type(error)}:<'{error}'>"
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
    assert reply.metadata.reply_to_message_id == message.metadata.message_id
    return reply


def travelled(message: Message) -> Message:
    """A message as the other side finds it: taken apart, and put together again."""
    objects = {number: part.deflate() for number, part in get_all_nested_objects(message).items()}
    found = inflate_object_from_contents(message.object_id, objects)
    assert isinstance(found, Message)
    found.metadata.__dict__["_message_id"] = message.metadata.message_id
    return found


def round_of(message: Message) -> int:
    """The round of a task; 0 for a hello."""
    return decode_task(unpack_task(message.content, 2**30)).round if message.metadata.message_type == TRAIN else 0


# What nodes do


def honest(message: Message, answer: Honest) -> Message:
    return answer()


def silent(message: Message, answer: Honest) -> None:
    """Not even train."""


def fails(code: int, reason: str | None) -> Trick:
    return lambda message, answer: Message(Error(code, reason), reply_to=message)


def sends(content: RecordDict) -> Trick:
    return lambda message, answer: Message(content, reply_to=message)


def spoils(spoil: Callable[[bytes], bytes]) -> Trick:
    """Trains, and changes the bytes of its update."""
    return lambda message, answer: Message(pack_update(spoil(unpack_update(answer().content, 2**30))), reply_to=message)


def alters(alter: Callable[[Update], Update]) -> Trick:
    """Trains, and sends another update that is well-formed."""
    return spoils(lambda data: encode_update(alter(decode_update(data))))
