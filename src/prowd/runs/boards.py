"""A federation with boards in QEMU, beside the same federation without them: both come to the same weights."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prowd.embedded.build import build, lacking, run_command
from prowd.embedded.plan import Plan, kilobytes
from prowd.errors import RunError
from prowd.federation.links import LinkedDevice, LinkedDevices
from prowd.federation.transport import InProcess
from prowd.runs.build import assemble
from prowd.runs.firmware import Firmware, write_firmware
from prowd.runs.observe import RunObserver
from prowd.runs.run import RunResult, Session

__all__ = ["METHODS", "PRESET", "SETTINGS", "Shown", "check_tools", "show"]

TARGET = "cortex-m3"
PRESET, METHODS = "watch", ("prowd", "prowd-plus")
SETTINGS: Mapping[str, Any] = {"rounds": 3, "steps": 12, "batch": 16, "evaluate_every": 1}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Shown:
    """A run with boards, what went over their links, and the weights of the same run without."""

    result: RunResult
    boards: Mapping[int, LinkedDevice]
    plan: Plan
    pure: str

    @property
    def missing(self) -> int:
        """How many updates were left out; the weights are then others."""
        clients = [line["clients"] for line in self.result.rounds]
        return sum(len(found["lost"]) + len(found["refused"]) for found in clients)

    @property
    def same(self) -> bool:
        """Whether the weights are the same."""
        return bool(self.result.summary["weights_sha256"] == self.pure)


def check_tools() -> None:
    """See that a client can be compiled and run here."""
    missing = lacking(TARGET)
    if missing:
        raise RunError(f"a Cortex-M3 cannot be simulated here; install {missing}")


def show(settings: Mapping[str, Any], folder: Path, ram: int | None, say: Say, *observers: RunObserver) -> Shown:
    """Run a federation without boards, then with one in QEMU for each of its integer clients."""
    pure = Session.start(PRESET, settings, out=folder / "simulated").run()
    say(f"simulated: weights_sha256 {pure.summary['weights_sha256'][:16]}…; now with boards")
    session = Session.start(PRESET, settings, out=folder / "boards")
    clients = session.federation.scene.clients
    boards = [client.id for client in clients if not client.width.is_float]
    made = [_firmware(settings, folder / "firmware", client, ram) for client in boards]
    if not made:
        raise RunError("no client of this federation computes in integers; accepted: some, as in clients='int8:4'")
    plan = made[0].plan
    program = build((folder / "firmware").resolve(), TARGET)
    say(f"compiled for {TARGET}: {program.stat().st_size:,} bytes of ELF, {kilobytes(plan.total)} of memory planned")
    links = {
        client: f"exec:{shlex.join(run_command(program, TARGET, one.card.resolve()))}"
        for client, one in zip(boards, made, strict=True)
    }
    here = assemble(session.config, session.dataset).clients(session.rundir.memories, session.snapshots)
    transport = LinkedDevices(InProcess(here), here, links)
    result = session.run(None, *observers, transport=transport)
    return Shown(result, transport.devices, plan, pure.summary["weights_sha256"])


def _firmware(settings: Mapping[str, Any], folder: Path, client: int, ram: int | None) -> Firmware:
    return write_firmware(PRESET, settings, folder=folder, client=client, ram=ram)
