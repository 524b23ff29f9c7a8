"""The commands: status, the app directory, keys, and what they say without Flower."""

from __future__ import annotations

import builtins
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from click.testing import CliRunner, Result

import prowd.flower
from prowd.cli import main
from prowd.flower.settings import write_app
from tests.unit.flower.test_flower_parts import LATER, LINE, run_directory


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["flower", *map(str, arguments)], env={"COLUMNS": "200", "NO_COLOR": "1"})


def test_the_app_directory_is_an_app(tmp_path: Path) -> None:
    done = call("app", tmp_path / "app")
    assert done.exit_code == 0
    assert f"flwr run {tmp_path / 'app'}" in done.output
    found = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text("utf-8"))
    for side in ("server", "client"):
        assert found["tool"]["flwr"]["app"]["components"][f"{side}app"] == f"prowd.flower.{side}_app:app"
    assert write_app(tmp_path / "deep" / "app").is_dir()


def test_the_app_directory_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    (tmp_path / "file").touch()
    for name in ("full", "file"):
        done = call("app", tmp_path / name)
        assert done.exit_code == 1
        assert f"error: {tmp_path / name} " in done.output
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_status_is_a_table(tmp_path: Path) -> None:
    done = call("status", run_directory(tmp_path, LINE, LATER))
    assert done.exit_code == 0, done.output
    first, second = done.output.splitlines()[1:3]
    assert first.split()[:6] == ["0", "int8", "9", "1/1", "0", "0"]
    assert second.split()[:6] == ["1", "float32", "8", "0/2", "1", "1"]
    assert second.endswith("round 2: asleep")
    assert "2 rounds, " in done.output
    missing = call("status", tmp_path / "gone")
    assert missing.exit_code == 1
    assert "has no devices.json" in missing.output


def test_keys_by_command(tmp_path: Path) -> None:
    assert call("certificates", tmp_path, "--host", "localhost", "--host", "127.0.0.1").exit_code == 0
    done = call("key", tmp_path, "node-0")
    assert done.exit_code == 0
    assert "flwr supernode register node-0.pub" in done.output
    assert {path.name for path in tmp_path.iterdir()} == {"ca.pem", "server.pem", "server.key", "node-0", "node-0.pub"}
    again = call("key", tmp_path, "node-0")
    assert again.exit_code == 1
    assert "exists and is not overwritten" in again.output
    assert call("certificates", tmp_path / "other").exit_code == 2, "a host is needed"
    assert call("certificates", tmp_path / "other", "--host", "x", "--days", "0").exit_code == 2


@pytest.mark.parametrize(
    ("package", "command"),
    [("flwr", "demo"), ("cryptography", "key keys n"), ("cryptography", "certificates k --host x")],
)
def test_without_flower_the_commands_say_what_to_install(
    package: str, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.startswith("prowd.flower.")]:
        monkeypatch.setattr(prowd.flower, name.rpartition(".")[2], sys.modules[name], raising=False)  # put back after
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    done = call(*command.split())
    assert done.exit_code == 1
    assert f"error: prowd flower needs {package}" in done.output
    assert "pip install '.[flower]'" in done.output
    assert call("--help").exit_code == call("app", tmp_path / "app").exit_code == 0, "which do without"
    assert call("status", run_directory(tmp_path, LINE)).exit_code == 0


def test_another_module_that_is_missing_is_not_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(*_: Any) -> None:
        raise ModuleNotFoundError("No module named 'prowd.gone'", name="prowd.gone")

    monkeypatch.setattr("prowd.flower.status.read_status", fails)
    assert isinstance(call("status", tmp_path).exception, ModuleNotFoundError)
