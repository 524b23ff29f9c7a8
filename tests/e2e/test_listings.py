"""Listings and shell completion: what they offer, and that they do not wait for torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from prowd.cli.data import BUILTIN
from prowd.config.files import presets
from prowd.data import catalogue
from prowd.methods import METHODS
from tests.runs import PROWD, ask, environment

PROBE = """
import sys
from prowd.cli import main
try:
    main(prog_name="prowd")
finally:
    print("torch" in sys.modules, file=sys.stderr)
"""


def imports_torch(*arguments: str, **variables: str) -> bool:
    """Whether a command imports torch; the probe fails where the command does."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.split()[-1] == "True"


@pytest.mark.parametrize("arguments", [["presets"], ["--help"], ["run", "--help"], ["completion", "bash"]])
def test_listings_start_without_torch(arguments: list[str]) -> None:
    assert not imports_torch(*arguments)


@pytest.mark.parametrize("words", ["prowd run table", "prowd compare q", "prowd data fetch c"])
def test_completion_starts_without_torch(words: str) -> None:
    assert not imports_torch(_PROWD_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))


def test_the_probe_sees_torch_where_it_is_imported() -> None:
    assert imports_torch("methods")


def test_presets_and_methods_are_listed(tmp_path: Path) -> None:
    listed = ask("presets", cwd=tmp_path)
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == list(presets())
    assert next(iter(presets())) == "quick"
    assert all(list(presets()).index(name) < list(presets()).index(f"{name}-cpu") for name in ("table2", "multibit"))
    known = ask("methods", cwd=tmp_path)
    assert [line.split()[0] for line in known.stdout.splitlines()[1:] if line[0] != " "] == list(METHODS)
    described = [line for line in known.stdout.splitlines() if line[0] != " "]
    assert len({line.index(line.split(maxsplit=1)[1]) for line in described}) == 1, "a column of its own"
    assert "options as prowd, without tau" in known.stdout
    assert "options.mu=0.01" in known.stdout
    assert "options.dequantizer.epochs=2" in known.stdout


def test_data_sets_are_listed(tmp_path: Path) -> None:
    assert tuple(entry.name for entry in catalogue()) == BUILTIN
    listed = ask("data", "list", cwd=tmp_path)
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:4]] == list(BUILTIN)
    assert "FILE.npz" in listed.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, tmp_path: Path) -> None:
    assert "_PROWD_COMPLETE" in ask("completion", shell, cwd=tmp_path).stdout


def test_completion_offers_presets_and_files(tmp_path: Path) -> None:
    (tmp_path / "table.toml").write_text("", "utf-8")
    asked = {"_PROWD_COMPLETE": "bash_complete", "COMP_WORDS": "prowd run table", "COMP_CWORD": "2"}
    done = subprocess.run(
        [PROWD], env={**environment(), **asked}, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    offered = {line.rpartition(",")[2] for line in done.stdout.splitlines()}
    assert offered == {name for name in presets() if name.startswith("table")} | {"table.toml"}
