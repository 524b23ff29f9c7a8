"""Where a run may begin, and who holds its directory."""

from __future__ import annotations

from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from prowd.errors import DiskError, RunError
from prowd.files import is_leftover

__all__ = ["check_free", "locked"]


def check_free(path: Path) -> None:
    """See that a run can be started in a directory."""
    if (path / "config.toml").exists():
        raise RunError(f"output directory {path} holds another run; continue it with --resume, or name another --out")
    if path.exists() and (not path.is_dir() or not all(_is_leftover(file) for file in path.iterdir())):
        raise RunError(f"output directory {path} is not an empty directory; name another --out")


def locked(path: Path) -> BaseFileLock:
    """Hold a run directory: nobody else can write to it until the lock is released."""
    lock = FileLock(path / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:  # which is an OSError too
        raise RunError(f"run directory {path} is in use by another process; wait for it or stop it first") from None
    except OSError as error:
        raise DiskError.of(f"{path} cannot be written", error) from error
    return lock


def _is_leftover(file: Path) -> bool:
    """Whether a file is one of those that a run leaves which is killed before it begins."""
    if file.name == "checkpoints":
        return file.is_dir() and not any(file.iterdir())
    return file.name == ".lock" or (file.name.startswith(".config.toml.") and is_leftover(file))
