"""The gateway's side of a link: hand a task to a device, come back with the update.

One request is under way at a time. It is repeated, under the same number, until its answer comes; so a frame may be
lost or damaged in either direction, and a device needs neither a clock nor a memory for what it has said. One that was
reset says that it has nothing, and is sent everything again: what it trains is a function of the task.
Bytes from a device are hostile: lengths are bounded, each answer must move on, and every wait ends.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from time import monotonic

from prowd.errors import LinkError, WireError, harmless
from prowd.link.frames import LONGEST_CHUNK, MARGIN, OVERHEAD, Frame, Frames, Kind, encode
from prowd.link.streams import Stream
from prowd.wire.fields import crc32

__all__ = ["ALLOWANCE", "Gateway", "Hello", "Patience", "Tally"]

ALLOWANCE = 65_536  # bytes by which an update may be longer than its task: it has no more weights, but words of its own
ANYBODY = 2**32 - 1
LOST, DAMAGED = 3, 4  # refusals after which a device is sent the task again
MOST_NUMBERS = 2**16 - 1
COPIES = 3  # times that an update is asked for when it comes damaged
_IDENTITY, _WORD, _PAIR = struct.Struct("<BBHIQQIIII"), struct.Struct("<I"), struct.Struct("<II")
_DONE = struct.Struct("<IIII")


@dataclass(frozen=True)
class Patience:
    """How long a gateway waits, and how often it tries."""

    answer: float = 2.0
    """Seconds until an answer comes, beside those that its bytes take on a serial line."""
    repeats: int = 5
    """Times that a request without an answer is repeated."""
    boot: float = 60.0
    """Seconds that a device may take from being switched on to its first answer."""
    work: float = 300.0
    """Seconds without a sign of life while a device trains."""
    restarts: int = 3
    """Times that a device is sent a task again, as after a reset."""


@dataclass(frozen=True)
class Hello:
    """What a device says of itself."""

    width: int
    chunk: int
    client: int | None
    network: int
    recipe: int
    examples: int
    data: int
    largest: int
    name: str


@dataclass
class Tally:
    """What went over a link so far, and the memory that the device says it needed."""

    sent: int = 0
    received: int = 0
    repeats: int = 0
    restarts: int = 0
    ram: int = 0
    stack: int = 0


class _Again(Exception):  # noqa: N818 - nothing is wrong
    """The device no longer has what it was sent."""


class Gateway:
    """A device at the end of a stream."""

    def __init__(self, stream: Stream, patience: Patience | None = None, tally: Tally | None = None) -> None:
        self.stream, self.patience, self.tally = stream, patience or Patience(), tally or Tally()
        self._frames, self._waiting, self._found = Frames(), deque[Frame](), False
        self._came = 0
        self._number, self._request, self._chunk = 0, b"", LONGEST_CHUNK

    def hello(self) -> Hello:
        """Ask the device who it is."""
        repeats = max(self.patience.repeats, int(self.patience.boot / self.patience.answer))
        payload = self._ask(Kind.HELLO, b"", Kind.I_AM, repeats=repeats).payload
        if len(payload) < _IDENTITY.size:
            raise WireError(f"a hello of {len(payload)} bytes; accepted: {_IDENTITY.size} and a name")
        width, _, chunk, client, network, recipe, examples, data, largest, _ = _IDENTITY.unpack_from(payload)
        if not 64 <= chunk <= LONGEST_CHUNK:
            raise WireError(f"chunks of {chunk} bytes; accepted: 64 to {LONGEST_CHUNK}")
        self._chunk = chunk
        name = harmless(payload[_IDENTITY.size :].decode("utf-8", "replace"), 64)
        who = None if client == ANYBODY else client
        return Hello(width, chunk, who, network, recipe, examples, data, largest, name)

    def exchange(self, task: bytes, steps: int) -> bytes:
        """Have the device do a task of so many steps, after ``hello``, and return the update as it came.

        LinkError: it does not do it. WireError: its answers are nonsense.
        """
        reason = ""
        for _ in range(1 + self.patience.restarts):
            try:
                self._put(task)
                length, crc = self._run(task, steps)
                return self._get(length, crc)
            except _Again as again:
                reason = str(again)
                self.tally.restarts += 1
        raise LinkError(f"it was sent the task {1 + self.patience.restarts} times; at last {reason}")

    def close(self) -> None:
        """Let go of the device."""
        self.stream.close()

    def _put(self, task: bytes) -> None:
        """Hand over a task piece by piece."""
        at = 0
        while at < len(task):
            piece = task[at : at + self._chunk]
            (taken,) = _fields(_WORD, self._ask(Kind.PUT, _PAIR.pack(len(task), at) + piece, Kind.TAKEN))
            if taken < at:
                raise _Again(f"it had {taken} bytes of the {at} that it had taken")
            if taken != at + len(piece):
                raise WireError(f"it has taken {taken} bytes; accepted: {at + len(piece)}, as many as it was sent")
            at = taken

    def _run(self, task: bytes, steps: int) -> tuple[int, int]:
        """Have it train, and wait for as long as it goes on; return length and crc of the update."""
        kinds = Kind.DONE, Kind.WORKING
        answer: Frame | None = self._ask(Kind.RUN, _PAIR.pack(len(task), crc32(task)), *kinds)
        heard, gap, last = monotonic(), 0.0, -1
        while answer is None or answer.kind == Kind.WORKING:
            if answer is not None:
                step, _ = _fields(_PAIR, answer)
                if last < step <= steps:  # nothing else is a sign of life
                    gap, heard, last = max(gap, monotonic() - heard), monotonic(), step
            left = heard + self.patience.work - monotonic()
            if left <= 0:
                raise LinkError(f"no sign of life for {self.patience.work:g} s, after step {max(last, 0)} of {steps}")
            answer = self._await(min(left, max(5 * self.patience.answer, 4 * gap)), kinds)
            if answer is None:  # it may have been reset, or its last word was lost: asking does no harm
                self._send_again()
        length, crc, self.tally.ram, self.tally.stack = _fields(_DONE, answer)
        if not 0 < length <= len(task) + ALLOWANCE:
            raise WireError(f"it has an update of {length} bytes; accepted: 1 to {len(task) + ALLOWANCE}")
        return length, crc

    def _get(self, length: int, crc: int) -> bytes:
        """Fetch the update piece by piece."""
        for _ in range(COPIES):
            update = b""
            while len(update) < length:
                payload = self._ask(Kind.GET, _WORD.pack(len(update)), Kind.DATA).payload
                size = min(self._chunk, length - len(update))
                if payload[: _WORD.size] != _WORD.pack(len(update)) or len(payload) != _WORD.size + size:
                    raise WireError(
                        f"data of {len(payload)} bytes; accepted: {size} from byte {len(update)} of the update"
                    )
                update += payload[_WORD.size :]
            if crc32(update) == crc:
                return update
        raise WireError(f"its update came damaged {COPIES} times: its crc is not {crc:#010x}")

    def _ask(self, kind: Kind, payload: bytes, *accepted: Kind, repeats: int | None = None) -> Frame:
        """Ask until the answer comes."""
        self._number = self._number % MOST_NUMBERS + 1
        self._request = encode(Frame(kind, self._number, payload))
        on_the_wire = 2 * (LONGEST_CHUNK + OVERHEAD) / self.stream.rate if self.stream.rate else 0.0
        tries = 1 + (self.patience.repeats if repeats is None else repeats)
        for attempt in range(tries):
            if attempt:
                self._send_again()
            else:
                self._send(self._request)
            answer = self._await(self.patience.answer + on_the_wire, accepted)
            if answer is not None:
                return answer
        if self._came and not self._found:
            raise WireError(f"no frame among the {self._came} bytes that it sent in {tries} tries")
        raise LinkError(f"no answer in {tries} tries")

    def _send_again(self) -> None:
        """Repeat the request. A damaged length may have either side wait for more than there is; both get over it."""
        self._waiting.extend(self._frames.give_up())
        self._send(bytes(self._chunk + MARGIN + OVERHEAD) + self._request)
        self.tally.repeats += 1

    def _send(self, request: bytes) -> None:
        self.stream.send(request, self.patience.answer + (len(request) / self.stream.rate if self.stream.rate else 0.0))
        self.tally.sent += len(request)

    def _await(self, seconds: float, accepted: Collection[Kind]) -> Frame | None:
        """The answer to the request under way, if it comes in time."""
        end = monotonic() + seconds
        while True:
            while self._waiting:
                frame = self._waiting.popleft()
                if frame.number == self._number and frame.kind == Kind.REFUSED:
                    raise _refusal(frame.payload)
                if frame.number == self._number and frame.kind in accepted:
                    return frame
                if (frame.number, frame.kind) == (0, Kind.I_AM) and Kind.I_AM not in accepted:
                    raise _Again("it was reset")
            left = end - monotonic()
            if left <= 0:
                return None
            data = self.stream.receive(left)
            self.tally.received += len(data)
            self._came += len(data)
            self._waiting.extend(self._frames.feed(data))
            self._found = self._found or bool(self._waiting)


def _fields(layout: struct.Struct, answer: Frame) -> tuple[int, ...]:
    if len(answer.payload) != layout.size:
        found = f"{len(answer.payload)} bytes in an answer of kind {answer.kind:#x}"
        raise WireError(f"{found}; accepted: {layout.size}")
    return layout.unpack(answer.payload)


def _refusal(payload: bytes) -> Exception:
    code, said = int.from_bytes(payload[:2], "little"), harmless(payload[2:].decode("utf-8", "replace"), 200)
    if code in (LOST, DAMAGED):
        return _Again(f"it said: {said or 'the task is not there'}")
    return LinkError(f"it refuses: {said or 'without a reason'} (code {code})")
