"""Files out of folders and archives that others made: by name, into memory, within bounds, never onto the disk."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from prowd.errors import DataError

__all__ = ["read_members"]

MAX_BYTES = 64 * 2**20
MAX_MEMBERS = 1000


def read_members(path: Path, names: Collection[str]) -> dict[str, bytes]:
    """Contents of those files, by name without folders, that ``path`` holds: a folder, a tar (of any kind) or a zip.

    A member's path is only compared, so that no archive can reach outside; the first of several namesakes counts.
    """
    found: dict[str, bytes] = {}
    try:
        read = _from_folder if path.is_dir() else _from_zip if zipfile.is_zipfile(path) else _from_tar
        for name, data in read(path, names):
            found.setdefault(name, data)
    except DataError:
        raise
    except Exception as error:  # damaged archives raise a dozen types, of tarfile, zipfile, zlib, lzma and struct
        raise DataError(f"cannot be read: {error or type(error).__name__}") from error
    return found


def _from_folder(path: Path, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        if (path / name).is_file():
            with (path / name).open("rb") as stream:
                yield name, _bounded(stream, name)


def _from_zip(path: Path, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = PurePosixPath(member.filename).name
            if name in names and not member.is_dir():
                with archive.open(member) as stream:
                    yield name, _bounded(stream, name)


def _from_tar(path: Path, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Bound what is skipped as well: a member has to be unpacked to be passed over."""
    with tarfile.open(path) as archive:
        for count, member in enumerate(archive):
            if count == MAX_MEMBERS:
                raise DataError(f"more than {MAX_MEMBERS:,} members")
            name = PurePosixPath(member.name).name
            if member.size > MAX_BYTES:
                raise _too_large(name)
            stream = archive.extractfile(member) if member.isreg() and name in names else None
            if stream is not None:
                yield name, _bounded(stream, name)


def _bounded(stream: IO[bytes], name: str) -> bytes:
    """Count what comes out rather than trust the size an archive states."""
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _too_large(name)
    return data


def _too_large(name: str) -> DataError:
    return DataError(f"{name} is too large; accepted: up to {MAX_BYTES:,} bytes a file")
