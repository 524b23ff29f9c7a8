"""Where a result comes from: the code, the machine, the command, and every session of a run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from prowd import __version__
from prowd.runs import provenance as room
from prowd.runs.directory import RunDir
from prowd.runs.provenance import provenance
from prowd.runs.read import read_sessions

# The command


@pytest.mark.parametrize(
    ("arguments", "typed"),
    [
        (["/home/ada/venv/bin/prowd", "run", "quick", "-s", "seed=1"], "prowd run quick -s seed=1"),
        (["prowd", "run", "-s", "clients=int8:2, float32:1"], "prowd run -s 'clients=int8:2, float32:1'"),
        (["prowd", "run", "it's", 'a "b"', "$HOME", "*", ""], """prowd run 'it'"'"'s' 'a "b"' '$HOME' '*' ''"""),
        (["/home/ada/script.py", "a b"], "python script.py 'a b'"),
        (["script.py"], "python script.py"),
        (["-c"], "python -c"),
        ([""], "''"),
        (["flwr-serverapp", "--token", "3f9a", "--insecure"], "flwr-serverapp --token HIDDEN --insecure"),
        (["prowd"], "prowd"),
        ([], "''"),
    ],
)
def test_the_command_is_as_it_was_typed(arguments: list[str], typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", arguments)
    found = provenance()["command"]
    assert found == typed
    assert "ada" not in found, "whose folders are nobody's business"
    assert "3f9a" not in found, "nor is a secret"
    words = shlex.split(found)
    assert words[-len(arguments) :][1:] == ["HIDDEN" if word == "3f9a" else word for word in arguments[1:]]


def test_a_package_is_named_as_python_calls_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.setattr(sys, "argv", [str(inner / "__main__.py"), "--only", "x"])
    assert provenance()["command"] == "python __main__.py --only x"
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    assert provenance()["command"] == "python -m outer.inner --only x"


# The code

Commit = Callable[[Path], str | None]


@pytest.fixture
def commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Commit]:
    """Asks for the commit of the code in a folder, as if it were that which runs and nothing else were known."""
    for name in list(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)

    def ask(folder: Path) -> str | None:
        monkeypatch.setattr(room, "HERE", folder)
        room._commit.cache_clear()
        return room._commit()

    yield ask
    room._commit.cache_clear()


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def repository(folder: Path, *files: str) -> str:
    """A repository with a commit of some files; returns its name."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    for file in ("README", *files):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("as it was\n", "utf-8")
        git(folder, "add", file)
    git(folder, "commit", "-q", "-m", "First")
    return git(folder, "rev-parse", "HEAD")


CODE = ("src/prowd/__init__.py", "src/prowd/methods/fedavg.py")


def test_code_that_differs_from_its_commit_has_a_plus(tmp_path: Path, commit: Commit) -> None:
    made = repository(tmp_path, *CODE)
    assert commit(tmp_path / "src/prowd") == made
    (tmp_path / CODE[1]).write_text("as it is\n", "utf-8")
    assert commit(tmp_path / "src/prowd") == f"{made}+"
    git(tmp_path, "add", ".")
    assert commit(tmp_path / "src/prowd") == f"{made}+", "also where it is to be committed"
    git(tmp_path, "commit", "-q", "-m", "Second")
    assert commit(tmp_path / "src/prowd") == git(tmp_path, "rev-parse", "HEAD") != made
    (tmp_path / CODE[1]).unlink()
    assert str(commit(tmp_path / "src/prowd")).endswith("+"), "also where it is gone"


def test_what_is_no_code_of_prowd_does_not_count(tmp_path: Path, commit: Commit) -> None:
    made = repository(tmp_path, *CODE)
    (tmp_path / "README").write_text("as it is\n", "utf-8")
    (tmp_path / "src/prowd/notes.txt").write_text("not in the repository", "utf-8")
    assert commit(tmp_path / "src/prowd") == made


def test_an_environment_in_a_repository_of_others_has_none(tmp_path: Path, commit: Commit) -> None:
    repository(tmp_path, "train.py", "__init__.py", "prowd/__init__.py")
    installed = tmp_path / ".venv/lib/python3.11/site-packages/prowd"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("", "utf-8")
    assert commit(installed) is None
    (tmp_path / ".gitignore").write_text(".venv\n", "utf-8")
    assert commit(installed) is None


def test_without_a_repository_there_is_none(tmp_path: Path, commit: Commit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit(tmp_path) is None
    git(tmp_path, "init", "-q")
    (tmp_path / "__init__.py").write_text("", "utf-8")
    git(tmp_path, "add", ".")
    assert commit(tmp_path) is None, "nor before the first commit"


def test_without_git_or_with_one_that_hangs_there_is_none(
    tmp_path: Path, commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(command: list[str], *, timeout: float, **_: object) -> None:
        assert timeout <= 10
        raise subprocess.TimeoutExpired(command, timeout)

    repository(tmp_path, *CODE)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path / "nothing"))
        assert commit(tmp_path / "src/prowd") is None
    monkeypatch.setattr(subprocess, "run", hangs)
    assert commit(tmp_path / "src/prowd") is None


FROM_GIT = {"url": "https://example.org/prowd", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}
EDITABLE = {"url": "file:///home/ada/prowd", "dir_info": {"editable": True}}


@pytest.mark.parametrize(
    "direct_url",
    [json.dumps(FROM_GIT), json.dumps(EDITABLE), None, "{", "[]", '{"vcs_info": null}', '{"vcs_info": []}', "missing"],
)
def test_a_package_installed_from_a_repository_tells_its_commit(
    direct_url: str | None, tmp_path: Path, commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def distribution(name: str) -> SimpleNamespace:
        if direct_url == "missing":
            raise importlib.metadata.PackageNotFoundError(name)
        return SimpleNamespace(read_text={"direct_url.json": direct_url}.__getitem__)

    made = repository(tmp_path, *CODE)
    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    expected = "c0ffee" if "c0ffee" in str(direct_url) else made
    assert commit(tmp_path / "src/prowd") == expected, "of a checkout its own; what is damaged stops nobody"


# The machine


def test_facts_are_plain_and_true() -> None:
    found = provenance()
    assert json.loads(json.dumps(found)) == found
    assert set(found) == {"version", "commit", "command", "started", "machine"}
    assert found["version"] == __version__
    age = datetime.now(UTC) - datetime.fromisoformat(found["started"])
    assert timedelta(seconds=-1) <= age < timedelta(minutes=1)
    machine = found["machine"]
    assert machine["system"] == f"{platform.system()} {platform.machine()}"
    assert (machine["python"], machine["torch"]) == (platform.python_version(), torch.__version__)
    assert machine["cores"] == os.cpu_count()
    assert machine["processor"]
    assert machine["instructions"] == torch.backends.cpu.get_cpu_capability() != ""


def test_neither_the_machine_nor_its_user_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/grace/bin/prowd", "run", "quick"])
    monkeypatch.setattr(socket, "gethostname", lambda: "hopper-1")
    monkeypatch.setattr(platform, "node", lambda: "hopper-1")
    monkeypatch.setenv("USER", "grace")
    monkeypatch.setenv("HOME", "/home/grace")
    text = json.dumps(provenance()).lower()
    assert "hopper" not in text
    assert "grace" not in text


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("processor : 0\nmodel name\t: Abacus 3 @ 1 Hz\nmodel name\t: Abacus 4\n", "Abacus 3 @ 1 Hz"),
        ("processor : 0\nBogoMIPS : 48\n", "an abacus"),
    ],
)
def test_the_processor_is_named_where_the_system_tells_it(
    lines: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_: lines)
    monkeypatch.setattr(platform, "processor", lambda: "an abacus")
    assert room._processor() == expected


# The sessions of a run


def sessions(path: Path) -> list[dict[str, Any]]:
    return read_sessions(path / "provenance.json")


def nested(depth: int) -> bytes:
    return b'{"sessions": [' + b'{"a":' * depth + b"1" + b"}" * depth + b"]}"


DAMAGES = [
    *(b"", b"{", b"[]", b"null", b"3", b'"sessions"', b"\xff\xfe", b"[" * 100_000, nested(20_000)),
    *(b"{}", b'{"sessions": 3}', b'{"sessions": {"a": {}}}', b'{"sessions": [1, "a", null]}'),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: repr(damage[:20]))
def test_damage_is_forgotten(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / "provenance.json").write_bytes(damage)
    assert sessions(tmp_path) == []
    rundir = RunDir.create(tmp_path / "run", "")
    (rundir.path / "provenance.json").write_bytes(damage)
    rundir.add_session({"round": 4})
    assert sessions(rundir.path) == [{"round": 4}]
    rundir.release()


def test_what_is_sound_beside_damage_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert sessions(tmp_path) == []
    assert caplog.text == "", "none are no damage"
    (tmp_path / "provenance.json").write_text('{"sessions": [{"round": 0}, 7, {"later": []}], "more": 1}', "utf-8")
    assert sessions(tmp_path) == [{"round": 0}, {"later": []}]
