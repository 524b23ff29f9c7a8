"""A transport over persistent worker processes on this machine."""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from prowd.errors import ClientError, DiskError, ProwdError, RunError
from prowd.federation.client import Clients
from prowd.federation.processes import FAILED_IMPORT, GUARD, be_a_child, start_child
from prowd.wire import Parcel

__all__ = ["ProcessPool"]

log = logging.getLogger(__name__)

ATTEMPTS = 2  # a client whose worker process dies is tried once more, in a new one
STARTS = 5  # worker processes that may die in a row before they begin
BEAT = 2.0  # seconds after which a worker says that it is there
SILENCE = 60.0  # seconds without a word after which it is taken for frozen
BEGIN = 180.0  # … where it has yet to begin
LOOK = 1.0
READY, ALIVE, REPLY, FAILURE, TROUBLE, DISK = b"s", b"a", b"r", b"f", b"t", b"d"


@dataclass
class _Worker:
    """A worker process, the client it works for, and the bodies it has already received this round."""

    process: SpawnProcess
    connection: Connection[Any, Any]
    client: int | None = None
    began: float = 0.0
    ready: bool = False
    silent: float = 0.0
    """Seconds for which we listened and it said nothing; those in which we were stopped ourselves do not count."""
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
        self._stillborn = 0
        self._workers = [_start() for _ in range(workers)]

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
                if done is None or message[:1] in (READY, ALIVE):
                    continue
                worker.client = None
                if message:
                    self._seconds[done] = time.perf_counter() - worker.began
                    yield done, message[1:]
                elif not worker.ready or attempts[done] < ATTEMPTS:
                    attempts[done] -= not worker.ready  # it was not the client's fault
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
        worker.client, worker.began, worker.briefed, worker.silent = client, time.perf_counter(), True, 0.0
        worker.bodies.add(key)
        try:
            worker.connection.send((briefing, client, parcel.head, key, body))
        except OSError:  # it is gone, or takes nothing; noticed when its reply is read
            worker.process.kill()

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.client is not None]

    def _speaking(self) -> list[_Worker]:
        """Workers that have something to say, if only that they have died; who is silent for too long is killed."""
        busy, began = self._busy(), time.monotonic()
        ready = wait([worker.connection for worker in busy], LOOK)
        for worker in busy:
            worker.silent = 0.0 if worker.connection in ready else worker.silent + min(time.monotonic() - began, LOOK)
            if worker.silent > (SILENCE if worker.ready else BEGIN):
                log.warning("the worker process of client %s gave no sign for %g s", worker.client, worker.silent)
                worker.process.kill()
        return [worker for worker in busy if worker.connection in ready]

    def _receive(self, worker: _Worker) -> bytes:
        """Take a worker's message; nothing, and a new worker in its place, if the process has died."""
        try:
            message = worker.connection.recv_bytes()
        except (EOFError, OSError):
            worker.process.kill()  # if it stopped in the middle of a message
            worker.process.join()
            code = worker.process.exitcode or 0
            if not worker.ready:
                self._count_stillborn(code)
            log.warning("the worker process of client %s died (%s)", worker.client, _cause(code))
            self._workers[self._workers.index(worker)] = _start()
            return b""
        if message[:1] in _FAILURES:
            client, worker.client = worker.client, None
            raise _FAILURES[message[:1]](client, message[1:].decode())
        worker.ready, self._stillborn = True, 0
        return message

    def _count_stillborn(self, code: int) -> None:
        """A worker ended before it began. Of a script without the guard all do; else this is seldom, and no pattern."""
        self._stillborn += 1
        if code == FAILED_IMPORT:
            raise RunError(f"a worker process ended before it began (exit code {code}). {GUARD}")
        if self._stillborn >= STARTS:
            raise RunError(f"{STARTS} worker processes in a row ended before they began; the last: {_cause(code)}")


def _start() -> _Worker:
    """A new worker; a message that it does not take, or does not finish, holds us up for a while and not for ever."""
    worker = _Worker(*start_child(_serve))
    with socket.socket(fileno=os.dup(worker.connection.fileno())) as shared:
        for option, seconds in ((socket.SO_SNDTIMEO, BEGIN), (socket.SO_RCVTIMEO, SILENCE)):
            shared.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(seconds), 0))
    return worker


def _cause(code: int) -> str:
    """What ended a process."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


_FAILURES: Mapping[bytes, Callable[[int | None, str], ProwdError]] = {
    FAILURE: lambda client, text: ClientError(f"client {client} failed:\n{text}"),
    TROUBLE: lambda client, text: RunError(f"client {client}: {text}"),
    DISK: lambda _, text: DiskError(text),
}


def _serve(connection: Connection[Any, Any]) -> None:
    """Body of a worker process: answer until the server hangs up."""
    be_a_child()
    torch.set_num_threads(1)
    clients: Any = None
    bodies: dict[int, bytes] = {}
    reply, lock, busy = READY, threading.Lock(), threading.Event()
    threading.Thread(target=_beat, args=(connection, lock, busy), daemon=True).start()
    while True:
        try:
            busy.clear()
            with lock:
                connection.send_bytes(reply)
            briefing, client, head, key, body = connection.recv()
            busy.set()
        except (EOFError, OSError):  # the server hung up, or was killed
            return
        try:
            clients = briefing() if briefing is not None else clients
            if body is not None:
                bodies[key] = body
            reply = REPLY + clients[client].handle(head + bodies[key])
        except DiskError as error:
            reply = DISK + str(error).encode()
        except ProwdError as error:
            reply = TROUBLE + str(error).encode()
        except Exception:  # noqa: BLE001 - whatever it is, it belongs to the server
            reply = FAILURE + traceback.format_exc().encode()


def _beat(connection: Connection[Any, Any], lock: threading.Lock, busy: threading.Event) -> None:
    """Say every now and then that this process is there, while it is doing something."""
    while True:
        time.sleep(BEAT)
        busy.wait()
        try:
            with lock:
                connection.send_bytes(ALIVE)
        except OSError:  # the server hung up, or was killed
            return
