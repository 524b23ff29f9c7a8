"""Processes as they are seen from outside, through /proc: who is in a group, and what has become of them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.runs import environment

__all__ = ["Member", "Program", "living", "members", "wait_for"]

STEP = 0.01
POOL = "spawn_main"


@dataclass(frozen=True)
class Member:
    """A process."""

    pid: int
    command: str = ""
    group: int = 0

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still there."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Program:
    """A command in a process group of its own, whose words are read when it has ended."""

    def __init__(self, command: Sequence[str | Path], folder: Path) -> None:
        self.process = subprocess.Popen(
            [*map(str, command)],
            cwd=folder,
            env=environment() | {"PROWD_REPORT": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.began = time.monotonic()

    @property
    def ended(self) -> bool:
        """Whether the command itself has ended."""
        return self.process.poll() is not None

    @property
    def server(self) -> Member:
        """The command itself."""
        return Member(self.process.pid)

    @property
    def workers(self) -> list[Member]:
        """The worker processes of its pool."""
        return [member for member in members(self.process.pid) if POOL in member.command]

    def everybody(self, number: signal.Signals) -> None:
        """Send a signal to all of them at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def words(self, patience: float) -> tuple[str, str, list[Member]]:
        """What it said, and who of its processes is left though it has ended and nobody is stopped any more."""
        self.everybody(signal.SIGCONT)
        wait_for(lambda: not members(self.process.pid), patience)
        left = members(self.process.pid)
        self.everybody(signal.SIGKILL)
        out, err = self.process.communicate()
        return out, err, left


def members(group: int) -> list[Member]:
    """The living processes of a group, in the order of their numbers."""
    return [member for member in living() if member.group == group]


def living() -> list[Member]:
    """All processes that have not ended; Linux."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            command = (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it has ended
        if state not in "ZX":
            found.append(Member(int(entry.name), command, int(group)))
    return sorted(found, key=lambda member: member.pid)


def wait_for(what: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is so, at most so long; returns whether it is."""
    end = time.monotonic() + seconds
    while not (so := what()) and time.monotonic() < end:
        time.sleep(STEP)
    return so
