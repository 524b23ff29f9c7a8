"""What a client can be compiled for."""

from __future__ import annotations

import shutil

import pytest
from click.testing import CliRunner

from prowd.cli import main
from prowd.embedded import build
from prowd.embedded.build import check_target
from prowd.errors import ConfigError, RunError


def test_a_target_that_nobody_knows_is_refused_before_anything_is_written() -> None:
    with pytest.raises(ConfigError, match=r"'toaster'; accepted: posix, cortex-m0.*, aarch64"):
        check_target("toaster", to_run=False)
    told = CliRunner().invoke(main, ["embed", "quick", "--target", "toaster"])
    assert told.exit_code != 0
    assert "toaster" in f"{told.output}{told.exception}"


def test_what_must_be_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_has_zig", lambda: True)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    check_target("aarch64", to_run=False)
    with pytest.raises(RunError, match=r"aarch64 cannot be run here; install qemu-aarch64: apt-get install qemu-user"):
        check_target("aarch64", to_run=True)
    monkeypatch.setattr(build, "_has_zig", lambda: False)
    with pytest.raises(RunError, match="riscv64 cannot be compiled here; install zig: pip install ziglang"):
        check_target("riscv64", to_run=True)
