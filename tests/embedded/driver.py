"""The C core as a device has it: compiled without Python, asked and answering in text."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from prowd.embedded.build import TARGETS

__all__ = ["CORE", "SANITIZERS", "TIMEOUT", "answers", "compiled", "compiler", "compiler_for"]

EMBEDDED = Path(__file__).parents[2] / "embedded"
CORE = EMBEDDED / "core"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
SANITIZERS = ("-g1", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
TIMEOUT = 600  # seconds, for a mutant that never ends


def compiler() -> str | None:
    """The C compiler of this machine, or None."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def compiler_for(target: str) -> list[str]:
    """What compiles for a Linux of another processor, as ``prowd embed`` does."""
    return [sys.executable, "-m", "ziglang", "cc", *TARGETS[target].flags]


def compiled(program: Path, flags: Sequence[str] = (*STRICT, "-O2"), core: Path = CORE, by: Sequence[str] = ()) -> Path:
    """Compile the core with its driver into a program."""
    sources = [*sorted(core.glob("*.c")), EMBEDDED / "tests/driver.c"]
    command = [*(by or [compiler() or "cc"]), *flags, f"-I{core}", *map(str, sources), "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return program


def answers(
    program: Path, questions: Sequence[str], timeout: float = TIMEOUT, emulator: Sequence[str] = ()
) -> list[list[int]]:
    """What the program answers to each question; a program that fails says why on standard error."""
    text = "\n".join(questions)
    ran = subprocess.run([*emulator, program], input=text, capture_output=True, text=True, timeout=timeout, check=False)
    if ran.returncode:
        raise RuntimeError(f"the driver ended with {ran.returncode}: {ran.stderr[-4000:]}")
    return [[int(part) for part in line.split()] for line in ran.stdout.splitlines()]
