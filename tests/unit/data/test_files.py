from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from prowd.files import atomic_folder, atomic_write, sha256


def test_sha256_reads_arrays_in_c_order() -> None:
    values = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert sha256(values) == sha256(values.tobytes()) == hashlib.sha256(bytes(range(6))).hexdigest()
    assert sha256(values.T) == sha256(values.T.tobytes()) != sha256(values)
    assert sha256(np.empty((0, 3), np.uint8)) == sha256(b"")


def test_write_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    for data in (b"one", b"two"):
        atomic_write(tmp_path / "file", data)
        assert (tmp_path / "file").read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    atomic_write(tmp_path / "file", b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        atomic_write(tmp_path / "file", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"old")]


def test_files_get_the_usual_permissions(tmp_path: Path) -> None:
    atomic_write(tmp_path / "file", b"")
    (tmp_path / "plain").touch()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_folder_takes_the_place_of_a_full_one_or_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "set").write_bytes(b"a file in the way")
    for name in ("a", "b"):
        with atomic_folder(tmp_path / "set") as folder:
            (folder / name).touch()
        assert [path.name for path in (tmp_path / "set").iterdir()] == [name]
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_failed_folder_keeps_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "old").touch()

    def interrupted() -> None:
        with atomic_folder(tmp_path / "set") as folder:
            (folder / "new").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["old"]
