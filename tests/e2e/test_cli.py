"""The command line as people meet it: a process, its output, its exit code, its files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from filelock import FileLock

import prowd
from prowd.config.schema import load_config
from prowd.runs.read import read_sessions
from tests.runs import (
    ROUND_KEYS,
    ask,
    call,
    config_file,
    on_a_terminal,
    outcome,
    read_to_the_end,
    refused,
    samples,
    sets,
    summary,
)

COMMANDS = ("", "run", "compare", "presets", "methods", "data", "data list", "data fetch", "data verify", "completion")
QUICK = sets(clients="int8:2, float32:2", rounds=3, steps=2, width=0.25, seed=1)


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str, tmp_path: Path) -> None:
    done = ask(*command.split(), "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: prowd{' ' * bool(command)}{command} ")
    assert "--help" in done.stdout
    assert ask(*command.split(), "-h", cwd=tmp_path).stdout == done.stdout


def test_version(tmp_path: Path) -> None:
    assert call("--version", cwd=tmp_path).stdout == f"prowd, version {prowd.__version__}\n"


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder that the processes of pytest-xdist share, so that a run is made once for all of them."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def quick(shared: Path) -> tuple[Path, str]:
    """A small run of the default preset on real digits: its directory and what was printed."""
    folder, printed = shared / "quick", shared / "quick" / "printed"
    with FileLock(shared / "quick.lock"):
        if not printed.exists():
            folder.mkdir()
            done = call("run", "quick", *QUICK, "--out", "runs/one", "--workers", "2", cwd=folder)
            assert done.returncode == 0, done.stderr
            assert done.stderr == ""
            printed.write_text(done.stdout, "utf-8")
    return folder / "runs/one", printed.read_text("utf-8")


def test_a_run_tells_what_it_does_and_what_came_of_it(quick: tuple[Path, str]) -> None:
    path, text = quick
    found = summary(path)["accuracy"]
    assert all(f"round {number}/3" in text for number in (1, 2, 3))
    assert all(f"{100 * found[when][width]:.2f}%" in text for when in found for width in ("int8", "float32"))
    assert text.rstrip().splitlines()[-1].startswith("results: runs/one")


def test_a_run_directory_is_complete(quick: tuple[Path, str]) -> None:
    path, _ = quick
    config = load_config(path / "config.toml")
    assert (config.name, config.seed, config.rounds, config.version) == ("quick", 1, 3, prowd.__version__)
    assert config.data_sha256
    lines = [json.loads(line) for line in (path / "rounds.jsonl").read_text("utf-8").splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]
    for line in lines:
        for table, keys in ROUND_KEYS.items():
            assert set(line[table] if table else line) == keys
        measured = [line["accuracy"][when] for when in ("received", "trained")]
        for values in (*measured, line["loss"], line["bytes"]["up"], line["bytes"]["down"]):
            assert list(values) == ["int8", "float32"]
        assert list(line["accuracy"]["clients"]) == ["0", "1", "2", "3"]
        by_client = line["bytes"]["clients"]
        assert list(by_client) == ["0", "1", "2", "3"]
        for way, counts in zip(("up", "down"), zip(*by_client.values(), strict=True), strict=True):
            assert [sum(counts[:2]), sum(counts[2:])] == list(line["bytes"][way].values())
        assert all(0 <= share <= 1 for shares in line["accuracy"].values() for share in shares.values())
        assert line["clients"] == {"asked": 4, "lost": [], "refused": [], "limited": []}
        assert line["bytes"]["up"]["int8"] < line["bytes"]["down"]["int8"] < line["bytes"]["down"]["float32"]
        assert line["seconds"] > 0
    found = summary(path)
    assert found["rounds"] == 3
    last = lines[-1]["accuracy"]
    assert found["accuracy"] == {when: last[when] for when in ("received", "trained", "server")}
    assert found["measured"] == {"clients": last["clients"]}
    assert found["bytes"]["up"] == {
        width: sum(line["bytes"]["up"][width] for line in lines) for width in ("int8", "float32")
    }
    assert re.fullmatch("[0-9a-f]{64}", found["weights_sha256"])
    names = {file.name for file in (path / "checkpoints").glob("round-*")}
    assert names == {f"round-00000{n}.{suffix}" for n in (2, 3) for suffix in ("json", "safetensors")}
    servers = [f"round-00000{n}" for n in range(4)]
    clients = [f"round-00000{n}-client-000{client}" for n in (1, 2, 3) for client in range(4)]
    assert set(samples(path)) == {*servers, *clients}
    (session,) = read_sessions(path / "provenance.json")
    assert session["command"].startswith("prowd run ")
    assert (session["version"], session["round"]) == (prowd.__version__, 0)


def test_a_run_s_own_configuration_repeats_it(quick: tuple[Path, str]) -> None:
    path, _ = quick
    done = call("run", path / "config.toml", "--workers", "1", "--out", "again", cwd=path.parent)
    assert done.returncode == 0, done.stderr
    assert outcome(path.parent / "again") == outcome(path)
    assert (path.parent / "again" / "config.toml").read_text("utf-8") == (path / "config.toml").read_text("utf-8")


def test_without_out_a_new_directory_is_made(tmp_path: Path) -> None:
    source = config_file(tmp_path, clients="int8:1", rounds=1)
    done = call("run", source, "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (made,) = (tmp_path / "runs").iterdir()
    assert made.name.startswith("tiny-fedavg-")
    assert str(made.relative_to(tmp_path)) in done.stdout


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["qiuck"], "preset"),
        (["quick", "-s", "rundos=3"], "rundos"),
        (["quick", "-s", "method=fedprox9"], "method"),
        (["quick", "-s", "clients=int8:2000"], "clients"),
        (["quick", "-s", "data=nowhere.npz"], "nowhere.npz"),
        (["missing.toml"], "missing.toml"),
    ],
)
def test_bad_settings_are_one_line_and_leave_nothing(arguments: list[str], field: str, tmp_path: Path) -> None:
    assert field in refused("run", *arguments, "--out", "run", cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["quick", "-s", "rounds"],
        ["quick", "--workers", "0"],
        ["quick", "--workers", "two"],
        ["quick", "quick"],
        ["quick", "--nonsense"],
        ["quick", "--resume", "run"],
        ["--out", "other", "--resume", "run"],
    ],
)
def test_bad_usage_has_exit_code_2(arguments: list[str], tmp_path: Path) -> None:
    message = refused("run", *arguments, cwd=tmp_path, code=2)
    assert "Usage: prowd run" in message
    assert list(tmp_path.iterdir()) == []


def test_unknown_data_sets_are_refused(tmp_path: Path) -> None:
    for command in ("fetch", "verify"):
        assert "mnist" in refused("data", command, "mnist", cwd=tmp_path)
    assert "tcsh" in refused("completion", "tcsh", cwd=tmp_path, code=2)


def test_a_directory_with_other_files_is_left_unharmed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious", "utf-8")
    assert str(tmp_path) in refused("run", "quick", "--out", tmp_path, cwd=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_bar_on_a_terminal(tmp_path: Path) -> None:
    source = config_file(tmp_path, clients="int8:2, int6:1", rounds=8)
    arguments = ("run", source, "--out", "run", "--workers", "1")
    process, terminal = on_a_terminal(*arguments, cwd=tmp_path, rows=50, columns=160)
    written = read_to_the_end(terminal).decode()
    assert process.wait(60) == 0, written
    assert "round 8/8" in written
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l"), "the cursor is hidden, and comes back"
