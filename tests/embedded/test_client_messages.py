"""What reaches a compiled client may be lost, cut, damaged, hostile or interrupted: it never does more than refuse."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from prowd.embedded.build import lacking
from prowd.errors import WireError
from prowd.federation.client import ClientRuntime
from prowd.link.frames import Frame, Kind, encode
from prowd.methods.fedavg import FedAvg
from prowd.methods.plus import ProWDPlus
from prowd.wire.fields import crc32
from tests.embedded.clients import CHUNK, Board, Case, case_of, started, words
from tests.embedded.driver import SANITIZERS

pytestmark = pytest.mark.skipif(lacking("posix") is not None, reason=f"there is no {lacking('posix')}")

HEADER = 24


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return case_of("watch", 6, ProWDPlus(), tmp_path_factory.mktemp("case"), steps=1)


@pytest.fixture(scope="module")
def command(case: Case, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The client under sanitizers, so that a byte too far ends it."""
    return case.compiled(tmp_path_factory.mktemp("client"), optimise="-O1", extra=SANITIZERS)


def sealed(task: bytes) -> bytes:
    """The same with checksums and lengths that are right, so that what is within is looked at."""
    head = int.from_bytes(task[8:12], "little")
    body = task[HEADER + head :]
    body = words(crc32(body[4:])) + body[4:]
    start = task[:12] + struct.pack("<Q", len(body))
    return start + words(crc32(start, task[HEADER : HEADER + head])) + task[HEADER : HEADER + head] + body


def damaged(task: bytes, random: Random, count: int) -> Iterator[bytes]:
    """Tasks with a few bytes changed, left out or added; every second one with checksums that are right."""
    head = HEADER + int.from_bytes(task[8:12], "little")
    places = [range(head), range(head, head + 120), range(head, len(task))]  # of the head, the rows, and all codes
    for number in range(count):
        at = random.choice(random.choice(places))
        if HEADER - 4 <= at < HEADER or head <= at < head + 4 or 8 <= at < 20:
            continue
        kind = random.choice(("change", "change", "cut", "add"))
        new = bytes([random.choice((0, 1, 255, random.randrange(256)))])
        changed = {"change": new + task[at + 1 :], "cut": task[at + 1 :], "add": new + task[at:]}[kind]
        found = task[:at] + changed
        yield sealed(found) if number % 2 and at >= head else found


def outcome(runtime: ClientRuntime, task: bytes) -> bytes | None:
    """The Python client's update, or None if it refuses."""
    try:
        return runtime.handle(task)
    except WireError:
        return None


def test_what_the_python_client_refuses_is_refused_and_all_else_gives_the_same(case: Case, command: list[str]) -> None:
    good, refused = case.task(), 0
    with started(command) as board:
        for task in damaged(good, Random(1), 400):
            expected, found = outcome(case.runtime, task), board.handle(task)
            assert isinstance(found, str) or found == expected
            refused += isinstance(found, str)
        assert board.handle(good) == case.runtime.handle(good)
    assert 200 < refused < 400


@pytest.mark.parametrize(
    ("at", "new", "reason"),
    [
        (0, b"PRWX", "not a task"),
        (4, b"\x01", "not a task"),
        (5, b"\x02", "not a task"),
        (8, words(20), "not the length"),
        (8, words(2**31), "not the length"),
        (12, struct.pack("<Q", 2**40), "tensors"),
        (HEADER + 12, words(7), "another client"),
        (HEADER + 16, words(0), "work"),
        (HEADER + 20, words(0), "work"),
        (HEADER + 24, struct.pack("<Q", 257), "work"),
        (HEADER + 24, struct.pack("<Q", 2), "work"),
        (HEADER + 32, struct.pack("<h", 300), "work"),
        (HEADER + 34, struct.pack("<Q", 1), "another network"),
        (HEADER + 42, b"\x01\x00", "settings"),
        (HEADER + 44 + 4, b"\x03\x00", "tensors"),
        (-1, b"\xff", "codes"),
    ],
)
def test_every_reason_has_its_words(at: int, new: bytes, reason: str, case: Case, command: list[str]) -> None:
    task = case.task()
    start = at % len(task)
    changed = task[:start] + new + task[start + len(new) :]
    if start >= HEADER:
        changed = sealed(changed)
    elif start in (8, 12):
        changed = changed[:20] + words(crc32(changed[:20], changed[HEADER : HEADER + 44])) + changed[HEADER:]
    with started(command) as board:
        assert reason in str(board.handle(changed))


def test_settings_are_read_as_names_and_finite_numbers(case: Case, command: list[str]) -> None:
    one, nan, double = struct.pack("<d", 1.0), struct.pack("<d", float("nan")), struct.pack("<d", -2.5)
    tables = {
        b"\x02\x00\x01a" + one + b"\x02\xc3\xa4" + double: True,
        b"\x02\x00\x01a" + one + b"\x01a" + double: False,
        b"\x01\x00\x01a" + nan: False,
        b"\x01\x00\x01\xff" + one: False,
        b"\x01\x00\x03\xed\xa0\x80" + one: False,
        b"\x01\x00\x04\xf0\x9f\x98\x80" + one: True,
        b"\x01\x00\x00" + one: False,
        b"\x02\x00\x01a" + one: False,
        b"\x00\x00" + one: False,
        b"\xff\xff\x01a" + one: False,
    }
    task = case.task()
    with started(command) as board:
        for table, is_right in tables.items():
            head = task[HEADER : HEADER + 42] + table
            changed = sealed(task[:8] + words(len(head)) + task[12:HEADER] + head + task[HEADER + 44 :])
            expected = outcome(case.runtime, changed)
            assert (expected is not None) == is_right
            assert isinstance(board.handle(changed), bytes) == is_right, table


def test_a_task_that_is_cut_too_long_or_damaged_on_the_way_can_be_sent_again(case: Case, command: list[str]) -> None:
    task = case.task()
    whole = [(kind, payload) for kind, payload in Board.requests(task)]
    with started(command) as board:
        assert board.ask(Kind.RUN, whole[-1][1]).payload[0] == 3  # it has none
        assert board.ask(Kind.PUT, words(2**31, 0) + b"x").payload[0] == 2
        assert board.ask(Kind.GET, words(0)).payload[0] == 3
        for kind, payload in whole[:-2]:
            assert board.ask(kind, payload).kind == Kind.TAKEN
        assert board.ask(*whole[-1]).payload[0] == 3  # not whole
        kind, payload = whole[-2]
        board.ask(kind, payload[:-1] + bytes([payload[-1] ^ 1]))
        assert board.ask(*whole[-1]).payload[0] == 4  # damaged
        assert board.handle(task + b"") == case.runtime.handle(task)
        assert board.handle(task[:-1]) == "unfinished"
        assert board.handle(b"") == "no such task"


def test_requests_that_come_twice_or_out_of_order_change_nothing(case: Case, command: list[str]) -> None:
    task = case.task()
    with started(command) as board:
        for kind, payload in Board.requests(task):
            first = board.ask(kind, payload)
            assert board.ask(kind, payload, number=board.number) == first
            if kind == Kind.PUT:
                assert board.ask(kind, words(len(task), 2**20) + b"x").payload == first.payload
        update = board.update(int.from_bytes(first.payload[:4], "little"))
        assert update == case.runtime.handle(task)
        assert board.ask(Kind.GET, words(7)).payload == words(7) + update[7 : 7 + CHUNK]
        assert board.ask(Kind.GET, words(len(update))).payload == words(len(update))
        assert board.ask(Kind.GET, words(len(update) + 1)).kind == Kind.REFUSED
        assert board.ask(Kind.HELLO).kind == Kind.I_AM
        assert board.ask(*list(Board.requests(task))[-1]).payload == first.payload  # not trained again


def test_noise_between_frames_is_skipped(case: Case, command: list[str]) -> None:
    random, task = Random(3), case.task()
    with started(command) as board:
        for _ in range(300):
            frame = bytearray(encode(Frame(random.randrange(256), random.randrange(1, 2**16), random.randbytes(20))))
            frame[random.randrange(len(frame))] ^= 1 << random.randrange(8)
            board.send(
                b"PRPRWPRWL" * random.randrange(2) + frame[: random.randrange(1, len(frame))] * random.randrange(2)
            )
            board.send(frame)
        board.send(bytes(CHUNK + 64))  # ends whatever it still waits for, as a gateway does
        board.number = 777
        assert board.handle(task) == case.runtime.handle(task)


def test_requests_of_another_kind_or_length_are_refused(command: list[str]) -> None:
    with started(command) as board:
        for kind, payload in [
            (5, b""),
            (0, b""),
            (255, b""),
            (Kind.PUT, words(9, 0)),
            (Kind.RUN, b"1"),
            (Kind.GET, b""),
        ]:
            answer = board.ask(kind, payload)
            assert (answer.kind, answer.payload[0]) == (Kind.REFUSED, 1)


def test_power_that_goes_between_any_two_messages_changes_no_bit(case: Case, tmp_path: Path) -> None:
    command, task = case.compiled(tmp_path), case.task()
    expected, requests = case.runtime.handle(task), list(Board.requests(task))
    for cut in range(len(requests) + 2):
        with started(command) as board:
            for request in requests[:cut]:
                board.ask(*request)
            if cut > len(requests):
                assert board.ask(Kind.GET, words(0)).payload[4:] == expected[:CHUNK]
        with started(command) as board:  # it has forgotten everything, and says so
            answer = board.ask(*requests[min(cut, len(requests) - 1)])
            if 0 < cut < len(requests) - 1:
                assert (answer.kind, answer.payload) == (Kind.TAKEN, words(0))
            elif cut:
                assert (answer.kind, answer.payload[0]) == (Kind.REFUSED, 3)
            assert board.handle(task) == expected


def test_a_task_for_no_one_else_is_refused(tmp_path: Path) -> None:
    ours, other = case_of("watch", 8, FedAvg(), tmp_path), case_of("odd", 8, FedAvg(), tmp_path)
    with started(ours.compiled(tmp_path)) as board:
        assert isinstance(board.handle(other.task()), str)
        assert board.handle(ours.task()) == ours.runtime.handle(ours.task())
