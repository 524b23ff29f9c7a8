"""A transport over persistent worker processes on this machine."""

from __future__ import annotations

import logging
import pickle
import signal
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

from prowd.errors import DISK, ClientError, RunError
from prowd.federation.client import Clients
from prowd.federation.processes import GUARD, be_a_child, start_child
from prowd.wire import Parcel

__all__ = ["ProcessPool"]

log = logging.getLogger(__name__)

ATTEMPTS = 2  # a client whose worker process dies is tried once more, in a new one
READY, REPLY, FAILURE, ALIVE, DISK_FAULT = b"s", b"r", b"f", b"a", b"d"
PULSE = 2.0  # seconds between a worker's signs of life
MEMORY = "That is what a system does that runs out of memory; accepted: fewer workers (--workers 1)"
FROZEN = 120.0  # seconds without one, after which a worker is replaced, however long its client takes
STARTING = 600.0  # seconds that a worker may take to begin
STEP = 1.0  # seconds that are waited at a time: those in which this process was itself stopped do not count


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
    silent: float = 0.0
    """Seconds since it was last heard of."""

    @property
    def patience(self) -> float:
        """Seconds of silence after which it is replaced."""
        return FROZEN if self.ready else STARTING


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
                if done is None or message[:1] in (READY, ALIVE):
                    continue
                worker.client = None
                if message:
                    self._seconds[done] = time.perf_counter() - worker.began
                    yield done, message[1:]
                elif attempts[done] < ATTEMPTS:
                    waiting.appendleft(done)
                elif not worker.ready:
                    raise RunError(f"{_cause(worker.process.exitcode)}. {MEMORY}")

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
        worker.silent = 0.0
        overdue = threading.Timer(worker.patience, worker.process.kill)  # who is frozen reads nothing
        overdue.daemon = True
        overdue.start()
        try:
            worker.connection.send((briefing, client, parcel.head, key, body))
        except OSError:
            log.debug("worker of client %d is gone; noticed when its reply is read", client)
        finally:
            overdue.cancel()

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.client is not None]

    def _speaking(self) -> list[_Worker]:
        busy = self._busy()
        ready: list[object] = []
        while not ready:
            began = time.monotonic()
            ready = list(wait([worker.connection for worker in busy], STEP))
            for worker in busy:
                worker.silent = 0.0 if worker.connection in ready else worker.silent + _passed(began)
                if worker.silent > worker.patience:
                    log.warning("the worker process of client %s is frozen, and replaced", worker.client)
                    worker.process.kill()  # which its connection then tells
        return [worker for worker in busy if worker.connection in ready]

    def _receive(self, worker: _Worker) -> bytes:
        """Take a worker's message; nothing, and a new worker in its place, if the process has died."""
        try:
            message = worker.connection.recv_bytes()
        except (EOFError, OSError):
            worker.process.join()
            code = worker.process.exitcode
            if not worker.ready and (code is None or code >= 0):  # it was not killed, it ended by itself
                raise RunError(f"a worker process ended before it began (exit code {code}). {GUARD}") from None
            log.warning("the worker process of client %s died (exit code %s)", worker.client, code)
            self._workers[self._workers.index(worker)] = _Worker(*start_child(_serve))
            return b""
        if message[:1] == FAILURE:
            client, worker.client = worker.client, None
            raise ClientError(f"client {client} failed:\n{message[1:].decode()}")
        if message[:1] == DISK_FAULT:
            raise OSError(*pickle.loads(message[1:]))  # noqa: S301 - from a process of our own
        worker.ready = True
        return message


def _passed(began: float) -> float:
    """Seconds of a wait, without those in which this process was stopped together with its workers."""
    return min(time.monotonic() - began, 2 * STEP)


def _cause(code: int | None) -> str:
    """How a process ended that was killed."""
    names = {number.value: number.name for number in signal.Signals}
    return f"worker processes are killed before they begin (by {names.get(-(code or 0), code)})"


def _show_life(connection: Connection[Any, Any], talking: threading.Lock) -> None:
    """Body of a worker's thread: a frozen process does not speak, one that computes does."""
    while True:
        time.sleep(PULSE)
        try:
            with talking:
                connection.send_bytes(ALIVE)
        except OSError:  # the server hung up
            return


def _serve(connection: Connection[Any, Any]) -> None:
    """Body of a worker process: answer until the server hangs up."""
    be_a_child()
    torch.set_num_threads(1)
    clients: Any = None
    bodies: dict[int, bytes] = {}
    reply, talking = READY, threading.Lock()
    while True:
        try:
            with talking:
                connection.send_bytes(reply)
            if reply is READY:
                threading.Thread(target=_show_life, args=(connection, talking), daemon=True).start()
            briefing, client, head, key, body = connection.recv()
        except (EOFError, OSError):  # the server hung up, or was killed
            return
        try:
            clients = briefing() if briefing is not None else clients
            if body is not None:
                bodies[key] = body
            reply = REPLY + clients[client].handle(head + bodies[key])
        except OSError as error:  # the disk's fault, not that of a client's code
            known = error.errno in DISK
            told = pickle.dumps((error.errno, error.strerror, error.filename and str(error.filename)))
            reply = DISK_FAULT + told if known else FAILURE + traceback.format_exc().encode()
        except Exception:  # noqa: BLE001 - whatever it is, it belongs to the server
            reply = FAILURE + traceback.format_exc().encode()
