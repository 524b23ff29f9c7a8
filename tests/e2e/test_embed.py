"""``prowd embed``: the C client of a run or a configuration, its memory, what it refuses, and the check of a round."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from prowd.embedded.build import lacking
from prowd.embedded.check import first_task, trained_by
from prowd.runs.firmware import write_firmware
from tests.runs import ask, config_file, refused, run_tiny

needs_compiler = pytest.mark.skipif(lacking("posix") is not None, reason=f"there is no {lacking('posix')}")


@needs_compiler
def test_a_configuration_becomes_a_client_that_is_checked(tmp_path: Path) -> None:
    out = tmp_path / "firmware"
    done = ask(
        "embed", config_file(tmp_path, method="prowd-plus"), "--check", "--ram", "32k", "--out", out, cwd=tmp_path
    )
    assert done.returncode == 0, done
    said = done.stdout
    assert "checked: 2 steps give the" in said
    total, asked = (float(size) for size in re.findall(r"([0-9.]+)K", said.partition(" for int8 and prowd-plus")[0]))
    assert total <= asked == 32.0
    parts = re.findall(r"^.+?\s([0-9,]+)\s*$", said, re.M)
    assert abs(sum(int(part.replace(",", "")) for part in parts) - 1024 * total) < 60
    assert {"net.h", "net.c", "mps2.ld", "Makefile", "client", "client-0.card"} <= {path.name for path in out.iterdir()}


@needs_compiler
def test_a_run_becomes_a_client_that_make_compiles(tmp_path: Path) -> None:
    run_tiny(tmp_path / "run", method="fedavg", snapshots="none")
    firmware = write_firmware(tmp_path / "run", {}, client=1, folder=tmp_path / "firmware")
    assert firmware.card.name == "client-1.card"
    subprocess.run(["make", "posix"], cwd=tmp_path / "firmware", check=True, capture_output=True)
    scene, method = firmware.runtime.scene, firmware.runtime.method
    task = first_task(scene, method, scene.clients[1], 2)
    command = [str(tmp_path / "firmware/posix"), str(firmware.card)]
    assert trained_by(command, task, 2).update == firmware.runtime.handle(task)


def test_what_cannot_be_made_is_refused_with_what_can(tmp_path: Path) -> None:
    config, out = config_file(tmp_path, clients="int8:1, int4:1, float32:2"), tmp_path / "firmware"
    for arguments, reason in {
        (): "width: not said; accepted: int4, int8",
        ("--width", "int5"): "width: int5; accepted: int4, int8",
        ("--width", "float32"): "width: float32; accepted: int4, int8",
        ("--client", "3"): "client: 3 is none of int4, int8",
        ("--width", "int8", "--ram", "1K"): "ram: 1.0K; ",
        ("--width", "int8", "-s", "method=local"): "method: local: its clients remember",
    }.items():
        assert reason in refused("embed", config, *arguments, "--out", out, cwd=tmp_path)
    assert not out.exists()


def test_a_size_of_memory_is_bytes_or_has_a_unit(tmp_path: Path) -> None:
    assert "is no size; accepted: bytes, as in 65536, 64K or 1M" in refused(
        "embed", config_file(tmp_path), "--ram", "much", cwd=tmp_path, code=2
    )
