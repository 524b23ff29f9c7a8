"""Files that are either complete or absent: whoever is killed while writing leaves the old contents in place."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["atomic_folder", "atomic_write", "clear_leftovers", "is_leftover", "sha256"]

LEFTOVER = re.compile(r"\..+\.[0-9a-f]{16}\.tmp", re.DOTALL)


def sha256(data: bytes | NDArray[Any]) -> str:
    """Hex digest of bytes, or of an array's elements in C order (neither its shape nor its dtype)."""
    return hashlib.sha256(data if isinstance(data, bytes) else np.ascontiguousarray(data).data).hexdigest()


def atomic_write(path: Path, data: bytes) -> None:
    """Write a file so that a reader, now or after a crash, finds the old contents or all of the new."""
    temporary = _beside(path)
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the place of ``path`` when the block succeeds, and is removed when it fails.

    A folder cannot be renamed over a full one, so an old ``path`` is first moved aside: a crash in between leaves no
    folder at that name, never a mixture.
    """
    temporary, old = _beside(path), _beside(path)
    try:
        temporary.mkdir()
        yield temporary
        for file in temporary.iterdir():
            _sync(file)
        _sync(temporary)
        if path.is_symlink() or path.exists():
            path.rename(old)
        temporary.rename(path)
        _sync(path.parent)
    finally:
        for leftover in (temporary, old):
            _remove(leftover)


def clear_leftovers(folder: Path) -> None:
    """Remove what was being written below a folder when its writer was killed; only whoever holds the folder may."""
    for path in [path for path in folder.rglob(".*.tmp") if is_leftover(path)]:
        _remove(path)


def is_leftover(path: Path) -> bool:
    """Whether a name is one of those under which files and folders are written here before they get their own."""
    return LEFTOVER.fullmatch(path.name) is not None


def _beside(path: Path) -> Path:
    """Return a fresh hidden name on the same file system; files made there get the user's usual permissions."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Force a file's contents, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
