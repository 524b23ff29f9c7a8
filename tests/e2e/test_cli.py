"""The command line as people meet it: a process, its output, its exit code, its files."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
from filelock import FileLock

import prowd
from prowd.config.schema import load_config
from prowd.runs.directory import read_sessions
from tests.runs import (
    ROUND_KEYS,
    TINY,
    ask,
    call,
    config_file,
    data_file,
    expected,
    finish,
    on_a_terminal,
    outcome,
    read_to_the_end,
    rounds,
    run_tiny,
    samples,
    sets,
    start,
    summary,
    wait_for_rounds,
)

COMMANDS = ("", "run", "compare", "presets", "methods", "data", "data list", "data fetch", "data verify", "completion")
QUICK = sets(clients="int8:2, float32:2", rounds=3, steps=2, width=0.25, seed=1)


def refused(*arguments: str | Path, cwd: Path, code: int = 1) -> str:
    """Call with something wrong in it, and return the one line that says what."""
    done = ask(*arguments, cwd=cwd)
    assert done.returncode == code, done
    assert "Traceback" not in done.stdout + done.stderr
    if code == 1:
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


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
    found = summary(path)
    assert "results in runs/one" in text
    for number in (1, 2, 3):
        assert re.search(
            rf"round {number}/3 .*int8 \d+\.\d% .*float32 \d+\.\d% .*↑\S+ kB ↓\S+ kB .*\d:\d\d:\d\d left", text
        )
    assert "as received" in text
    for width in ("int8", "float32"):
        shares = [f"{100 * found['accuracy'][when][width]:.2f}%" for when in ("received", "trained")]
        assert re.search(rf"│ {width} +│ +{shares[0]} │ +{shares[1]} │", text)
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
        for values in (*line["accuracy"].values(), line["loss"], line["bytes"]["up"], line["bytes"]["down"]):
            assert list(values) == ["int8", "float32"]
        by_client = line["bytes"]["clients"]
        assert list(by_client) == ["0", "1", "2", "3"]
        for way, counts in zip(("up", "down"), zip(*by_client.values(), strict=True), strict=True):
            assert [sum(counts[:2]), sum(counts[2:])] == list(line["bytes"][way].values())
        assert all(0 <= share <= 1 for shares in line["accuracy"].values() for share in shares.values())
        assert line["clients"] == {"asked": 4, "lost": [], "refused": []}
        assert line["bytes"]["up"]["int8"] < line["bytes"]["down"]["int8"] < line["bytes"]["down"]["float32"]
        assert line["seconds"] > 0
    found = summary(path)
    assert found["rounds"] == 3
    assert found["accuracy"] == lines[-1]["accuracy"]
    assert found["bytes"]["up"] == {
        width: sum(line["bytes"]["up"][width] for line in lines) for width in ("int8", "float32")
    }
    assert re.fullmatch("[0-9a-f]{64}", found["weights_sha256"])
    names = {file.name for file in (path / "checkpoints").iterdir()}
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
    ("arguments", "parts"),
    [
        (["qiuck"], ("preset: 'qiuck'", "did you mean 'quick'?")),
        (["quick", "-s", "rundos=3"], ("rundos", "did you mean 'rounds'?")),
        (["quick", "-s", "method=fedprox9"], ("method: 'fedprox9'", "local, fedavg", "did you mean 'fedprox'?")),
        (["quick", "-s", "clients=int9000:3"], ("clients", "'int9000'", "int2 to int16")),
        (["quick", "-s", "clients=int8:0"], ("clients: 'int8:0", "1 or more")),
        (["quick", "-s", "clients=int8:2000"], ("clients: 2000", "1438")),
        (["quick", "-s", "data=nowhere.npz"], ("nowhere.npz",)),
        (["missing.toml"], ("missing.toml",)),
    ],
)
def test_bad_settings_are_one_line_and_leave_nothing(
    arguments: list[str], parts: tuple[str, ...], tmp_path: Path
) -> None:
    message = refused("run", *arguments, "--out", "run", cwd=tmp_path)
    assert all(part in message for part in parts)
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


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run; tests work on copies of it."""
    folder = tmp_path_factory.mktemp("stopped")
    run_tiny(folder / "run", clients="int8:2", rounds=4)
    return folder


@pytest.fixture
def copy(stopped: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    for file in (stopped / "run").rglob("*"):
        if file.is_file():
            target = tmp_path / file.relative_to(stopped)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    return tmp_path / "run"


def truncate(run: Path, *numbers: int) -> None:
    for number in numbers:
        path = run / "checkpoints" / f"round-{number:06d}.safetensors"
        path.write_bytes(path.read_bytes()[:100])


def contents(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_directory_that_holds_a_run_is_left_unharmed(copy: Path) -> None:
    before = contents(copy)
    message = refused("run", "quick", *QUICK, "--out", copy, cwd=copy.parent)
    assert str(copy) in message
    assert "--resume" in message
    assert contents(copy) == before


def test_a_directory_with_other_files_is_left_unharmed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious", "utf-8")
    assert str(tmp_path) in refused("run", "quick", "--out", tmp_path, cwd=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_only_a_run_can_be_resumed(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert f"{name} is not a run directory" in refused("run", "--resume", name, cwd=tmp_path)


def test_a_resumed_run_keeps_its_settings(copy: Path) -> None:
    before = contents(copy)
    assert "seed" in refused("run", "--resume", copy, "-s", "seed=3", cwd=copy.parent)
    assert "4 are done" in refused("run", "--resume", copy, "-s", "rounds=3", cwd=copy.parent)
    after = contents(copy)
    assert after == before


def test_a_truncated_checkpoint_is_passed_over(copy: Path) -> None:
    truncate(copy, 4)
    (copy / "summary.json").unlink()
    done = call("run", "--resume", copy, "--workers", "1", cwd=copy.parent)
    assert done.returncode == 0, done.stderr
    assert "round-000004.safetensors is truncated" in done.stderr
    assert "resumed after round 3" in done.stdout
    assert outcome(copy) == expected(clients="int8:2", rounds=4)


def test_truncated_checkpoints_are_an_error(copy: Path) -> None:
    truncate(copy, 3, 4)
    done = call("run", "--resume", copy, cwd=copy.parent)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: no checkpoint of ")
    assert "round-000003.safetensors" in last
    assert len(rounds(copy)) == 4


def test_a_damaged_configuration_is_an_error(copy: Path) -> None:
    config = copy / "config.toml"
    config.write_bytes(config.read_bytes()[:30] + b"\n=")
    assert "config.toml is not valid TOML" in refused("run", "--resume", copy, cwd=copy.parent)


def test_a_run_in_use_cannot_be_resumed(copy: Path) -> None:
    from prowd.runs.directory import RunDir

    held = RunDir.open(copy)
    try:
        assert "in use by another process" in refused("run", "--resume", copy, cwd=copy.parent)
    finally:
        held.release()


@pytest.mark.parametrize(("name", "workers"), [("SIGINT", 2), ("SIGTERM", 2)])
def test_an_interrupted_run_tells_how_to_go_on(name: str, workers: int, tmp_path: Path) -> None:
    settings = {"clients": "int8:3", "rounds": 80, "seed": 7}  # long enough to be met under way
    source = config_file(tmp_path, **settings)
    process = start("run", source, "--out", "run", "--workers", str(workers), cwd=tmp_path)
    wait_for_rounds(tmp_path / "run", 3, process)
    if name == "SIGINT":
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    else:
        process.send_signal(signal.SIGTERM)
    out, err = finish(process)  # ends only when no worker is left
    assert process.returncode == 130
    assert err == ""
    found = re.search(r"Continue with: prowd (run --resume .+)", out)
    assert found is not None
    assert not (tmp_path / "run" / "summary.json").exists()
    assert 3 <= len(rounds(tmp_path / "run")) < 80
    resumed = call(*found[1].split(), "--workers", "1", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert outcome(tmp_path / "run") == expected(**settings)


def test_the_bar_on_a_terminal(tmp_path: Path) -> None:
    source = config_file(tmp_path, clients="int8:2, int6:1", rounds=8)
    arguments = ("run", source, "--out", "run", "--workers", "1")
    process, terminal = on_a_terminal(*arguments, cwd=tmp_path, rows=50, columns=160)
    written = read_to_the_end(terminal)
    assert process.wait(60) == 0, written
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())
    frames = [frame for frame in re.split(r"[\r\n]+", text) if re.match(r"round \d/8 ━", frame)]
    assert len(frames) > 1
    full = r"round \d/8 ━+ int6 \d+\.\d%  int8 \d+\.\d% ↑\d+\.\d kB ↓\d+\.\d kB \d:\d\d:\d\d left\s*"
    assert re.fullmatch(full, frames[-1]), frames
    assert frames[-1].startswith("round 8/8")
    assert "0:00:00 left" in frames[-1]
    assert "\x1b[?25l" in written.decode(), "the cursor is hidden"
    assert written.decode().rindex("\x1b[?25h") > written.decode().rindex("\x1b[?25l"), "and comes back"
    assert "as received" in text


def test_own_data_by_a_relative_name_are_found_from_elsewhere(tmp_path: Path) -> None:
    data_file(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    settings = {**TINY, "clients": "int8:2", "rounds": 1}
    done = call("run", "quick", *sets(**settings, data="tiny.npz"), "--out", "run", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    more = call("run", "--resume", "../run", "-s", "rounds=2", "--workers", "1", cwd=tmp_path / "elsewhere")
    assert more.returncode == 0, more.stderr
    assert outcome(tmp_path / "run") == expected(**{**settings, "rounds": 2})
