"""One process and all it starts: how long it takes, what it reports, how much memory it needs at its peak."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.processes import busy, held, tree, used

__all__ = ["Measured", "PeerError", "held", "measure", "tail", "tree"]

PATIENCE = 1800.0  # seconds for one process
INTERVAL = 0.25  # seconds between two looks at the processor time of a run
WATCHING = 0.05  # and at its memory
LINES = 15  # of what a process said that an error repeats


class PeerError(Exception):
    """A contestant that could not be installed or run, and why; the others go on."""


@dataclass(frozen=True)
class Measured:
    """One run of one contestant."""

    whole: float
    """Seconds from the start of the process to its exit."""
    rounds: list[float]
    """Seconds of each round, the first included."""
    loss: float
    steps: int
    peak: int
    """Most bytes that the process and all its descendants held at one time; 0 where that was not watched."""
    processor: float
    """Seconds of processor time that the process and all its descendants had; 0 where that is not known."""
    others: float
    """Share of the machine's processor that other processes had meanwhile; 0 where that is not known."""
    accuracy: list[float] = field(default_factory=list)
    """Of the mixed federation, after each round; and the bytes that all clients sent and were sent in it."""
    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)


class _Watch(threading.Thread):
    """Looks at a process and its descendants now and then, until told to stop."""

    def __init__(self, root: int, memory: bool) -> None:
        super().__init__(daemon=True)
        self.root, self.memory = root, memory
        self.peak, self.used = 0, dict[int, float]()
        self.over = threading.Event()
        self.began, self.busy, self.ended = time.perf_counter(), busy(), _ended_children()

    def run(self) -> None:
        while not self.over.wait(WATCHING if self.memory else INTERVAL):
            members = tree(self.root)
            self.used |= {member: max(used(member), self.used.get(member, 0.0)) for member in members}
            self.peak = max(self.peak, sum(map(held, members)) if self.memory else 0)

    def others(self) -> float:
        """The share that processes had which are not watched: what the machine did, less what is known of these.

        The kernel knows exactly of children that were waited for, and so on down; the looks, of all but their last
        moments. The larger is nearer to the truth.
        """
        now, whole = busy(), time.perf_counter() - self.began
        if now is None or self.busy is None:
            return 0.0
        return max(0.0, now - self.busy - self.own()) / (whole * (os.cpu_count() or 1))

    def own(self) -> float:
        """Seconds of processor time that the watched processes had."""
        return max(sum(self.used.values()), _ended_children() - self.ended)


def measure(command: Sequence[str], environment: Mapping[str, str], *, memory: bool = False) -> Measured:
    """Run a contestant to its end. Watching memory takes some of the processor: such a run is not for timing."""
    with tempfile.TemporaryDirectory() as folder:
        report, log = Path(folder) / "report.json", Path(folder) / "log"
        homes = {"FLWR_HOME": folder}  # what a peer would leave in the user's home
        began = time.perf_counter()
        with log.open("w", encoding="utf-8") as output:
            process = subprocess.Popen(
                [*command, "--report", str(report)],
                env={**environment, **homes},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            watch = _to_the_end(process, memory)
        whole = time.perf_counter() - began
        if process.returncode or not report.exists():
            raise PeerError(f"{' '.join(command[1:])} ended with {process.returncode}. It said last:\n{tail(log)}")
        said = json.loads(report.read_text("utf-8"))
        return Measured(whole=whole, peak=watch.peak, processor=watch.own(), others=watch.others(), **said)


def _ended_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def tail(log: Path) -> str:
    """The last lines of what a process said."""
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-LINES:])


def _to_the_end(process: subprocess.Popen[bytes], memory: bool) -> _Watch:
    """Wait for a process, which outlives neither us nor our patience, and watch it."""
    timer, watch = threading.Timer(PATIENCE, _end, [process]), _Watch(process.pid, memory)
    timer.start()
    watch.start()
    try:
        process.wait()
    finally:
        timer.cancel()
        watch.over.set()
        _end(process)
    return watch


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
