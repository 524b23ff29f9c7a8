"""Other machines than this one: what compiles for them (zig) and what runs their programs (QEMU)."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ARMS", "Machine"]


@dataclass(frozen=True)
class Machine:
    """A kind of CPU and how its programs are run here."""

    name: str
    target: str
    """As zig names it; programs are static."""
    emulator: tuple[str, ...]

    def why_not(self) -> str | None:
        """Why its programs can't be compiled and run here, or None."""
        if importlib.util.find_spec("ziglang") is None:
            return "needs zig: pip install ziglang"
        if shutil.which(self.emulator[0]) is None:
            return f"needs {self.emulator[0]}: apt-get install qemu-user"
        return None

    def compiled(self, program: Path, flags: Sequence[str]) -> Path:
        """Compile a program."""
        return compiled_by_zig(self.target, program, tuple(flags))

    def command(self, program: Path) -> list[str]:
        """What runs a program."""
        return [*self.emulator, str(program)]


@functools.cache
def compiled_by_zig(target: str, program: Path, flags: tuple[str, ...]) -> Path:
    """One program for all machines of a target."""
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *flags, "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return program


ARMS = tuple(
    Machine(cpu, "aarch64-linux-musl", ("qemu-aarch64", "-cpu", cpu)) for cpu in ("max", "cortex-a76", "cortex-a72")
)
