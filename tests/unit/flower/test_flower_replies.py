"""Replies that are not as agreed, or were not asked for: refused, counted, and never averaged in."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

import httpx
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from prowd.flower import post
from prowd.flower.records import BYTES
from prowd.wire import Update
from tests.unit.flower.fakes import FIRST, Clock, FakeGrid, Honest, Trick, alters, fails, sends, spoils
from tests.unit.flower.federations import absences, devices, expected, make_grid, run, weights


def not_a_number(update: Update) -> Update:
    found = update.weights["conv1.weight"]
    broken = replace(found, codes=torch.full_like(found.codes, float("nan")))
    return replace(update, weights={**update.weights, "conv1.weight": broken})


FOREIGN = RecordDict({BYTES: ArrayRecord({"update": Array("uint8", (1,), "numpy.ndarray", b"x")})})
REFUSED: dict[str, tuple[int, Trick, str]] = {
    "bytes": (1, spoils(lambda data: b"garbage" * 9), "magic"),
    "too long": (1, spoils(lambda data: data + bytes(10**6)), "message of 1001073 bytes"),
    "number": (2, alters(not_a_number), "tensor 'conv1.weight'"),
    "tensors": (1, alters(lambda update: replace(update, weights={})), "tensors is []"),
    "examples": (1, alters(lambda update: replace(update, num_examples=10**9)), "number of examples"),
    "no records": (1, sends(RecordDict()), "node 101: no array 'update'"),
    "stype": (1, sends(FOREIGN), "node 101: 'update' is 'numpy.ndarray'"),
}
"""Of each layer one: what else an update can get wrong is tested where it is admitted."""


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_as_agreed_is_refused(case: str, grid: FakeGrid, tmp_path: Path) -> None:
    client, trick, reason = REFUSED[case]
    grid.tricks = {(FIRST + client, 1): [trick]}
    result = run(grid, tmp_path / "run", {"rounds": 1})
    assert weights(result) == expected((client, 1), rounds=1) != expected(rounds=1)
    (line,) = result.rounds
    ((who, why),) = absences(line, "refused").items()
    assert who == client
    assert reason in why
    assert absences(line, "lost") == {}
    assert devices(line) == {n: ("refused", why) if n == client else ("ok", "") for n in range(4)}
    assert (line["devices"][client]["node"], line["devices"][client]["seconds"]) == (str(FIRST + client), 2.0)


def test_a_longer_update_than_the_limit_is_not_looked_at(grid: FakeGrid, tmp_path: Path) -> None:
    result = run(grid, tmp_path / "run", {"rounds": 1}, limit=8192, quorum=2)
    assert weights(result) == expected((2, 1), (3, 1), rounds=1)
    assert list(absences(result.rounds[0], "refused")) == [2, 3]
    exact = run(grid, tmp_path / "exact", {"rounds": 1}, limit=16145)
    assert weights(exact) == expected(rounds=1)


def test_a_reason_is_cut_short(grid: FakeGrid, tmp_path: Path) -> None:
    grid.tricks = {
        (FIRST, 1): [sends(RecordDict({"x" * 10**5: ConfigRecord({})}))],
        (FIRST + 1, 1): [fails(2, "y" * 10**5)],
    }
    result = run(grid, tmp_path / "run", {"rounds": 1}, quorum=2)
    assert weights(result) == expected((0, 1), (1, 1), rounds=1)
    for client in (0, 1):
        assert len(devices(result.rounds[0])[client][1]) == 500
    assert (tmp_path / "run" / "server.jsonl").stat().st_size < 10_000


# Replies that were not asked for


@dataclass
class Echo(FakeGrid):
    """Gives every reply twice, and those that it gave before again."""

    given: dict[str, Message] = field(default_factory=dict)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        numbers = list(message_ids)
        for number in numbers:
            for reply in super().pull_messages([number]):
                self.given[number] = reply
        return [self.given[number] for number in numbers if number in self.given] * 2


def test_a_reply_counts_once(clock: Clock, tmp_path: Path) -> None:
    grid = Echo(clock, make_grid(clock, tmp_path).nodes, thrifty=True)
    grid.slow = {(FIRST + 1, 1): 9.0, (FIRST + 1, 2): 61.0}
    result = run(grid, tmp_path / "run")
    assert weights(result) == expected((1, 2))
    assert [set(devices(line).values()) for line in result.rounds] == [
        {("ok", "")},
        {("ok", ""), ("lost", "node 101: no reply in 60 s")},
    ]
    assert [line["bytes"]["up"]["int8"] for line in result.rounds] == [1099 + 1073, 1099]


def test_a_reply_is_known_by_what_was_asked(grid: FakeGrid, tmp_path: Path) -> None:
    """A node can't answer in the place of another, whatever it writes on the envelope."""

    def astray(message: Message, answer: Honest) -> Message:
        reply = alters(lambda update: replace(update, client=0))(message, answer)
        assert reply is not None
        reply.metadata.__dict__["_reply_to_message_id"] = "message-4"
        return reply

    grid.tricks = {(FIRST + 1, 1): [astray]}
    grid.slow = {(FIRST, 1): 9.0}
    result = run(grid, tmp_path / "run", {"rounds": 1})
    assert grid.asked[4] == (FIRST, 1), "which is message 4"
    assert weights(result) == expected((1, 1), rounds=1)
    assert devices(result.rounds[0])[1] == ("refused", "client is 0; accepted: 1")


@dataclass
class Stumbling(FakeGrid):
    """Flower itself can't read a node's reply."""

    errors: dict[int, list[Exception]] = field(default_factory=dict)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        found = super().pull_messages(message_ids)
        for reply in found:
            if errors := self.errors.get(reply.metadata.src_node_id):
                self.waiting[reply.metadata.reply_to_message_id] = (self.clock.now, reply)
                raise errors.pop(0)
        return found


def test_a_reply_that_flower_stumbles_over_is_refused(clock: Clock, tmp_path: Path) -> None:
    grid = Stumbling(clock, make_grid(clock, tmp_path).nodes, thrifty=True)
    grid.slow = {(FIRST, 1): 1.0}

    def hostile(message: Message, answer: Honest) -> Message:
        grid.errors = {FIRST + 1: [IndexError("list index out of range")]}
        return answer()

    grid.tricks = {(FIRST + 1, 1): [hostile]}
    result = run(grid, tmp_path / "run", {"rounds": 1})
    assert weights(result) == expected((1, 1), rounds=1)
    status, reason = devices(result.rounds[0])[1]
    assert status == "refused"
    assert "IndexError('list index out of range')" in reason


def test_a_superlink_that_is_away_for_a_moment_is_asked_again(clock: Clock, tmp_path: Path) -> None:
    grid = Stumbling(clock, make_grid(clock, tmp_path).nodes, thrifty=True)

    def unlucky(message: Message, answer: Honest) -> Message:
        grid.errors = {FIRST + 1: [httpx.ConnectError("refused"), httpx.ReadTimeout("slow")] * 2}
        return answer()

    grid.tricks = {(FIRST + 1, 1): [unlucky]}
    result = run(grid, tmp_path / "run", {"rounds": 1})
    assert weights(result) == expected(rounds=1)
    assert grid.errors == {FIRST + 1: []}
    assert devices(result.rounds[0]) == dict.fromkeys(range(4), ("ok", ""))


@dataclass
class Dawdling(FakeGrid):
    """A node announces its reply and sends the rest late or never, for which Flower waits whatever the deadline is."""

    rest: threading.Event = field(default_factory=threading.Event)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        found = super().pull_messages(message_ids)
        if any(reply.metadata.src_node_id == FIRST + 1 and BYTES in reply.content for reply in found):
            self.rest.wait(60)
        return found


def test_a_reply_of_which_parts_never_come_does_not_hold_up_a_round(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post, "PIECE", 0.05)
    grid = Dawdling(clock, make_grid(clock, tmp_path).nodes, thrifty=True)
    began = time.monotonic()
    result = run(grid, tmp_path / "run", {"rounds": 1})
    assert time.monotonic() - began < 50
    grid.rest.set()
    assert weights(result) == expected((1, 1), rounds=1)
    assert devices(result.rounds[0])[1] == ("lost", "node 101: no reply in 60 s")
    assert result.rounds[0]["seconds"] == 60.0


def test_a_reply_that_is_long_on_its_way_counts(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post, "PIECE", 0.05)
    grid = Dawdling(clock, make_grid(clock, tmp_path).nodes, thrifty=True)

    def sleep(seconds: float) -> None:
        clock.now += seconds
        if clock.now > 20:
            grid.rest.set()
            time.sleep(0.02)

    monkeypatch.setattr(clock, "sleep", sleep)
    result = run(grid, tmp_path / "run", {"rounds": 1})
    assert weights(result) == expected(rounds=1)
    assert devices(result.rounds[0]) == dict.fromkeys(range(4), ("ok", ""))
    assert result.rounds[0]["devices"][1]["seconds"] > 15
