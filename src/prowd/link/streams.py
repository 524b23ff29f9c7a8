"""A stream of bytes to and from a device: the pipes of a program, a connection, a serial line. None of them blocks."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from prowd.errors import LinkError, harmless

__all__ = ["Stream", "connect", "open_serial", "start_program"]

Result = TypeVar("Result")

PIECE = 65_536  # bytes read at once
WORDS = 300  # last bytes of what a program says of its trouble
CONNECT = 5.0  # seconds until somebody answers at an address
SLICE = 0.2  # seconds at a time that somebody waits who may be asked to stop
GRACE = 0.5  # seconds that a program which has hung up is given to end, for its exit code
BITS = 10  # of a byte on a serial line: a start bit, eight of data, a stop bit


class Stream:
    """Bytes to a device and back, over file descriptors that do not block."""

    def __init__(
        self, reads: int, writes: int, end: Callable[[float], str], *, errors: int | None = None, rate: float = 0.0
    ) -> None:
        self.reads, self.writes, self.errors = reads, writes, errors
        self.rate = rate
        """Bytes a second that go over the line; 0: as many as there are."""
        self.stopped = False
        """Set by another thread: whoever waits here is to give up."""
        self._words = b""
        self._end: Callable[[float], str] | None = end
        for descriptor in (reads, writes, *([] if errors is None else [errors])):
            os.set_blocking(descriptor, False)

    def send(self, data: bytes, seconds: float) -> None:
        """Write all of it, or raise LinkError if the device does not take it in time."""
        left, end = memoryview(data), time.monotonic() + seconds
        while left:
            wait = end - time.monotonic()
            if wait <= 0:
                raise LinkError(f"it takes no more bytes: {len(left)} of {len(data)} are left after {seconds:g} s")
            if select.select([], [self.writes], [], wait)[1]:
                left = left[self._some(partial(os.write, self.writes, left)) or 0 :]

    def receive(self, seconds: float) -> bytes:
        """Bytes that have come, at the latest after so many seconds; none if none came."""
        end = time.monotonic() + seconds
        while True:
            listened = [self.reads] if self.errors is None else [self.reads, self.errors]
            ready = select.select(listened, [], [], min(SLICE, max(0.0, end - time.monotonic())))[0]
            if self.errors in ready:
                self._listen()
            if self.reads in ready:
                data = self._some(partial(os.read, self.reads, PIECE))
                if data == b"":
                    raise self._ended("it hung up")
                if data:
                    return data
            if self.stopped:
                raise LinkError("the run stopped")
            if time.monotonic() >= end:
                return b""

    def close(self, seconds: float = 0.0) -> str:
        """Let go of it, and say how it ended where that is known."""
        end, self._end = self._end, None
        return end(seconds) if end else ""

    def _some(self, act: Callable[[], Result]) -> Result | None:
        """What a read or write comes to; None where it would have to wait."""
        try:
            return act()
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._ended(error.strerror or "it hung up") from None

    def _listen(self) -> None:
        """Remember the last words of a program, which say what is wrong when it ends."""
        said = self._some(partial(os.read, self.errors or 0, PIECE))
        if said == b"":
            self.errors = None
        self._words = (self._words + (said or b""))[-WORDS:]

    def _ended(self, how: str) -> LinkError:
        while self.errors is not None and select.select([self.errors], [], [], GRACE)[0]:
            self._listen()
        how = self.close(GRACE) or how
        words = harmless(self._words.decode("utf-8", "replace").strip(), WORDS)
        return LinkError(f"the link ended: {how}" + (f": {words}" if words else ""), again=True)


def start_program(command: Sequence[str]) -> Stream:
    """A program that reads requests and writes answers; it is ended with the link."""
    try:
        process = subprocess.Popen(  # noqa: S603 - the operator names it, never a message
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise LinkError(f"{command[0]!r} cannot be started: {error.strerror}") from None
    pipes = [pipe for pipe in (process.stdin, process.stdout, process.stderr) if pipe is not None]

    def end(seconds: float) -> str:
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        code = process.poll()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in pipes:
            pipe.close()
        return "" if code is None else f"{command[0]!r} ended with exit code {code}"

    writes, reads, errors = (pipe.fileno() for pipe in pipes)
    return Stream(reads, writes, end, errors=errors)


def connect(host: str, port: int) -> Stream:
    """A device that listens in a network."""
    try:
        connection = socket.create_connection((host, port), CONNECT)
    except OSError as error:
        raise LinkError(f"nobody answers at {host}:{port}: {error.strerror or error}") from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def end(_: float) -> str:
        connection.close()
        return ""

    return Stream(connection.fileno(), connection.fileno(), end)


def open_serial(path: str, baud: int) -> Stream:
    """A serial line: eight bits, no parity, one stop bit, nothing translated, nobody's controlling terminal."""
    try:
        line = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        raise LinkError(f"{path} cannot be opened: {error.strerror}") from None
    try:
        attributes = termios.tcgetattr(line)
        speed = getattr(termios, f"B{baud}")
        kept = attributes[2] & ~(termios.CSIZE | termios.PARENB | termios.CSTOPB | getattr(termios, "CRTSCTS", 0))
        control = kept | termios.CS8 | termios.CREAD | termios.CLOCAL
        termios.tcsetattr(line, termios.TCSANOW, [0, 0, control, 0, speed, speed, attributes[6]])
        termios.tcflush(line, termios.TCIOFLUSH)
    except termios.error as error:
        os.close(line)
        raise LinkError(f"{path} is no serial line: {error.args[-1]}") from None

    def end(_: float) -> str:
        os.close(line)
        return ""

    return Stream(line, line, end, rate=baud / BITS)
