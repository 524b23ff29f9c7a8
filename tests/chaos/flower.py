"""A lane on Flower: a SuperLink, its executor and SuperNodes, each started again when it has ended, as systemd does."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prowd.flower.control import RunStatus
from prowd.flower.demo import run_config
from prowd.flower.processes import Values, local_federation
from prowd.flower.settings import write_app
from prowd.numbers.bits import parse_mix
from tests.chaos.disks import Disk
from tests.chaos.ledger import Ledger
from tests.chaos.local import DISK_WORDS
from tests.chaos.plan import ON_FLOWER, Fault
from tests.chaos.programs import members, wait_for
from tests.chaos.quiet import Quiet, rounds_in
from tests.chaos.services import CLIENT_APP, EXECUTOR, LINK, SERVER_APP, Services

__all__ = ["Lane"]

CLIENTS = "int8:1, float32:1"
METHODS = ("fedcomgate", "prowd-plus")  # the first keeps a memory on its devices
SETTINGS: dict[str, Any] = {"clients": CLIENTS, "rounds": 6, "steps": 2, "batch": 8, "test_examples": 40}
PATIENT: Mapping[str, float] = {"quorum": 2, "attempts": 40, "pause": 2.0}
"""A round counts only with all devices: then who was away for a while changes nothing."""
GONE = 10.0  # seconds without a server app after which an operator takes a run for dead


@dataclass
class Lane:
    """Makes runs and the faults of its plan until the ledger says that it is enough."""

    disk: Disk
    devices: Disk
    folder: Path
    ledger: Ledger
    quiet: Quiet
    faults: Iterator[Fault]
    patience: float
    held: Fault | None = None
    seen: float = 0.0
    """When a server app was last seen."""
    app_began: bool = False

    @property
    def deadline(self) -> float:
        """Seconds that a round waits for a device: enough for one that is only slow."""
        return self.patience / 4

    def work(self) -> None:
        """Start the federation, then run after run."""
        self.folder.mkdir()
        app = write_app(self.folder / "app")
        with local_federation(self.folder) as federation:
            self.services = Services(federation, app, parse_mix(CLIENTS), self.devices.folder)
            number = 0
            while self.held or not self.ledger.over(ON_FLOWER):
                self.run(self.disk.folder / f"run-{number}", METHODS[number % len(METHODS)])
                number += 1

    def run(self, path: Path, method: str) -> None:
        """One run, started again with ``resume`` until it has ended and is as the quiet one."""
        settings = {**SETTINGS, "method": method}
        while True:
            if self.ledger.late:
                self.ledger.complain(f"{path.parent.name}, {path.name}: not ended in time")
                break
            begun = (path / "config.toml").is_file()
            values = run_config({}, resume=str(path)) if begun else run_config(settings, out=str(path))
            if self.session({**values, **PATIENT, "deadline": self.deadline, "join": self.patience}, path):
                self.quiet.judge(path, "quick", settings, self.ledger)
                break
        shutil.rmtree(path, ignore_errors=True)

    def session(self, values: Values, path: Path) -> bool:
        """One run of Flower's, disturbed while it lives; whether it ended as it should at the end of a run."""
        done, suffered = rounds_in(path), list[Fault]()
        run = self.services.start(values, self.patience)
        self.seen, self.app_began = time.monotonic(), False
        while not self.ended(run):
            fault = self.held or (next(self.faults) if self.ledger.take(ON_FLOWER) else None)
            self.held = None
            if fault is None:
                self.progress(run, path, lambda: False)
            elif self.moment(fault, run, path, done):
                suffered.append(fault)
                self.inflict(fault, run, path)
            else:
                self.held = fault
        return self.post_mortem(run, suffered, path)

    def moment(self, fault: Fault, run: int, path: Path, done: int) -> bool:
        """Wait for the moment of a fault; False where the run ends before it."""
        now = rounds_in(path)
        if not (fault.early and now == done):
            self.progress(run, path, lambda: rounds_in(path) > now)
        self.progress(run, path, after(15 * fault.moment))
        return not self.ended(run)

    def inflict(self, fault: Fault, run: int, path: Path) -> None:
        """Make a fault, and wait for what must come of it."""
        node = [*self.services.nodes][int(fault.choice * len(self.services.nodes))]
        match fault.kind:
            case "kill SuperLink":
                self.services.federation.kill(LINK)
            case "kill executor":
                self.services.federation.kill(EXECUTOR)
            case "kill SuperNode":
                self.services.federation.kill(node)
            case "kill server app" | "kill client app":
                name = SERVER_APP if "server" in fault.kind else CLIENT_APP
                self.progress(run, path, lambda: bool(self.services.apps(name)))
                for victim in self.services.apps(name)[:1]:
                    victim.send(signal.SIGKILL)
            case "stop SuperLink" | "stop SuperNode" | "stop SuperNode for good":
                self.stop(fault, node, run, path)
            case "disk full, server":
                with self.disk.full(int(fault.choice * 24_000)):
                    self.progress(run, path, lambda: False)
            case "disk full, device":
                with self.devices.full(0):
                    self.until_a_device_complains(run, path)
            case "read-only folder, device":
                with self.devices.read_only(self.devices.folder / f"state-{int(fault.choice * 2)}"):
                    self.until_a_device_complains(run, path)
            case _:
                raise ValueError(fault.kind)

    def stop(self, fault: Fault, node: str, run: int, path: Path) -> None:
        """Stop a process and all that it started, for some seconds or until somebody replaces it."""
        name = LINK if fault.kind == "stop SuperLink" else node
        stopped = members(self.services.federation.processes[name].pid)
        for member in stopped:
            member.send(signal.SIGSTOP)
        if fault.kind.endswith("for good"):
            self.progress(run, path, after(self.deadline + 10))
            if name in self.services.federation.processes:
                self.services.federation.kill(name)
            return
        self.progress(run, path, after(20 * fault.choice), link=name != LINK)
        for member in stopped:
            member.send(signal.SIGCONT)

    def until_a_device_complains(self, run: int, path: Path) -> None:
        """Wait until the log of the server has another device that failed."""
        log, end = path / "server.jsonl", after(self.deadline)
        before = reasons(log)
        self.progress(run, path, lambda: len(reasons(log)) > len(before) or end())
        for reason in reasons(log)[len(before) :]:
            if "Traceback" in reason:
                self.ledger.complain(f"{path.name}: a device gives a traceback as its reason: {reason}")

    def progress(self, run: int, path: Path, enough: Callable[[], bool], *, link: bool = True) -> None:
        """Look after all processes until it is enough or the run has ended; complain where nothing moves for long."""
        count, moved, last = rounds_in(path), time.monotonic(), 0.0
        while not enough():
            if link and time.monotonic() > last + 1:
                if self.ended(run):
                    return
                last = time.monotonic()
            if rounds_in(path) != count:
                count, moved = rounds_in(path), time.monotonic()
            if time.monotonic() > moved + self.patience:
                self.ledger.complain(f"{path.name}: no round within {self.patience:g} s: {self.services.status(run)}")
                for app in self.services.apps(SERVER_APP):
                    app.send(signal.SIGKILL)
                moved = time.monotonic()
            time.sleep(0.1)

    def ended(self, run: int) -> bool:
        """Whether a run is over: Flower says so, or its server app is gone."""
        self.services.tend()
        if self.services.apps(SERVER_APP):
            self.seen, self.app_began = time.monotonic(), True
        status = self.services.status(run)
        if status is not None and status.stage == "finished":
            return True
        return time.monotonic() > self.seen + (GONE if self.app_began else self.patience)

    def post_mortem(self, run: int, suffered: list[Fault], path: Path) -> bool:
        """What became of a run of Flower's, and of each fault that it had; whether all of its rounds are there."""
        wait_for(lambda: self.services.status(run) is not None, self.patience)
        status = self.services.status(run) or RunStatus("", "", "the SuperLink does not answer")
        last = suffered[-1].kind if suffered else "nothing"
        dead = status.stage != "finished"
        problems = []
        failed = not dead and status.outcome != "completed"
        if failed and ("\n" in status.details.strip() or "Traceback" in status.details):
            problems.append("more than one line")
        if failed and last == "disk full, server" and not any(word in status.details for word in DISK_WORDS):
            problems.append("an error that does not say what is wrong with the disk")
        if failed and not suffered:
            problems.append("an error without any fault")
        for fault in suffered[:-1]:
            self.ledger.note(fault.kind, "went on")
        if suffered:
            self.ledger.note(
                last, "wrong" if problems else "killed" if dead else "ended in one line" if failed else "went on"
            )
        for problem in problems:
            self.ledger.complain(f"{path.name}, after {last}: {problem}: {status.outcome}: {status.details}")
        if failed:
            self.ledger.words[last] = status.details
        wait_for(lambda: not self.services.apps(SERVER_APP), GONE)
        for app in self.services.apps(SERVER_APP):  # of a run that Flower has given up
            app.send(signal.SIGKILL)
        return not dead and not failed


def after(seconds: float) -> Callable[[], bool]:
    """Whether so much time has passed since now."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def reasons(log: Path) -> list[str]:
    """Why devices failed, from the server's log."""
    text = log.read_text("utf-8") if log.exists() else ""
    found = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    return [line["reason"] for line in found if line["event"] == "replied" and "reason" in line]
