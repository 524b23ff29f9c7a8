"""prowd watch beside a real run: two processes that share nothing but a directory."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from tests.runs import (
    ask,
    call,
    config_file,
    expected,
    finish,
    on_a_terminal,
    outcome,
    read_to_the_end,
    sets,
    start,
    summary,
    wait_for_rounds,
)

SETTINGS = {"clients": "int8:2", "rounds": 50, "seed": 3}


def figures(path: Path) -> list[str]:
    """The accuracies of summary.json as the page has them."""
    found = summary(path)["accuracy"]
    return [f"{100 * share:.2f}%" for when in ("received", "trained") for share in found[when].values()]


def test_help(tmp_path: Path) -> None:
    done = ask("watch", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "It ends by itself" in done.stdout
    assert "prowd watch runs/DIR" in ask("--help", cwd=tmp_path).stdout


def test_a_run_is_watched_from_before_its_beginning_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    watching = start("watch", "run", "--every", "0.1", cwd=tmp_path)
    assert watching.stdout is not None
    assert watching.stdout.readline() == "run: waiting for the first round\n"
    settings = sets(clients="int8:2, float32:2", rounds=3, steps=2, width=0.25)
    done = call("run", "quick", *settings, "--out", "run", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    out, err = finish(watching)
    assert (watching.returncode, err) == (0, "")
    assert "quick: fedavg, clients int8:2, float32:2, seed 0" in out
    assert "round 3/3" in out
    assert "finished in 0:00:0" in out
    assert all(share in out for share in figures(tmp_path / "run"))
    assert out.splitlines()[-1] == "run"


def test_a_killed_run_is_followed_on_when_it_is_resumed(tmp_path: Path) -> None:
    source = config_file(tmp_path, **SETTINGS)
    running = start("run", source, "--out", "run", "--workers", "1", cwd=tmp_path)
    wait_for_rounds(tmp_path / "run", 2, running)
    os.killpg(running.pid, signal.SIGKILL)
    finish(running)
    assert not (tmp_path / "run" / "summary.json").exists(), "it was killed under way"
    watching = start("watch", "run", "--every", "0.1", cwd=tmp_path)
    assert watching.stdout is not None
    first = [watching.stdout.readline() for _ in range(3)]
    assert re.fullmatch(r"\d+ of 50 rounds are made\n", first[2])
    resumed = call("run", "--resume", "run", "--workers", "1", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    out, err = finish(watching)
    assert (watching.returncode, err) == (0, "")
    assert "round 50/50" in out
    assert all(share in out for share in figures(tmp_path / "run"))
    assert outcome(tmp_path / "run") == expected(**SETTINGS), "whoever watches changes nothing"


def test_ctrl_c_ends_the_watching_and_not_the_run(tmp_path: Path) -> None:
    source = config_file(tmp_path, clients="int8:2", rounds=2)
    (tmp_path / "run").mkdir()
    watching = start("watch", "run", cwd=tmp_path)
    assert watching.stdout is not None
    assert watching.stdout.readline() == "run: waiting for the first round\n"
    os.killpg(watching.pid, signal.SIGINT)
    out, err = finish(watching)
    assert (watching.returncode, err) == (130, "")
    assert out.splitlines()[-1] == "no longer watching; a run that is under way goes on"
    assert call("run", source, "--out", "run", "--workers", "1", cwd=tmp_path).returncode == 0, "nothing was left there"


def test_a_comparison_on_a_terminal(tmp_path: Path) -> None:
    source = config_file(tmp_path, clients="int8:2, int6:1", rounds=6)
    (tmp_path / "both").mkdir()
    watching, terminal = on_a_terminal("watch", "both", "--every", "0.1", cwd=tmp_path, rows=24, columns=80)
    written = os.read(terminal, 65536)  # it waits for what is to come
    comparing = start("compare", source, "--methods", "fedavg,local", "--seeds", "0", "--out", "both", cwd=tmp_path)
    written += read_to_the_end(terminal)
    finish(comparing)
    assert comparing.returncode == 0
    assert watching.wait(60) == 0, written
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())
    assert re.search(r"fedavg +0 +6/6 +\d+\.\d% +\d+\.\d% +\d+\.\d% +finished", text)
    assert re.search(r"local +0 +6/6 +\d+\.\d% +\d+\.\d% +\d+\.\d% +finished\s+both\s*$", text), "which stays"
    assert "2/2 runs finished" in text
    assert written.decode().rindex("\x1b[?25h") > written.decode().rindex("\x1b[?25l"), "the cursor comes back"
    frames = re.findall(r"(\d)/2 runs finished", text)
    assert frames == sorted(frames)
    assert {"0", "2"} <= set(frames), "it was there from the beginning to the end"
    assert "both: waiting for the first round" in text
