"""A watch on a Cortex-M3 in QEMU, in one federation with a phone; and what is said where QEMU or zig are not there."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from prowd.embedded.build import lacking
from prowd.runs import boards
from tests.runs import ask, refused, summary


def test_without_its_tools_the_demo_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "lacking", lambda target: "zig: pip install ziglang==0.15.2")
    said = refused("embed", "demo", cwd=tmp_path)
    assert said == "error: a Cortex-M3 cannot be simulated here; install zig: pip install ziglang==0.15.2\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(lacking(boards.TARGET) is not None, reason=f"needs {lacking(boards.TARGET)}")
@pytest.mark.skipif(find_spec("seglearn") is None, reason="needs the recordings: pip install '.[watch]'")
def test_a_board_and_a_phone_come_to_the_weights_of_the_simulation(tmp_path: Path) -> None:
    small = ["-s", "clients=int8:1, float32:3", "-s", "test_clients=6", "-s", "rounds=1", "-s", "steps=1"]
    done = ask("embed", "demo", "--method", "prowd-plus", *small, "--out", "demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "demo" / "prowd-plus"
    found = summary(folder / "boards")["weights_sha256"]
    assert found == summary(folder / "simulated")["weights_sha256"]
    assert f"prowd-plus: weights_sha256 {found}: equal with and without boards" in done.stdout
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("0 "))
    ram, stack = (int(cell.replace(",", "")) for cell in row[4:6])
    assert 0 < stack < 2048 < ram <= 65536
