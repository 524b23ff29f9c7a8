"""A disk that is full or may not be written: one line that says so, and a run that goes on from there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import prowd
from prowd.errors import RunError
from tests.runs import outcome, run_tiny


@pytest.mark.parametrize(
    ("number", "said"), [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "the disk is read-only")]
)
def test_a_run_whose_disk_gives_out_loses_nothing(
    number: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    sync = os.fsync

    def gives_out(descriptor: int) -> None:
        if (path / "checkpoints" / "round-000001.json").exists():
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", gives_out)
        with pytest.raises(RunError) as caught:
            run_tiny(path, rounds=3)
        assert said in str(caught.value)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
        with pytest.raises(RunError, match=said):
            prowd.run(resume=path, workers=1)
    prowd.run(resume=path, workers=1)
    run_tiny(tmp_path / "quiet", rounds=3)
    assert outcome(path) == outcome(tmp_path / "quiet")
