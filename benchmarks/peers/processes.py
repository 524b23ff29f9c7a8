"""What the kernel says of a process, all it started, and the machine. Needs /proc; without it nothing is known."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

__all__ = ["busy", "held", "tree", "used"]

PROC = Path("/proc")


def tree(root: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in PROC.glob("[0-9]*"):
        fields = _fields(int(folder.name))
        if fields:
            children[int(fields[1])].append(int(folder.name))
    members = [root] if children else []
    for member in members:
        members += children[member]
    return members


def held(process: int) -> int:
    """Bytes that a process holds; of a page that several share, each holds its part (PSS)."""
    try:
        lines = (PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended, or is about to
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def used(process: int) -> float:
    """Seconds of processor time that a process has had."""
    return sum(map(int, _fields(process)[11:13])) / _ticks()


def busy() -> float | None:
    """Seconds for which the cores of the machine have been at work since it was started, all together."""
    try:
        user, nice, system, _idle, _waiting, *rest = map(int, (PROC / "stat").read_text().split()[1:9])
    except OSError:
        return None
    return (user + nice + system + sum(rest)) / _ticks()


def _fields(process: int) -> list[str]:
    """The fields of proc_pid_stat(5) after the name; none of a process that has ended."""
    try:
        return (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _ticks() -> int:
    return os.sysconf("SC_CLK_TCK")
