"""A transport over persistent worker processes on this machine."""

from __future__ import annotations

import logging
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from prowd.errors import ClientError, RunError
from prowd.federation.client import Clients
from prowd.federation.processes import GUARD, be_a_child, start_child
from prowd.wire import Parcel

__all__ = ["ProcessPool"]

log = logging.getLogger(__name__)

ATTEMPTS = 2  # a client whose worker process dies is tried once more, in a new one
READY, REPLY, FAILURE = b"s", b"r", b"f"


@dataclass
class _Worker:
    """A worker process, the client it works for, and the bodies it has already received this round."""

    process: SpawnProcess
    connection: Connection[Any, Any]
    client: int | None = None
    began: float = 0.0
    ready: bool = False
    briefed: bool = False
    bodies: set[int] = field(default_factory=set)


class ProcessPool:
    """Worker processes that load the data once; each takes the next client as soon as it is free.

    Clients of one width receive the same weights: a worker is sent each body once a round, not once a client. Clients
    that took longest last time go first, so that no worker is left alone with a slow one at the end.
    """

    remote = True

    def __init__(self, workers: int, make_clients: Callable[[], Clients]) -> None:
        self._make_clients = make_clients
        self._seconds: dict[int, float] = {}
        self._workers = [_Worker(*start_child(_serve)) for _ in range(workers)]

    def exchange(self, parcels: Mapping[int, Parcel]) -> Iterator[tuple[int, bytes]]:
        """Spread the clients over the workers."""
        keys: dict[bytes, int] = {}
        bodies = {client: keys.setdefault(parcel.body, len(keys)) for client, parcel in parcels.items()}
        waiting = deque(sorted(parcels, key=lambda client: -self._seconds.get(client, float("inf"))))
        attempts = dict.fromkeys(parcels, 0)
        for worker in self._workers:
            worker.bodies.clear()
        while waiting or self._busy():
            for worker in self._workers:
                if worker.client is None and waiting:
                    client = waiting.popleft()
                    attempts[client] += 1
                    self._send(worker, client, parcels[client], bodies[client])
            for worker in self._speaking():
                done, message = worker.client, self._receive(worker)
                if done is None or message[:1] == READY:
                    continue
                worker.client = None
                if message:
                    self._seconds[done] = time.perf_counter() - worker.began
                    yield done, message[1:]
                elif attempts[done] < ATTEMPTS:
                    waiting.appendleft(done)

    def close(self) -> None:
        """Stop the workers: none has anything to save by now, and to end by itself takes a process half a second."""
        for worker in self._workers:
            worker.process.kill()
            worker.connection.close()
        for worker in self._workers:
            worker.process.join()

    def _send(self, worker: _Worker, client: int, parcel: Parcel, key: int) -> None:
        """Hand a client to a worker, with whatever it does not have yet."""
        briefing = None if worker.briefed else self._make_clients
        body = None if key in worker.bodies else parcel.body
        worker.client, worker.began, worker.briefed = client, time.perf_counter(), True
        worker.bodies.add(key)
        try:
            worker.connection.send((briefing, client, parcel.head, key, body))
        except OSError:
            log.debug("worker of client %d is gone; noticed when its reply is read", client)

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.client is not None]

    def _speaking(self) -> list[_Worker]:
        busy = self._busy()
        ready = wait([worker.connection for worker in busy])
        return [worker for worker in busy if worker.connection in ready]

    def _receive(self, worker: _Worker) -> bytes:
        """Take a worker's message; nothing, and a new worker in its place, if the process has died."""
        try:
            message = worker.connection.recv_bytes()
        except (EOFError, OSError):
            worker.process.join()
            code = worker.process.exitcode
            if not worker.ready:
                raise RunError(f"a worker process ended before it began (exit code {code}). {GUARD}") from None
            log.warning("the worker process of client %s died (exit code %s)", worker.client, code)
            self._workers[self._workers.index(worker)] = _Worker(*start_child(_serve))
            return b""
        if message[:1] == FAILURE:
            client, worker.client = worker.client, None
            raise ClientError(f"client {client} failed:\n{message[1:].decode()}")
        worker.ready = True
        return message


def _serve(connection: Connection[Any, Any]) -> None:
    """Body of a worker process: answer until the server hangs up."""
    be_a_child()
    torch.set_num_threads(1)
    clients: Any = None
    bodies: dict[int, bytes] = {}
    reply = READY
    while True:
        try:
            connection.send_bytes(reply)
            briefing, client, head, key, body = connection.recv()
        except (EOFError, OSError):  # the server hung up, or was killed
            return
        try:
            clients = briefing() if briefing is not None else clients
            if body is not None:
                bodies[key] = body
            reply = REPLY + clients[client].handle(head + bodies[key])
        except Exception:  # noqa: BLE001 - whatever it is, it belongs to the server
            reply = FAILURE + traceback.format_exc().encode()
