"""Folders that can be filled up or made read-only, for root and for others."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Disk", "give_up_powers", "small_disk"]

SIZE = "24m"
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


@dataclass(frozen=True)
class Disk:
    """A folder; a small file system of its own where that could be had."""

    folder: Path
    small: bool

    @contextmanager
    def full(self, left: int) -> Iterator[None]:
        """Fill it but for so many bytes."""
        if not self.small:
            raise ValueError(f"{self.folder} is on a disk that others need")
        ballast = self.folder / ".ballast"
        try:
            _fill(ballast, left)
            yield
        finally:
            ballast.unlink(missing_ok=True)

    @contextmanager
    def read_only(self, path: Path) -> Iterator[None]:
        """Nobody can make a file below a folder, or in its parent as long as there is none."""
        folders = [path, *(inner for inner in path.rglob("*") if inner.is_dir())] if path.is_dir() else [self.folder]
        try:
            for folder in folders:
                folder.chmod(0o555)
            yield
        finally:
            for folder in folders:
                if folder.exists():
                    folder.chmod(0o755)


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    """A file system of a few megabytes in memory; an ordinary folder for who may not mount."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=755", "prowd-chaos", str(folder)]
    small = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield Disk(folder, small)
    finally:
        if small:
            _unmount(folder)


def give_up_powers() -> None:
    """Have root's children heed permissions as everybody must: they lose the power to override them."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "root's children would not heed permissions")


def _fill(ballast: Path, left: int) -> None:
    """Take all space but ``left`` bytes; whoever else writes meanwhile may take the rest."""
    with ballast.open("wb") as file:
        status = os.statvfs(ballast.parent)
        try:
            os.posix_fallocate(file.fileno(), 0, max(status.f_bavail * status.f_frsize - left, 1))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def _unmount(folder: Path) -> None:
    for _ in range(20):
        if subprocess.run(["umount", str(folder)], capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.5)
    subprocess.run(["umount", "--lazy", str(folder)], check=False)
