"""Compiles a client for this machine or a board, and says how to run it: in QEMU where it is for another machine."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from filelock import FileLock

from prowd.embedded.sources import C_FILES
from prowd.errors import ConfigError, RunError

__all__ = ["TARGETS", "Target", "build", "check_target", "lacking", "objects", "run_command"]

WARNINGS = "-std=c99", "-Wall", "-Wextra", "-Werror"
BARE = "-target", "thumb-freestanding-eabi", "-ffreestanding", "-ffunction-sections", "-fdata-sections"
INSTALL_ZIG = "zig: pip install ziglang==0.15.2"
CARD_AT = 0x21000000  # in the PSRAM of the board


@dataclass(frozen=True)
class Target:
    """What a client can be compiled for."""

    platform: str
    """The file of embedded/platforms."""
    flags: tuple[str, ...] = ()
    """Of zig's compiler; none: this machine, by its own compiler if it has one."""
    emulator: str = ""
    """What runs it; nothing: this machine does."""
    board: str = ""
    options: tuple[str, ...] = ()
    """Of the emulator."""


ALONE = "-static", "-s"  # a program that needs no library, without its symbols
SERIAL = "-serial", "stdio"
SEMIHOSTING = "-serial", "none", "-semihosting-config", "enable=on,target=native"
ARM = "qemu-system-arm"
TARGETS = {
    "posix": Target("posix"),
    "cortex-m0": Target("cortexm", (*BARE, "-mcpu=cortex_m0")),
    "cortex-m3": Target("cortexm", (*BARE, "-mcpu=cortex_m3"), ARM, "mps2-an385", SERIAL),
    "cortex-m4": Target("cortexm", (*BARE, "-mcpu=cortex_m4"), ARM, "mps2-an386", SERIAL),
    "cortex-m3-semihosting": Target(
        "cortexm", (*BARE, "-mcpu=cortex_m3", "-DPROWD_SEMIHOSTING"), ARM, "mps2-an385", SEMIHOSTING
    ),
    "aarch64": Target("posix", ("-target", "aarch64-linux-musl", *ALONE), "qemu-aarch64"),
    "armv7": Target("posix", ("-target", "arm-linux-musleabihf", *ALONE), "qemu-arm"),
    "riscv32": Target("posix", ("-target", "riscv32-linux-musl", *ALONE), "qemu-riscv32"),
    "riscv64": Target("posix", ("-target", "riscv64-linux-musl", *ALONE), "qemu-riscv64"),
}


def lacking(name: str, *, to_run: bool = True) -> str | None:
    """What must be installed to compile and run a client for a target, in words; None if nothing."""
    target = TARGETS[name]
    if not target.flags and not _native():
        return f"a C compiler, or {INSTALL_ZIG}"
    if target.flags and not _has_zig():
        return INSTALL_ZIG
    if to_run and target.emulator and not shutil.which(target.emulator):
        package = "qemu-system-arm" if target.board else "qemu-user"
        return f"{target.emulator}: apt-get install {package}, or your system's package of QEMU"
    return None


def check_target(name: str, *, to_run: bool) -> None:
    """Refuse what cannot be compiled, or run, here."""
    if name not in TARGETS:
        raise ConfigError(f"target: {name!r}; accepted: {', '.join(TARGETS)}")
    missing = lacking(name, to_run=to_run)
    if missing:
        done = "run" if lacking(name, to_run=False) is None else "compiled"
        raise RunError(f"a client for {name} cannot be {done} here; install {missing}")


def build(folder: Path, name: str, *, optimise: str = "-O2", extra: Sequence[str] = ()) -> Path:
    """Compile what ``write_client`` has written; return the program."""
    target = TARGETS[name]
    program = folder / (name if target.board else f"prowd-client-{name}")
    check_target(name, to_run=False)
    if target.platform == "cortexm" and not target.board:
        raise RunError(f"there is no board with a {name} to build a program for; accepted: its objects")
    linked = ["-T", "mps2.ld", "-Wl,--gc-sections,--entry=prowd_start"] if target.platform == "cortexm" else []
    _compile(folder, target, [optimise, *extra, *_sources(folder, target), *linked, "-o", program.name])
    return program


def objects(folder: Path, name: str, *, optimise: str = "-Os") -> list[Path]:
    """Compile only; return the object files of the client, without its platform."""
    target, found = TARGETS[name], list[Path]()
    check_target(name, to_run=False)
    for source in _sources(folder, target)[:-1]:
        found.append(folder / f"{Path(source).stem}.o")
        _compile(folder, target, [optimise, "-c", source, "-o", found[-1].name])
    return found


def run_command(program: Path, name: str, card: Path) -> list[str]:
    """The command that runs a client with a card, speaking over its standard input and output."""
    target = TARGETS[name]
    if not target.board:
        return [*filter(None, [target.emulator]), str(program), str(card)]
    machine = [target.emulator, "-M", target.board, "-display", "none", "-monitor", "none", *target.options]
    loader = f"loader,file={card},addr={CARD_AT:#x},force-raw=on"
    return [*machine, "-kernel", str(program), "-device", loader]


def _sources(folder: Path, target: Target) -> list[str]:
    """All files to compile, the platform's last."""
    found = [str(path.relative_to(folder)) for pattern in C_FILES for path in sorted(folder.glob(pattern))]
    return [*found, f"platforms/{target.platform}.c"]


def _compile(folder: Path, target: Target, arguments: Sequence[str]) -> None:
    bare = ["-Iplatforms/bare"] if target.platform == "cortexm" else []
    compiler = [sys.executable, "-m", "ziglang", "cc", *target.flags] if target.flags else _native()
    command = [*compiler, *WARNINGS, "-I.", "-Iclient", "-Icore", *bare, *arguments]
    with _alone() if "ziglang" in command else nullcontext():
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    if done.returncode:
        raise RunError(f"the client could not be compiled by {' '.join(command[:4])}: {done.stderr.strip()[-1500:]}")


@contextmanager
def _alone() -> Iterator[None]:
    """One zig at a time: two of them that compile the same files may wait for each other's locks for ever."""
    with FileLock(platformdirs.user_cache_path("prowd", ensure_exists=True) / "zig.lock"):
        yield


def _native() -> list[str]:
    """This machine's compiler."""
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    return [sys.executable, "-m", "ziglang", "cc"] if _has_zig() else []


def _has_zig() -> bool:
    return importlib.util.find_spec("ziglang") is not None
