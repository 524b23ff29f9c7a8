"""Instructions of a client on a microcontroller: ``python -m benchmarks.embedded``. Needs zig and QEMU for ARM.

The client of the preset `watch` is compiled for a Cortex-M3 and a Cortex-M4, and does a few local steps in QEMU. With
``-icount shift=0`` an instruction takes QEMU 1 ns, and a timer of the board, at 25 MHz, goes on by one every 40
instructions; the compiled client reads it between its steps. Two things are checked in every run: a loop of two million
instructions is counted as that, and the update is the Python client's, byte by byte.

Instructions are no cycles: how many of them a board does in a second depends on its memory, and is not said here.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from prowd.embedded.build import build, check_target, run_command
from prowd.embedded.check import first_task
from prowd.errors import RunError
from prowd.runs.firmware import Firmware, write_firmware

TICK = 40  # instructions
LOOP = 2_000_000  # instructions of the loop in platforms/cortexm.c
EXACT = 2 * TICK  # a mark takes less than a tick, and so does what a tick does not show
TASK_AT = 0x21800000
FLAGS = "-DPROWD_SEMIHOSTING", "-DPROWD_COUNT"
BOARDS = "cortex-m3", "cortex-m4"
COUNT = "-icount", "shift=0", "-semihosting-config", "enable=on,target=native"


class Row(NamedTuple):
    """A client whose instructions are counted."""

    method: str
    ram: int
    """In KB."""
    batch: int = 32
    width: str = "int8"


ROWS = (
    Row("fedavg", 64), Row("fedavg", 256), Row("prowd-plus", 64), Row("prowd-plus", 256),
    Row("fedavg", 64, 1), Row("fedavg", 256, 1), Row("prowd-plus", 64, 1), Row("prowd-plus", 256, 1),
    Row("fedavg", 128, width="int16"), Row("fedavg", 256, width="int16"),
)  # fmt: skip


class Counted(NamedTuple):
    """Instructions, to a multiple of 40."""

    loop: int
    task: int
    """To take it."""
    steps: tuple[int, ...]
    update: int
    """To make it once, after the last step."""

    @property
    def step(self) -> float:
        """The mean of the steps."""
        return sum(self.steps) / len(self.steps)


def main() -> None:
    """Count, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3, help="local steps of the task (default 3)")
    parser.add_argument("--rows", type=int, default=len(ROWS), help="only so many of the first rows (default: all)")
    arguments = parser.parse_args()
    print("| width, method | batch | `--ram` | M3: a step | an image of it | M4: an image | M3: task | update |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for row in ROWS[: arguments.rows]:
        with tempfile.TemporaryDirectory() as folder:
            made = firmware(row, Path(folder))
            m3, m4 = (count(made, Path(folder), board, arguments.steps) for board in BOARDS)
        numbers = m3.step, m3.step / row.batch, m4.step / row.batch, m3.task, m3.update
        shown = " | ".join(f"{round(number):,}" for number in numbers)
        print(f"| {row.width}, {row.method} | {row.batch} | {row.ram}K | {shown} |", flush=True)


def firmware(row: Row, folder: Path) -> Firmware:
    """Write the client of a row."""
    settings = {"method": row.method, "batch": row.batch, "clients": f"{row.width}:4, float32:4"}
    return write_firmware("watch", settings, folder=folder, ram=row.ram * 1024)


def count(made: Firmware, folder: Path, board: str, steps: int) -> Counted:
    """What the client of a folder needs for a task of so many steps."""
    check_target(board, to_run=True)
    runtime = made.runtime
    task = first_task(runtime.scene, runtime.method, runtime.device.spec, steps)
    asked = folder / "task"
    asked.write_bytes(struct.pack("<I", len(task)) + task)
    program = build(folder, board, extra=FLAGS)
    command = run_command(program, board, made.card)
    loader = "-device", f"loader,file={asked},addr={TASK_AT:#x},force-raw=on"
    done = subprocess.run(
        [*command, *COUNT, *loader], stdin=subprocess.DEVNULL, capture_output=True, timeout=1800, check=False
    )
    head = struct.Struct(f"<{3 + steps}I")
    update = runtime.handle(task)
    if len(done.stdout) != head.size + len(update) + 4 or done.stdout[head.size : -4] != update:
        raise RunError(f"{board}: not the update of the Python client; {done.stderr.decode(errors='replace')[-300:]}")
    marks = (*head.unpack(done.stdout[: head.size]), *struct.unpack("<I", done.stdout[-4:]))
    loop, taken, *each, update_made = (TICK * ((after - before) % 2**32) for before, after in pairwise(marks))
    if abs(loop - LOOP) > EXACT:
        raise RunError(f"{board}: a loop of {LOOP:,} instructions is counted as {loop:,}")
    return Counted(loop, taken, tuple(each), update_made)


if __name__ == "__main__":
    main()
