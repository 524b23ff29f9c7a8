"""A gateway and a board with a bad line between them: the update comes, the same to the byte, or a reason does."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prowd.errors import LinkError, WireError
from prowd.link import ALLOWANCE, Gateway, Patience
from prowd.link.frames import Frame, Kind, encode
from tests.board import CHUNK, Board, hello, refused
from tests.unit.link.lines import Clock, Line, straight

TASK = random.Random(1).randbytes(5 * CHUNK + 17)
UPDATE = random.Random(2).randbytes(2 * CHUNK + 5)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("prowd.link.gateway.monotonic", made.monotonic)
    return made


def board(update: bytes = UPDATE) -> Board:
    def train(task: bytes) -> bytes:
        assert task == TASK
        return update

    return Board(train)


def link(clock: Clock, made: Board | None = None, patience: Patience | None = None, **line: object) -> Gateway:
    return Gateway(Line(made or board(), clock, **line), patience)  # type: ignore[arg-type]


def test_a_task_goes_down_and_the_update_comes_up(clock: Clock) -> None:
    one = board()
    gateway = link(clock, one)
    who = gateway.hello()
    assert (who.width, who.client, who.examples, who.chunk, who.name) == (8, None, 12, CHUNK, "fake")
    assert gateway.exchange(TASK, 2) == UPDATE
    assert gateway.exchange(TASK, 2) == UPDATE  # the next round
    assert one.trained == 2
    assert (gateway.tally.repeats, gateway.tally.restarts) == (0, 0)
    assert (gateway.tally.ram, gateway.tally.stack) == (4096, 1024)
    assert gateway.tally.sent > 2 * len(TASK)
    assert gateway.tally.received > 2 * len(UPDATE)
    assert clock.now < 1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.25]))
def test_lost_damaged_cut_and_repeated_bytes_change_nothing(seed: int, share: float) -> None:
    draw = random.Random(seed)

    def bent(data: bytes) -> Iterator[bytes]:
        fate = draw.random() / share if share else 9.0
        if fate < 0.3:
            return  # lost
        if fate < 0.6:
            place = draw.randrange(len(data))
            yield data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]
        elif fate < 0.8:
            yield data[: draw.randrange(len(data))]
        elif fate < 1.0:
            yield data + data
        else:
            place = draw.randrange(len(data))
            yield data[:place]
            yield data[place:]

    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr("prowd.link.gateway.monotonic", clock.monotonic)
        gateway = link(clock, patience=Patience(repeats=40, restarts=20), down=bent, up=bent)
        gateway.hello()
        assert gateway.exchange(TASK, 2) == UPDATE


def test_training_is_not_repeated_where_only_answers_are_lost(clock: Clock) -> None:
    count = iter(range(10**6))

    def every_other(data: bytes) -> Iterator[bytes]:
        if next(count) % 2:
            yield data

    one = board()
    gateway = link(clock, one, up=every_other)
    gateway.hello()
    assert gateway.exchange(TASK, 2) == UPDATE
    assert one.trained == 1
    assert gateway.tally.repeats > 5


def test_power_may_be_cut_between_any_two_messages(clock: Clock) -> None:
    whole = link(clock)
    whole.hello()
    whole.exchange(TASK, 2)
    assert isinstance(whole.stream, Line)
    for moment in range(2, whole.stream.sent + 1):
        for says_so in (True, False):
            up = straight if says_so else _without_the_boot
            gateway = link(clock, power_cut=lambda sent, moment=moment: sent == moment, up=up)
            gateway.hello()
            assert gateway.exchange(TASK, 2) == UPDATE
            assert gateway.tally.restarts <= 1


def _without_the_boot(data: bytes) -> Iterator[bytes]:
    if data[6:8] != b"\0\0":
        yield data


def test_a_device_that_says_nothing_is_left_after_its_tries(clock: Clock) -> None:
    gateway = link(clock, up=lambda data: iter(()))
    with pytest.raises(LinkError, match="no answer in 31 tries"):
        gateway.hello()
    assert 62 <= clock.now < 63


def test_a_device_that_falls_silent_is_not_waited_for_as_long(clock: Clock) -> None:
    gateway = link(clock)
    gateway.hello()
    assert isinstance(gateway.stream, Line)
    gateway.stream.up = lambda data: iter(())
    with pytest.raises(LinkError, match="no answer in 6 tries"):
        gateway.exchange(TASK, 2)
    assert clock.now < 13


def test_a_device_that_talks_rubbish_is_told_from_one_that_says_nothing(clock: Clock) -> None:
    gateway = link(clock, up=lambda data: iter([b"\r\nhello world\r\n"]))
    with pytest.raises(WireError, match="no frame among the 465 bytes that it sent in 31 tries"):
        gateway.hello()


def test_a_flood_of_frames_that_nobody_asked_for_ends(clock: Clock) -> None:
    flood = encode(Frame(Kind.DATA, 999, bytes(100)))

    def up(_: bytes) -> Iterator[bytes]:
        yield from [flood] * 5000

    with pytest.raises(LinkError, match="no answer"):
        link(clock, patience=Patience(answer=0.001, boot=0.01), up=up).hello()


def test_a_slow_line_is_given_the_time_that_its_bytes_take(clock: Clock) -> None:
    gateway = link(clock, up=lambda data: iter(()), rate=960.0)
    with pytest.raises(LinkError, match="no answer"):
        gateway.hello()
    assert clock.now > 31 * (2 + 2 * 4096 / 960)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (refused(5, "another network"), "it refuses: another network"),
        (refused(2, "\x1b[2Jtoo large"), r"it refuses: \\x1b\[2Jtoo large \(code 2\)"),
        (refused(3, "gone"), "it was sent the task 4 times; at last it said: gone"),
        (refused(4, ""), "4 times; at last it said: the task is not there"),
        ((Kind.DONE, struct.pack("<IIII", 0, 0, 0, 0)), "update of 0 bytes"),
        ((Kind.DONE, struct.pack("<IIII", len(TASK) + ALLOWANCE + 1, 0, 0, 0)), "accepted: 1 to"),
        ((Kind.DONE, b"short"), "5 bytes in an answer of kind 0x83; accepted: 16"),
        ((Kind.WORKING, b""), "0 bytes in an answer of kind 0x84; accepted: 8"),
        ((Kind.WORKING, struct.pack("<II", 3, 2)), "no sign of life for 300 s, after step 0 of 2"),
        ((Kind.WORKING, struct.pack("<II", 1, 2)), "no sign of life for 300 s, after step 1 of 2"),
    ],
)
def test_what_else_a_device_may_answer_to_run(clock: Clock, answer: tuple[Kind, bytes], reason: str) -> None:
    one = board()
    one.run = lambda total, crc: iter([answer])  # type: ignore[method-assign]
    gateway = link(clock, one)
    gateway.hello()
    with pytest.raises((LinkError, WireError), match=reason):
        gateway.exchange(TASK, 2)


@pytest.mark.parametrize(
    ("kind", "payload", "reason"),
    [
        (Kind.TAKEN, struct.pack("<I", 10**6), "it has taken 1000000 bytes; accepted: 256"),
        (Kind.TAKEN, b"", "0 bytes in an answer of kind 0x82"),
        (Kind.DATA, struct.pack("<I", 0) + b"x", "data of 5 bytes; accepted: 256 from byte 0"),
        (Kind.DATA, struct.pack("<I", 256) + bytes(256), "data of 260 bytes; accepted: 256 from byte 0"),
        (Kind.DATA, b"", "data of 0 bytes"),
    ],
)
def test_answers_that_do_not_fit_their_question(clock: Clock, kind: Kind, payload: bytes, reason: str) -> None:
    one = board()
    ordinary = one.answers
    one.answers = lambda frame, *, again: (  # type: ignore[method-assign]
        (found, payload if found == kind else said) for found, said in ordinary(frame, again=again)
    )
    gateway = link(clock, one)
    gateway.hello()
    with pytest.raises(WireError, match=reason):
        gateway.exchange(TASK, 2)


def test_an_update_that_is_not_what_was_announced_is_refused(clock: Clock) -> None:
    one = board()
    one.run = lambda total, crc: iter([(Kind.DONE, struct.pack("<IIII", 300, 1, 0, 0))])  # type: ignore[method-assign]
    one.update = bytes(300)
    gateway = link(clock, one)
    gateway.hello()
    ordinary = one.answers

    def keeping(frame: Frame, *, again: bool) -> Iterator[tuple[Kind, bytes]]:
        found = list(ordinary(frame, again=again))
        one.update = bytes(300)
        return iter(found)

    one.answers = keeping  # type: ignore[method-assign]
    with pytest.raises(WireError, match="its update came damaged 3 times: its crc is not 0x00000001"):
        gateway.exchange(TASK, 2)


@pytest.mark.parametrize(("said", "reason"), [(b"x" * 39, "a hello of 39 bytes"), (hello(chunk=63), "chunks of 63")])
def test_a_hello_that_is_none(clock: Clock, said: bytes, reason: str) -> None:
    one = board()
    one.me = said
    with pytest.raises(WireError, match=reason):
        link(clock, one).hello()


def test_numbers_begin_again_after_the_last(clock: Clock) -> None:
    gateway = link(clock)
    gateway._number = 65533
    gateway.hello()
    assert gateway.exchange(TASK, 2) == UPDATE
