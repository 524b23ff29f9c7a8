"""Worker processes: who works for whom, what is sent to them, and what becomes of those that die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

import pytest

from prowd.errors import ClientError
from prowd.federation.pool import ProcessPool
from prowd.wire import Parcel


@dataclass(frozen=True)
class Puppet:
    """A client that does what its message says; the body is ballast."""

    client: int

    def handle(self, message: bytes) -> bytes:
        order, _, rest = message.partition(b"|")
        verb, _, argument = order.decode().partition(" ")
        if verb == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if verb == "die-once" and not Path(argument).exists():
            Path(argument).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if verb == "raise":
            raise ZeroDivisionError(f"puppet {self.client} divides by zero")
        if verb == "freeze-once" and not Path(argument).exists():
            Path(argument).touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        if verb == "sleep":
            Path(argument).touch()
            time.sleep(60)
        if verb == "wait":
            time.sleep(float(argument))
        return f"{self.client} {os.getpid()} ".encode() + rest


class Stage:
    def __getitem__(self, client: int) -> Puppet:
        return Puppet(client)


def make_stage() -> Any:
    return Stage()


def make_nothing() -> Any:
    raise FileNotFoundError("the puppets are gone")


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    made = ProcessPool(2, make_stage)
    yield made
    made.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bytes, int, bytes | None]]:
    """What goes to the workers: client, head, key of the body, and the body where it is not known yet."""
    messages: list[tuple[int, bytes, int, bytes | None]] = []
    original = connection.Connection.send

    def send(self: Any, message: Any) -> None:
        if isinstance(message, tuple) and len(message) == 5:
            messages.append(message[1:])
        original(self, message)

    monkeypatch.setattr(connection.Connection, "send", send)
    return messages


def parcels(orders: Mapping[int, str], body: bytes = b"ballast") -> dict[int, Parcel]:
    return {client: Parcel(f"{order}|".encode(), body) for client, order in orders.items()}


def play(pool: ProcessPool, orders: Mapping[int, str], body: bytes = b"ballast") -> dict[int, bytes]:
    """One round; every client must answer for itself and return what it was sent."""
    replies = list(pool.exchange(parcels(orders, body)))
    assert len({client for client, _ in replies}) == len(replies), "a client answers once"
    for client, reply in replies:
        own, _, rest = reply.split(b" ", 2)
        assert (int(own), rest) == (client, body)
    return dict(replies)


def workers_of(replies: Mapping[int, bytes]) -> set[int]:
    return {int(reply.split(b" ", 2)[1]) for reply in replies.values()}


def processes(pool: ProcessPool) -> list[Any]:
    return [worker.process for worker in pool._workers]


def test_every_client_is_answered_for(pool: ProcessPool) -> None:
    replies = play(pool, dict.fromkeys(range(7), "echo"))
    assert set(replies) == set(range(7))
    assert workers_of(replies) <= {process.pid for process in processes(pool)}
    assert os.getpid() not in workers_of(replies)
    assert play(pool, {}) == {}
    assert len(play(pool, dict.fromkeys(range(4), "echo"), os.urandom(3_000_000))) == 4, "large messages too"


def test_workers_share_the_clients_and_persist(pool: ProcessPool) -> None:
    first = workers_of(play(pool, dict.fromkeys(range(4), "wait 0.2")))
    assert len(first) == 2
    assert workers_of(play(pool, dict.fromkeys(range(4), "wait 0.2"))) == first


def test_a_body_goes_to_each_worker_once_a_round(
    pool: ProcessPool, sent: list[tuple[int, bytes, int, bytes | None]]
) -> None:
    small, large = b"s" * 1000, b"l" * 2000
    orders = {client: Parcel(b"wait 0.05|", small if client % 2 else large) for client in range(8)}
    for body in (b"first", b"second"):
        orders = {client: Parcel(parcel.head, parcel.body + body) for client, parcel in orders.items()}
        sent.clear()
        replies = dict(pool.exchange(orders))
        assert all(replies[client].endswith(parcel.body) for client, parcel in orders.items())
        assert len(sent) == 8
        bodies = [message[3] for message in sent if message[3] is not None]
        assert set(bodies) == {parcel.body for parcel in orders.values()}
        assert len(bodies) <= 4, "two bodies, two workers"


def test_slow_clients_go_first_next_time(pool: ProcessPool, sent: list[tuple[int, bytes, int, bytes | None]]) -> None:
    orders = {10: "echo", 11: "echo", 12: "wait 0.3", 13: "wait 0.6"}
    play(pool, orders)
    sent.clear()
    play(pool, orders)
    assert [message[0] for message in sent][:2] == [13, 12]


def test_a_worker_that_dies_is_replaced_and_its_client_retried(
    pool: ProcessPool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = {process.pid for process in processes(pool)}
    replies = play(pool, {0: "echo", 1: f"die-once {tmp_path / 'died'}", 2: "echo", 3: "echo"})
    assert set(replies) == {0, 1, 2, 3}
    assert len({process.pid for process in processes(pool)} - before) == 1
    assert "client 1 died" in caplog.text
    assert "killed by SIGKILL" in caplog.text


def test_a_client_whose_worker_always_dies_is_absent(pool: ProcessPool) -> None:
    assert set(play(pool, {0: "echo", 1: "die", 2: "echo"})) == {0, 2}
    assert set(play(pool, dict.fromkeys(range(3), "echo"))) == {0, 1, 2}


def test_a_worker_that_died_between_rounds_costs_nobody_the_round(pool: ProcessPool) -> None:
    victim = processes(pool)[0]
    victim.kill()
    victim.join()
    assert set(play(pool, dict.fromkeys(range(4), "echo"), b"b" * 1_000_000)) == {0, 1, 2, 3}
    assert all(process.is_alive() for process in processes(pool))


def test_an_exception_of_a_client_is_told_with_its_traceback_and_close_ends_idle_workers() -> None:
    pool = ProcessPool(2, make_stage)
    try:
        with pytest.raises(ClientError) as caught:
            play(pool, {5: "raise"})
    finally:
        pool.close()
    message = str(caught.value)
    assert message.startswith("client 5 failed")
    assert "ZeroDivisionError: puppet 5 divides by zero" in message
    assert "in handle" in message
    assert [process.exitcode for process in processes(pool)] == [-9, -9]


def test_clients_that_cannot_be_made_are_told_of() -> None:
    pool = ProcessPool(1, make_nothing)
    try:
        with pytest.raises(ClientError, match="FileNotFoundError: the puppets are gone"):
            play(pool, {0: "echo"})
    finally:
        pool.close()


def test_close_does_not_wait_for_a_busy_worker(tmp_path: Path) -> None:
    pool = ProcessPool(2, make_stage)
    replies = pool.exchange(parcels({0: f"sleep {tmp_path / 'began'}", 1: "echo"}))
    assert next(replies)[0] == 1
    end = time.monotonic() + 60
    while not (tmp_path / "began").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 10
    assert not any(process.is_alive() for process in processes(pool))
