"""What nodes may do wrong: the server goes on, counts it, and comes to the weights of a run without them."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

import httpx
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from prowd.errors import ConfigError, RunError
from prowd.flower.records import BYTES, FACTS, STYPE, pack_update
from prowd.numbers.quantize import QTensor
from prowd.wire import Update
from tests.unit.flower.fakes import (
    FIRST,
    Clock,
    FakeGrid,
    Honest,
    Trick,
    absences,
    alters,
    devices,
    expected,
    fails,
    jumping,
    make_grid,
    sends,
    serve,
    server,
    silent,
    spoils,
    weights,
)
from tests.unit.scenes import INT8, INT16


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return jumping(monkeypatch)


# Replies that are refused


def tensor(update: Update, change: QTensor | None, name: str = "conv1.weight") -> Update:
    rest = {key: value for key, value in update.weights.items() if key != name}
    return replace(update, weights={**rest, name: change} if change else rest)


def other_shape(update: Update) -> Update:
    found = update.weights["conv1.weight"]
    return tensor(update, replace(found, codes=found.codes.flatten()))


def more_bits(update: Update) -> Update:
    return tensor(update, replace(update.weights["conv1.weight"], width=INT8))


def not_a_number(update: Update) -> Update:
    found = update.weights["conv1.weight"]
    return tensor(update, replace(found, codes=torch.full_like(found.codes, float("nan"))))


def named(update: Update) -> Update:
    return replace(update, weights={f"x{name}": value for name, value in update.weights.items()})


def huge(data: bytes) -> bytes:
    return data[:12] + struct.pack("<Q", 2**63) + data[20:]


def array(data: bytes, stype: str = STYPE, dtype: str = "uint8", shape: tuple[int, ...] | None = None) -> RecordDict:
    made = Array(dtype=dtype, shape=(len(data),) if shape is None else shape, stype=stype, data=data)
    return RecordDict({BYTES: ArrayRecord({"update": made})})


REFUSED: list[tuple[str, int, Trick, str]] = [
    ("garbage", 1, spoils(lambda data: b"garbage" * 9), r"byte 0: magic is b'garb'; accepted: b'PRWD'"),
    ("nothing", 1, spoils(lambda data: b""), r"message of 0 bytes; accepted: 24 to \d+"),
    ("truncated", 1, spoils(lambda data: data[:-1]), r"message of 1072 bytes; accepted: the 1073 its header declares"),
    ("flipped", 1, spoils(lambda data: data[:-1] + bytes([data[-1] ^ 1])), r"body at byte \d+: damaged"),
    ("huge", 1, spoils(huge), r"message of 1073 bytes; accepted: the 92\d+ its header declares"),
    ("long", 1, spoils(lambda data: data + bytes(10**6)), r"message of 1001073 bytes; accepted: 24 to \d{5}"),
    ("shape", 1, alters(other_shape), r"shape of 'conv1\.weight' is \(\d+,\); accepted: \(\d+, 1, 3, 3\)"),
    ("missing", 1, alters(lambda update: tensor(update, None)), r"tensors is .*; accepted: \['conv1\.weight', "),
    ("other names", 1, alters(named), r"tensors is \['xconv1\.weight', .*; accepted: "),
    ("more bits", 1, alters(more_bits), r"width of 'conv1\.weight' is int8; accepted: int2"),
    ("wider", 1, alters(lambda update: replace(update, width=INT16)), r"width is int16; accepted: int8"),
    ("not a number", 2, alters(not_a_number), r"tensor 'conv1\.weight', payload at byte \d+: "),
    ("metric", 1, alters(lambda update: replace(update, metrics={"loss": float("nan")})), r"'?loss'? is nan"),
    ("accuracy", 1, alters(lambda update: replace(update, metrics={"accuracy_trained": 2.0})), r"accepted: 0 to 1"),
    ("round", 1, alters(lambda update: replace(update, round=7)), r"round is 7; accepted: 1"),
    ("client", 1, alters(lambda update: replace(update, client=0)), r"client is 0; accepted: 1"),
    ("examples", 1, alters(lambda update: replace(update, num_examples=10**9)), r"examples is 10{9}; accepted: 358"),
    ("no records", 1, sends(RecordDict()), r"node 101: no array 'update' in record 'prowd\.bytes'; found: \[\]"),
    ("facts", 1, sends(RecordDict({FACTS: ConfigRecord({"update": b"x"})})), r"found: \['prowd\.facts'\]"),
    ("config", 1, sends(RecordDict({BYTES: ConfigRecord({"update": b"x"})})), r"node 101: no array 'update'"),
    ("other array", 1, sends(RecordDict({BYTES: ArrayRecord({"head": Array("uint8", (0,), STYPE, b"")})})), "no array"),
    ("stype", 1, sends(array(b"x", "numpy.ndarray")), r"node 101: 'update' is 'numpy\.ndarray', 'uint8', \[1\]; "),
    ("dtype", 1, sends(array(b"x", dtype="object")), r"'update' is 'prowd\.v1', 'object', \[1\]; accepted: 'prowd"),
    ("array shape", 1, sends(array(b"x", shape=(2**62,))), r"\[4611686018427387904\]; accepted: .* \[1\]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("client", "trick", "reason"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_is_not_as_agreed_is_refused(client: int, trick: Trick, reason: str, clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.tricks = {(FIRST + client, 1): [trick]}
    result = serve(grid, server(tmp_path / "run", {"rounds": 1}))
    assert weights(result) == expected((client, 1), rounds=1) != expected(rounds=1)
    (line,) = result.rounds
    ((who, why),) = absences(line, "refused").items()
    assert who == client
    assert re.search(reason, why), why
    assert absences(line, "lost") == {}
    assert devices(line) == {n: ("refused", why) if n == client else ("ok", "") for n in range(4)}
    entry = line["devices"][client]
    assert (entry["client"], entry["node"], entry["seconds"]) == (client, str(FIRST + client), 2.0)


def test_a_longer_update_than_the_limit_is_not_looked_at(clock: Clock, tmp_path: Path) -> None:
    result = serve(
        make_grid(clock, tmp_path, thrifty=True), server(tmp_path / "run", {"rounds": 1}, limit=8192, quorum=2)
    )
    assert weights(result) == expected((2, 1), (3, 1), rounds=1)
    found = absences(result.rounds[0], "refused")
    assert found == {
        n: f"node {FIRST + n}: 'update' has 16{145 - 26 * (n == 3)} bytes; accepted: up to 8192" for n in (2, 3)
    }
    exact = serve(make_grid(clock, tmp_path, thrifty=True), server(tmp_path / "exact", {"rounds": 1}, limit=16145))
    assert weights(exact) == expected(rounds=1)


def test_an_old_reply_is_refused(clock: Clock, tmp_path: Path) -> None:
    kept: list[bytes] = []

    def keep(data: bytes) -> bytes:
        kept.append(data)
        return data

    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.tricks = {(FIRST, 1): [spoils(keep)], (FIRST, 2): [lambda m, _: Message(pack_update(kept[0]), reply_to=m)]}
    result = serve(grid, server(tmp_path / "run"))
    assert weights(result) == expected((0, 2))
    assert devices(result.rounds[1])[0] == ("refused", "round is 1; accepted: 2")


def test_a_reason_is_cut_short(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.tricks = {
        (FIRST, 1): [sends(RecordDict({"x" * 10**5: ConfigRecord({})}))],
        (FIRST + 1, 1): [fails(2, "y" * 10**5)],
    }
    result = serve(grid, server(tmp_path / "run", {"rounds": 1}, quorum=2))
    assert weights(result) == expected((0, 1), (1, 1), rounds=1)
    for client in (0, 1):
        assert len(devices(result.rounds[0])[client][1]) == 500
    assert (tmp_path / "run" / "server.jsonl").stat().st_size < 10_000


# Nodes that do not answer


@pytest.mark.parametrize(
    ("trick", "reason"),
    [
        (silent, "node 101: no reply in 60 s"),
        (fails(2, "<class 'ValueError'>:<'out of luck'>"), "node 101: failed: <class 'ValueError'>:<'out of luck'>"),
        (fails(3, "expired"), "node 101: no reply in time"),
        (fails(4, "expired"), "node 101: no reply in time"),
        (fails(5, "Node 101 is offline"), "node 101: failed: Node 101 is offline"),
        (fails(8, "killed"), "node 101: failed: killed"),
    ],
    ids=["silent", "2", "3", "4", "5", "8"],
)
def test_a_node_that_fails_is_lost(trick: Trick, reason: str, clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.tricks = {(FIRST + 1, 1): [trick]}
    result = serve(grid, server(tmp_path / "run", {"rounds": 1}))
    assert weights(result) == expected((1, 1), rounds=1)
    (line,) = result.rounds
    assert absences(line, "lost") == {1: reason}
    assert absences(line, "refused") == {}
    assert devices(line) == {n: ("lost", reason) if n == 1 else ("ok", "") for n in range(4)}
    assert line["devices"][1]["node"] == "101"
    assert "seconds" not in line["devices"][1]


def test_a_straggler_is_waited_for_until_the_deadline_and_no_longer(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.slow = {(FIRST + 1, 1): 60.0, (FIRST + 2, 2): 61.0}
    result = serve(grid, server(tmp_path / "run", {"rounds": 3}))
    assert weights(result) == expected((2, 2), rounds=3)
    assert [list(absences(line, "lost")) for line in result.rounds] == [[], [2], []]
    assert result.rounds[0]["devices"][1]["seconds"] == 60.0
    assert result.rounds[1]["seconds"] == 60.0
    assert "reply" not in result.rounds[2]["clients"]["refused"]


def test_a_node_that_is_killed_is_lost_from_then_on(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)

    def dies(message: Message, answer: Honest) -> None:
        del grid.nodes[FIRST + 1]

    grid.tricks = {(FIRST + 1, 1): [dies]}
    result = serve(grid, server(tmp_path / "run"))
    assert weights(result) == expected((1, 1), (1, 2))
    assert [list(absences(line, "lost")) for line in result.rounds] == [[1], [1]]


def test_a_message_that_flower_does_not_take_is_a_lost_client(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.refuses = {(FIRST + 1, 1)}
    result = serve(grid, server(tmp_path / "run"))
    assert weights(result) == expected((1, 1))
    assert absences(result.rounds[0], "lost") == {1: "node 101: Flower does not take a message for it"}
    assert clock.now < 20, "there is nothing to wait for"


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
    result = serve(grid, server(tmp_path / "run"))
    assert weights(result) == expected((1, 2))
    assert [set(devices(line).values()) for line in result.rounds] == [
        {("ok", "")},
        {("ok", ""), ("lost", "node 101: no reply in 60 s")},
    ]
    assert [line["bytes"]["up"]["int8"] for line in result.rounds] == [1099 + 1073, 1099]


def test_a_reply_is_known_by_what_was_asked(clock: Clock, tmp_path: Path) -> None:
    """A node can't answer in the place of another, whatever it writes on the envelope."""

    def astray(message: Message, answer: Honest) -> Message:
        reply = alters(lambda update: replace(update, client=0))(message, answer)
        assert reply is not None
        reply.metadata.__dict__["_reply_to_message_id"] = "message-4"
        return reply

    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.tricks = {(FIRST + 1, 1): [astray]}
    grid.slow = {(FIRST, 1): 9.0}
    result = serve(grid, server(tmp_path / "run", {"rounds": 1}))
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
    result = serve(grid, server(tmp_path / "run", {"rounds": 1}))
    assert weights(result) == expected((1, 1), rounds=1)
    status, reason = devices(result.rounds[0])[1]
    assert status == "refused"
    assert re.fullmatch(r"node 101: .*IndexError\('list index out of range'\).*", reason)


def test_a_superlink_that_is_away_for_a_moment_is_asked_again(clock: Clock, tmp_path: Path) -> None:
    grid = Stumbling(clock, make_grid(clock, tmp_path).nodes, thrifty=True)

    def unlucky(message: Message, answer: Honest) -> Message:
        grid.errors = {FIRST + 1: [httpx.ConnectError("refused"), httpx.ReadTimeout("slow")] * 2}
        return answer()

    grid.tricks = {(FIRST + 1, 1): [unlucky]}
    result = serve(grid, server(tmp_path / "run", {"rounds": 1}))
    assert weights(result) == expected(rounds=1)
    assert grid.errors == {FIRST + 1: []}
    assert devices(result.rounds[0]) == dict.fromkeys(range(4), ("ok", ""))


@dataclass
class Away(FakeGrid):
    """A SuperLink that does not answer some calls."""

    looks: list[httpx.HTTPError] = field(default_factory=list)
    pushes: list[httpx.HTTPError | None] = field(default_factory=list)

    def get_node_ids(self) -> list[int]:
        if self.looks:
            raise self.looks.pop()
        return super().get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        error = self.pushes.pop(0) if self.pushes else None
        if error:
            raise error
        return super().push_messages(messages)


def test_a_superlink_that_is_away_costs_an_attempt(clock: Clock, tmp_path: Path) -> None:
    grid = Away(clock, make_grid(clock, tmp_path).nodes, thrifty=True)
    grid.looks = [httpx.ConnectError("refused"), httpx.ReadTimeout("slow")]
    grid.pushes = [httpx.ReadTimeout("slow"), None, httpx.ReadTimeout("slow")]
    result = serve(grid, server(tmp_path / "run", {"rounds": 1}))
    assert weights(result) == expected(rounds=1)
    lost = result.rounds[0]["clients"]["lost"]
    assert [(entry["client"], entry["attempt"]) for entry in lost] == [(n, 1) for n in range(4)]
    assert lost[2]["reason"] == "node 102: Flower does not take a message for it"


@dataclass
class Shy(FakeGrid):
    """Leaves out what it does not take, as Flower's simulation does, or everything, as where messages are too long."""

    all_or_nothing: bool = False

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        numbers = super().push_messages(messages)
        return [] if self.all_or_nothing and "" in numbers else [number for number in numbers if number]


@pytest.mark.parametrize("all_or_nothing", [False, True])
def test_messages_that_are_left_out(all_or_nothing: bool, clock: Clock, tmp_path: Path) -> None:
    grid = Shy(clock, make_grid(clock, tmp_path).nodes, thrifty=True, all_or_nothing=all_or_nothing)
    grid.refuses = {(FIRST + 1, 1)}
    if all_or_nothing:
        with pytest.raises(RunError, match="round 1: no client's update could be used: client 0"):
            serve(grid, server(tmp_path / "run", {"rounds": 1}, attempts=2))
    else:
        result = serve(grid, server(tmp_path / "run", {"rounds": 1}))
        assert weights(result) == expected((1, 1), rounds=1)
        assert list(absences(result.rounds[0], "lost")) == [1]


# The quorum


def test_a_round_below_its_quorum_is_tried_again(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.tricks = {(FIRST + 1, 2): [silent, fails(8, "killed")], (FIRST + 2, 2): [silent]}
    result = serve(grid, server(tmp_path / "run", quorum=4, attempts=3))
    assert weights(result) == expected()
    (first, second) = result.rounds
    assert first["clients"]["lost"] == []
    assert second["clients"]["lost"] == [
        {"client": 1, "width": "int8", "reason": "node 101: no reply in 60 s", "attempt": 1},
        {"client": 2, "width": "float32", "reason": "node 102: no reply in 60 s", "attempt": 1},
        {"client": 1, "width": "int8", "reason": "node 101: failed: killed", "attempt": 2},
    ]
    assert devices(second) == dict.fromkeys(range(4), ("ok", ""))
    assert second["bytes"]["down"] == {width: 3 * size for width, size in first["bytes"]["down"].items()}
    assert clock.naps.count(5.0) == 2
    assert [grid.asked.count((FIRST + n, 2)) for n in range(4)] == [3] * 4


def test_who_was_refused_before_may_count_after(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.tricks = {(FIRST, 1): [spoils(lambda data: b"garbage" * 9)], (FIRST + 1, 1): [silent]}
    result = serve(grid, server(tmp_path / "run", {"rounds": 1}))
    assert weights(result) == expected(rounds=1)
    (line,) = result.rounds
    assert [entry["attempt"] for entry in (*line["clients"]["lost"], *line["clients"]["refused"])] == [1, 1]
    assert devices(line) == dict.fromkeys(range(4), ("ok", ""))


def test_the_last_attempt_counts_with_those_that_are_there(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.tricks = {(FIRST, 1): [silent], (FIRST + 1, 1): [silent, silent]}
    result = serve(grid, server(tmp_path / "run", {"rounds": 1}))
    assert weights(result) == expected((1, 1), rounds=1)
    assert result.rounds[0]["clients"]["lost"] == [
        {"client": 0, "width": "int8", "reason": "node 100: no reply in 60 s", "attempt": 1},
        {"client": 1, "width": "int8", "reason": "node 101: no reply in 60 s", "attempt": 1},
        {"client": 1, "width": "int8", "reason": "node 101: no reply in 60 s"},
    ]
    assert devices(result.rounds[0])[1] == ("lost", "node 101: no reply in 60 s")


def test_a_run_below_its_quorum_stops_and_can_go_on(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.tricks = {
        (FIRST, 2): [spoils(lambda data: b"garbage" * 9)] * 2,
        (FIRST + 1, 2): [silent] * 2,
    }
    with pytest.raises(RunError) as caught:
        serve(grid, server(tmp_path / "run", attempts=2))
    assert str(caught.value) == (
        "round 2: 2 of the 3 updates it needs: client 1 (int8): node 101: no reply in 60 s; "
        "client 0 (int8): byte 0: magic is b'garb'; accepted: b'PRWD'"
    )
    assert clock.naps.count(5.0) == 1
    last = json.loads((tmp_path / "run" / "server.jsonl").read_text("utf-8").splitlines()[-1])
    assert (last["event"], last["level"], last["reason"]) == ("stopped", "error", str(caught.value))
    assert [path.name for path in sorted((tmp_path / "run" / "checkpoints").glob("*.json"))] == ["round-000001.json"]
    assert not (tmp_path / "run" / "summary.json").exists()
    result = serve(grid, server(resume=str(tmp_path / "run")))
    assert weights(result) == expected()
    assert [line["round"] for line in result.rounds] == [1, 2]


@pytest.mark.parametrize(
    ("settings", "least"), [({}, 3), ({"clients": "int8:3"}, 2), ({"cohort": 2}, 2), ({"cohort": 1}, 1)]
)
def test_a_quorum_is_more_than_half_of_those_asked(
    settings: dict[str, object], least: int, clock: Clock, tmp_path: Path
) -> None:
    grid = make_grid(
        clock, tmp_path, ("int8",) * 3 if "clients" in settings else ("int8", "int8", "float32", "float32")
    )
    used = int(str(settings.get("cohort", len(grid.nodes))))
    asked: list[int] = []

    def some(message: Message, answer: Honest) -> Message | None:
        asked.append(message.metadata.dst_node_id)
        return answer() if len(asked) % used < least - 1 else None

    grid.tricks = {(node, 1): [some] for node in grid.nodes}
    with pytest.raises(RunError, match=rf"round 1: ({least - 1} of the {least} updates it needs|no client's update)"):
        serve(grid, server(tmp_path / "run", settings, attempts=1))


def test_a_quorum_that_cannot_be_reached_is_refused(clock: Clock, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="quorum is 5; accepted: 0 to 4, the clients of a round"):
        serve(make_grid(clock, tmp_path, thrifty=True), server(tmp_path / "run", quorum=5))
    with pytest.raises(ConfigError, match="quorum is 3; accepted: 0 to 2, the clients of a round"):
        serve(make_grid(clock, tmp_path, thrifty=True), server(tmp_path / "other", {"cohort": 2}, quorum=3))
    assert list(tmp_path.iterdir()) == [], "which is found before anything is made"
    assert clock.now == 0, "or anybody waited for"
