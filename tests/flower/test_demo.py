"""``prowd flower demo`` leaves nothing behind, Ctrl-C or not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from tests.runs import finish, start, wait_until

from .federations import children_of

pytestmark = pytest.mark.slow


def test_ctrl_c_stops_everything_that_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    demo = start("flower", "demo", "--clients", "int8:1", "--out", tmp_path / "run", cwd=tmp_path)
    assert demo.stdout is not None
    heard = [demo.stdout.readline() for _ in range(3)]
    assert "online" in heard[2], heard
    started = children_of(demo.pid, "flower-")
    assert len(started) >= 3, "a SuperLink, its executor and a SuperNode"
    os.kill(demo.pid, signal.SIGINT)
    finish(demo)
    assert demo.returncode == 130
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), "nothing is left")
    assert list(tmp_path.glob("prowd-flower-*")) == [], "keys and certificates are gone"
