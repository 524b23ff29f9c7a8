"""A lane of ``prowd run``: one run after the other, each disturbed and resumed until it ends."""

from __future__ import annotations

import resource
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.disks import Disk
from tests.chaos.ledger import Ledger, one_line
from tests.chaos.plan import LOCALLY, Fault
from tests.chaos.programs import Program, members, wait_for
from tests.chaos.quiet import Quiet, rounds_in
from tests.runs import PROWD, sets

__all__ = ["Lane"]

METHODS = ("prowd-plus", "fedcomgate", "fedavg", "prowd")
SETTINGS: dict[str, Any] = {"clients": "int8:3, float32:3", "rounds": 12}
WORKERS = 2
DISK_WORDS = ("disk", "space", "large", "read-only", "ermission", "written", "saved")


@dataclass
class Lane:
    """Makes runs and the faults of its plan until the ledger says that it is enough."""

    disk: Disk
    source: Path
    ledger: Ledger
    quiet: Quiet
    faults: Iterator[Fault]
    patience: float
    held: Fault | None = None
    startup: float = 5.0
    """Seconds from the start of the command to its first round, as last seen."""
    round: float = 0.5
    """Seconds of a round."""

    def work(self) -> None:
        """Run after run."""
        number = 0
        while self.held or not self.ledger.over(LOCALLY):
            self.run(self.disk.folder / f"run-{number}", METHODS[number % len(METHODS)])
            number += 1

    def run(self, path: Path, method: str) -> None:
        """One run, until it has ended and is as the quiet one."""
        settings = {**SETTINGS, "method": method}
        begin: list[str | Path] = [
            PROWD,
            "run",
            self.source,
            *sets(**settings),
            "--out",
            path,
            "--workers",
            str(WORKERS),
        ]
        resume: list[str | Path] = [PROWD, "run", "--resume", path, "--workers", str(WORKERS)]
        while True:
            if self.ledger.late:
                self.ledger.complain(f"{path.parent.name}, {path.name}: not ended in time")
                break
            begun = (path / "config.toml").is_file()
            if self.session(Program(resume if begun else begin, self.disk.folder), path):
                self.quiet.judge(path, str(self.source), settings, self.ledger)
                break
        shutil.rmtree(path, ignore_errors=True)

    def session(self, program: Program, path: Path) -> bool:
        """One process, disturbed while it lives; whether it ended as it should at the end of a run."""
        done = rounds_in(path)
        suffered: list[Fault] = []
        while not program.ended:
            fault = self.held or (next(self.faults) if self.ledger.take(LOCALLY) else None)
            self.held = None
            if fault is None:
                self.wait_for_the_end(program, path)
            elif self.moment(fault, program, path, done):
                suffered.append(fault)
                self.inflict(fault, program, path)
            else:
                self.held = fault
        return self.post_mortem(program, suffered, path)

    def moment(self, fault: Fault, program: Program, path: Path, done: int) -> bool:
        """Wait for the moment of a fault; False where the process ends before it."""
        if fault.early and rounds_in(path) <= done:
            time.sleep(max(program.began + fault.moment * self.startup - time.monotonic(), 0))
            return not program.ended
        now = rounds_in(path)
        if not wait_for(lambda: rounds_in(path) > now or program.ended, self.patience):
            self.stalled(program, path, "no round")
        elif now == done:
            self.startup = time.monotonic() - program.began
        time.sleep(fault.moment * 3 * self.round)
        return not program.ended

    def inflict(self, fault: Fault, program: Program, path: Path) -> None:
        """Make a fault, and wait for what must come of it."""
        match fault.kind:
            case "kill server":
                program.server.send(signal.SIGKILL)
            case "kill all":
                program.everybody(signal.SIGKILL)
            case "kill worker" | "stop worker" | "stop worker for good":
                self.hurt_a_worker(fault, program, path)
            case "stop server":
                program.server.send(signal.SIGSTOP)
                time.sleep(2 * fault.choice)
                program.server.send(signal.SIGCONT)
            case "disk full":
                with self.disk.full(int(fault.choice * 24_000)):
                    self.wait_for_the_end(program, path)
            case "read-only folder":
                with self.disk.read_only(path):
                    self.wait_for_the_end(program, path)
            case "file limit":
                for member in members(program.process.pid):
                    limit_files(member.pid, int(fault.choice * 12_000))
                self.wait_for_the_end(program, path)
            case _:
                raise ValueError(fault.kind)
        if "kill" in fault.kind and "worker" not in fault.kind:
            program.process.wait()

    def hurt_a_worker(self, fault: Fault, program: Program, path: Path) -> None:
        """Kill or stop a worker process; it may be just about to start."""
        wait_for(lambda: bool(program.workers) or program.ended, self.patience)
        workers = program.workers
        if not workers:
            return
        victim = workers[int(fault.choice * len(workers))]
        if fault.kind == "kill worker":
            victim.send(signal.SIGKILL)
            return
        now = rounds_in(path)
        victim.send(signal.SIGSTOP)
        if fault.kind == "stop worker":
            time.sleep(2 * fault.moment)
            victim.send(signal.SIGCONT)
        elif not wait_for(lambda: rounds_in(path) > now + 1 or program.ended, self.patience):
            self.stalled(program, path, "a worker that was stopped is not replaced")

    def wait_for_the_end(self, program: Program, path: Path) -> None:
        """Wait until a process has ended by itself."""
        now = time.monotonic()
        while not program.ended:
            count = rounds_in(path)
            if not wait_for(lambda: program.ended or rounds_in(path) > count, self.patience):  # noqa: B023
                self.stalled(program, path, "no end")
        if (made := rounds_in(path)) > 1:
            self.round = min(self.round, max((time.monotonic() - now) / made, 0.01))

    def stalled(self, program: Program, path: Path, what: str) -> None:
        """Somebody waits for ever."""
        self.ledger.complain(f"{path.parent.name}, {path.name}: {what} within {self.patience:g} s")
        program.everybody(signal.SIGKILL)
        program.process.wait()

    def post_mortem(self, program: Program, suffered: list[Fault], path: Path) -> bool:
        """What became of a process, and of each fault that it had; whether its run is complete."""
        out, err, left = program.words(self.patience)
        code = program.process.returncode
        last = suffered[-1].kind if suffered else "nothing"
        killed = code == -signal.SIGKILL
        problems = [f"{len(left)} processes are left: {[member.command for member in left]}"] if left else []
        if code > 0:
            problem = one_line(err)
            problems += [f"exit code {code} with {problem}"] if problem else []
            if last in ("disk full", "file limit", "read-only folder") and not any(word in err for word in DISK_WORDS):
                problems.append("an error that does not say what is wrong with the disk")
        elif "Traceback" in out + err:
            problems.append("a traceback")
        if code < 0 and not killed:
            problems.append(f"exit code {code}")
        if code > 0 and not suffered:
            problems.append("an error without any fault")
        for fault in suffered[:-1]:
            self.ledger.note(fault.kind, "went on")
        if suffered:
            outcome = "wrong" if problems else "killed" if killed else "ended in one line" if code else "went on"
            self.ledger.note(last, outcome)
        for problem in problems:
            self.ledger.complain(
                f"{path.parent.name}, {path.name}, after {last}: {problem}\n{out[-400:]}\n{err[-3000:]}"
            )
        if code > 0:
            self.ledger.words[last] = err.strip().splitlines()[-1] if err.strip() else ""
        return code == 0


def limit_files(pid: int, size: int) -> None:
    """Let a process write no file beyond a size: what is written fails as on a disk that is full."""
    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    except ProcessLookupError:
        return  # it has ended
