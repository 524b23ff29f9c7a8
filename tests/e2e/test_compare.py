"""prowd compare and prowd.compare: the runs, their tables, and how they go on after whatever stopped them."""

from __future__ import annotations

import csv
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest
from click.testing import CliRunner, Result
from filelock import FileLock

import prowd
from prowd.cli import main
from prowd.cli.arguments import read_pairs
from prowd.comparison import make_plan
from prowd.config.files import presets
from prowd.config.schema import load_config
from prowd.methods import find_method
from prowd.runs.read import find_records, read_plan
from tests.runs import (
    TIMEOUT,
    TINY,
    call,
    config_file,
    data_file,
    environment,
    expected,
    finish,
    outcome,
    rounds,
    start,
    summary,
    wait_for_rounds,
    wait_until,
)

ROOT = Path(__file__).parents[2]
BOTH = [(method, seed) for method in ("fedavg", "local") for seed in (0, 1)]

OWN = """
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from prowd.methods import FedAvg

@dataclass(frozen=True)
class Mine(FedAvg):
    name: ClassVar[str] = "mine"

    def aggregate(self, scene, state, updates):
        here = Path(__file__).parent
        while state.round == 1 and (here / "wait").exists():
            (here / "waiting").touch()
            time.sleep(0.01)
        if state.round == 1 and (here / "fail").exists():
            raise ArithmeticError("this is not how it adds up")
        return super().aggregate(scene, state, updates)
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """FedAvg, which in its second round waits or fails as long as there is a file of that name beside it."""
    (tmp_path / "own.py").write_text(OWN, "utf-8")
    return tmp_path / "own.py"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRunner]:
    """The command line in this process, which saves some seconds; the runs have processes of their own all the same."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    yield CliRunner()
    signal.signal(signal.SIGTERM, before)


def compare(here: CliRunner, *arguments: str | Path) -> Result:
    return here.invoke(main, ["compare", *map(str, arguments)])


def files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Everything below a folder, and whether it is still the same."""
    found = ((path, path.stat()) for path in sorted(folder.rglob("*")))
    return {path.relative_to(folder): (stat.st_ino, stat.st_mtime_ns) for path, stat in found}


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> tuple[Path, str]:
    """Two methods over two seeds, made once for all processes of pytest-xdist: the directory and what was printed."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "compare"
    with FileLock(f"{folder}.lock"):
        if not (folder / "printed").exists():
            folder.mkdir()
            arguments = ["--methods", "fedavg,local", "--seeds", "0-1", "--out", "both", "--workers", "3"]
            done = call("compare", config_file(folder), *arguments, cwd=folder)
            assert done.returncode == 0, done.stderr
            assert done.stderr == ""
            (folder / "printed").write_text(done.stdout, "utf-8")
    return folder / "both", (folder / "printed").read_text("utf-8")


@pytest.fixture
def copy(made: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of the finished comparison; the configuration and the data are where they were."""
    return shutil.copytree(made[0], tmp_path / "both")


def test_a_comparison_tells_what_it_does_and_what_came_of_it(made: tuple[Path, str]) -> None:
    path, text = made
    lines = text.splitlines()
    assert lines[:2] == ["tiny: 2 methods, 2 seeds, 4 runs", "results in both"]
    ends = [line for line in lines if re.match(r"\d/4 runs  ", line)]
    assert [end[0] for end in ends] == ["1", "2", "3", "4"]
    for method, seed in BOTH:
        (end,) = (end for end in ends if f"  {method}, seed {seed}  " in end)
        shares = "  ".join(
            f"{k} {100 * v:.1f}%" for k, v in summary(path / f"{method}-seed{seed}")["accuracy"]["trained"].items()
        )
        assert shares in end
        assert re.search(r"  \d:\d\d:\d\d left$", end)
    assert "against fedavg" in text
    assert text.rstrip().splitlines()[-1].startswith("tables: both (table.md, ")
    assert {file.name for file in path.iterdir()} == {
        *(f"{method}-seed{seed}" for method, seed in BOTH),
        *("table.md", "table.csv", "table.tex", "runs.csv", "comparison.json"),
    }


def test_the_tables_say_what_the_runs_came_to(made: tuple[Path, str]) -> None:
    path, _ = made
    found = {(method, seed): summary(path / f"{method}-seed{seed}") for method, seed in BOTH}
    table = {line["method"]: line for line in read_csv(path / "table.csv")}
    assert list(table) == ["fedavg", "local"]
    for method, line in table.items():
        own = [found[method, seed] for seed in (0, 1)]
        for width in ("int8", "float32"):
            mean = 100 * fmean(one["accuracy"]["trained"][width] for one in own)
            assert float(line[width]) == pytest.approx(mean, abs=5e-5)
        for column, when in (("average", "trained"), ("average as received", "received")):
            mean = 100 * fmean(one["average_accuracy"][when] for one in own)
            assert float(line[column]) == pytest.approx(mean, abs=5e-5)
        for way in ("up", "down"):
            assert float(line[f"bytes {way} a round"]) == sum(own[0]["bytes"][way].values()) / TINY["rounds"]
    differences = [
        100
        * (found["local", seed]["average_accuracy"]["trained"] - found["fedavg", seed]["average_accuracy"]["trained"])
        for seed in (0, 1)
    ]
    assert float(table["local"]["average against fedavg"]) == pytest.approx(fmean(differences), abs=5e-5)
    half = 12.7062 * abs(differences[0] - differences[1]) / 2  # s/√2 of two values
    assert float(table["local"]["average against fedavg ±"]) == pytest.approx(half, abs=1e-3)
    runs = {(line["method"], int(line["seed"])): line for line in read_csv(path / "runs.csv")}
    assert {run: line["weights_sha256"] for run, line in runs.items()} == {
        run: one["weights_sha256"] for run, one in found.items()
    }
    shown = f"| local | {float(table['local']['int8']):.2f} ± {float(table['local']['int8 ±']):.2f} |"
    assert shown in (path / "table.md").read_text("utf-8")
    assert r"\begin{tabular}" in (path / "table.tex").read_text("utf-8")


@pytest.mark.parametrize(("method", "seed"), BOTH)
def test_a_run_of_a_comparison_is_the_run_alone(method: str, seed: int, made: tuple[Path, str]) -> None:
    assert outcome(made[0] / f"{method}-seed{seed}") == expected(method=method, seed=seed)


def test_the_runs_of_a_comparison_say_by_what_command_they_were_made(made: tuple[Path, str]) -> None:
    records, problems = find_records(made[0])
    assert problems == []
    assert [(record.method, record.seed) for record in records] == BOTH
    for record in records:
        (session,) = record.sessions
        assert session["command"].startswith("prowd compare ")
        assert session["command"].endswith(" --methods fedavg,local --seeds 0-1 --out both --workers 3")


def test_called_again_it_repeats_nothing(made: tuple[Path, str], copy: Path, here: CliRunner) -> None:
    before = {name: files(copy / name) for name in (f"{method}-seed{seed}" for method, seed in BOTH)}
    source = made[0].parent / "tiny.toml"
    done = compare(here, source, "--methods", "local,fedavg", "--seeds", "1,0", "--out", copy)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("tiny: 2 methods, 2 seeds, 4 runs, 4 already made\n")
    assert not re.search(r"\d/4 runs", done.output)
    assert {name: files(copy / name) for name in before} == before
    assert sorted(read_csv(copy / "runs.csv"), key=str) == sorted(read_csv(made[0] / "runs.csv"), key=str)


def test_methods_and_seeds_can_be_added_later(made: tuple[Path, str], copy: Path) -> None:
    before = {path.name: files(path) for path in copy.iterdir() if path.is_dir()}
    source = made[0].parent / "tiny.toml"
    more = prowd.compare(source, methods=["fedavg"], seeds=range(3), out=copy, workers=1)
    assert [(row.method, row.seeds) for row in more.rows] == [("fedavg", 3)]
    new = prowd.compare(source, methods=["fedavg", "fedprox"], seeds=[0], out=copy, workers=1, baseline="fedprox")
    assert [(row.method, row.seeds) for row in new.rows] == [("fedavg", 1), ("fedprox", 1)]
    assert new.rows[0].difference is not None
    assert not {**more.failures, **new.failures}
    after = {path.name: files(path) for path in copy.iterdir() if path.is_dir()}
    assert set(after) - set(before) == {"fedavg-seed2", "fedprox-seed0"}
    assert {name: after[name] for name in before} == before
    assert outcome(copy / "fedavg-seed2") == expected(method="fedavg", seed=2)
    assert outcome(copy / "fedprox-seed0") == expected(method="fedprox", seed=0)


def test_a_file_suggests_methods_and_seeds(made: tuple[Path, str], copy: Path, tmp_path: Path, here: CliRunner) -> None:
    suggested = {"methods": ["local"], "seeds": [1]}
    source = config_file(tmp_path, data=str(made[0].parent / "tiny.npz"), compare=suggested)
    for arguments, wanted in (
        ([], [("local", "1")]),
        (["--methods", "fedavg"], [("fedavg", "1")]),
        (["--seeds", "0,1"], [("local", "0"), ("local", "1")]),
    ):
        done = compare(here, source, *arguments, "--out", copy)
        assert done.exit_code == 0, done.output
        assert [(line["method"], line["seed"]) for line in read_csv(copy / "runs.csv")] == wanted


def test_other_settings_in_the_same_place_are_refused(made: tuple[Path, str], copy: Path, here: CliRunner) -> None:
    before = files(copy)
    done = compare(here, made[0].parent / "tiny.toml", "--methods", "fedavg", "-s", "rounds=4", "--out", copy)
    assert done.exit_code == 1
    assert re.fullmatch(
        r"error: \S+/fedavg-seed0 was made with rounds = 3, now it is 4; name another --out\n", done.stderr
    )
    assert files(copy) == before


def test_an_interrupted_comparison_tells_how_to_go_on(
    own: Path, tmp_path: Path, here: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wait").touch()
    arguments = ["--methods", "own.py:Mine", "--seeds", "0,1", "--workers", "2", "--out", "my runs"]
    process = start("compare", config_file(tmp_path), *arguments, cwd=tmp_path)
    runs = [tmp_path / "my runs" / f"mine-seed{seed}" for seed in (0, 1)]
    for run in runs:
        wait_for_rounds(run, 1, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the runs too
    out, err = finish(process)  # ends only when no process is left
    assert process.returncode == 130
    assert err == ""
    assert [len(rounds(run)) for run in runs] == [1, 1]
    found = re.search(r"stopped; .*Continue with: prowd compare (.+)", out)
    assert found is not None
    (tmp_path / "wait").unlink()
    monkeypatch.chdir(tmp_path)
    again = compare(here, *shlex.split(found[1]))
    assert again.exit_code == 0, again.output
    assert [outcome(run) for run in runs] == [expected(method="fedavg", seed=seed) for seed in (0, 1)]


def test_a_comparison_that_was_killed_goes_on(own: Path, tmp_path: Path) -> None:
    (tmp_path / "wait").touch()
    source, run = config_file(tmp_path), tmp_path / "runs" / "mine-seed0"
    arguments = ["--methods", f"{own}:Mine", "--seeds", "0", "--workers", "2"]
    process = start("compare", source, *arguments, "--out", run.parent, cwd=tmp_path)
    wait_for_rounds(run, 1, process)
    wait_until((tmp_path / "waiting").exists, "the second round")
    process.kill()
    finish(process)  # ends only when the run, which still waits, and its workers have noticed
    assert len(rounds(run)) == 1
    assert not (run.parent / "table.md").exists()
    (tmp_path / "wait").unlink()
    found = prowd.compare(source, methods=[f"{own}:Mine"], seeds=[0], out=run.parent, workers=1)
    assert not found.failures
    assert outcome(run) == expected(method="fedavg", seed=0)


def test_a_run_that_fails_leaves_the_others_standing(own: Path, tmp_path: Path, here: CliRunner) -> None:
    (tmp_path / "fail").touch()
    source, out = config_file(tmp_path), tmp_path / "out"
    arguments = ["--methods", f"{own}:Mine,fedavg", "--seeds", "0", "--workers", "1", "--out", str(out)]
    done = compare(here, source, *arguments)
    assert done.exit_code == 1, done.output
    assert "mine, seed 0 failed: Traceback" in done.output
    assert "ArithmeticError: this is not how it adds up" in done.output
    reasons = "1 of 2 runs failed and are not in the tables:\n  mine-seed0: ArithmeticError: this is not how it adds up"
    assert done.output.rstrip().endswith(reasons)
    assert [line["method"] for line in read_csv(out / "table.csv")] == ["fedavg"]
    assert outcome(out / "fedavg-seed0") == expected(method="fedavg", seed=0)
    lines = (out / "mine-seed0" / "rounds.jsonl").read_text("utf-8")
    assert lines.count("\n") == 1
    planned = read_plan(out)
    assert planned is not None
    assert planned.runs == {"mine-seed0": ("mine", 0), "fedavg-seed0": ("fedavg", 0)}
    (reason,) = planned.failures.values()
    assert list(planned.failures) == ["mine-seed0"]
    assert reason.splitlines()[-1] == "ArithmeticError: this is not how it adds up"
    own.write_text(OWN.replace('"fail"', '"nothing"'), "utf-8")
    changed = compare(here, source, *arguments)
    assert changed.exit_code == 1
    assert "own.py has changed since" in changed.output, "a round was made with the code as it was"
    own.write_text(OWN, "utf-8")
    (tmp_path / "fail").unlink()
    mended = compare(here, source, *arguments)
    assert mended.exit_code == 0, mended.output
    assert "2 runs, 1 already made" in mended.output
    assert [line["method"] for line in read_csv(out / "table.csv")] == ["mine", "fedavg"]
    assert (out / "mine-seed0" / "rounds.jsonl").read_text("utf-8").startswith(lines), "its seconds too: it went on"
    planned = read_plan(out)
    assert planned is not None
    assert planned.failures == {}
    assert outcome(out / "mine-seed0") == expected(method="fedavg", seed=0)


def script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text, "utf-8")
    return subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def test_a_script_compares_on_arrays_with_three_workers(tmp_path: Path) -> None:
    data_file(tmp_path)
    text = f"""
import numpy as np
import prowd

if __name__ == "__main__":
    with np.load("tiny.npz") as file:
        data = dict(file)
    methods = ["fedavg", "local"]
    found = prowd.compare(methods=methods, seeds=[1], workers=3, data=data, out="out", progress=True, **{TINY})
    assert not found.failures
    print(found.path, *((row.method, row.seeds, round(row.average.mean, 3)) for row in found.rows))
"""
    done = script(tmp_path, text)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("quick: 2 methods, ")
    means = {
        m: 100 * summary(tmp_path / "out" / f"{m}-seed1")["average_accuracy"]["trained"] for m in ("fedavg", "local")
    }
    assert lines[-1] == " ".join(["out", *(str((method, 1, round(mean, 3))) for method, mean in means.items())])
    for method in ("fedavg", "local"):
        assert outcome(tmp_path / "out" / f"{method}-seed1") == expected(method=method, seed=1)
    assert load_config(tmp_path / "out" / "local-seed1" / "config.toml").data == str(tmp_path / "out" / "data.npz")


def test_a_script_without_the_guard_is_told_so(tmp_path: Path) -> None:
    source = str(config_file(tmp_path))
    text = f"""
import prowd

found = prowd.compare({source!r}, methods=["fedavg"], seeds=[0], out="out")
print(found.rows, found.failures)
"""
    done = script(tmp_path, text)
    assert 'prowd.compare: call it under `if __name__ == "__main__":`' in done.stderr
    assert "RunError: the process of fedavg-seed0 ended before it began. A script that runs a federation" in done.stderr
    assert done.returncode == 1
    assert not (tmp_path / "out").exists()


def test_help_has_examples_that_work(here: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = compare(here, "--help")
    assert done.exit_code == 0
    examples = re.findall(r"^ +prowd compare (\S+) ?(.*?)(?:   .*)?$", done.output, re.MULTILINE)
    assert len(examples) >= 3
    for preset, arguments in examples:
        assert preset in presets()
        for name in re.findall(r"--methods (\S+)", arguments):
            assert name == "all" or all(find_method(one) for one in name.split(","))
    for name in ("--methods", "--seeds", "--out", "--baseline", "--workers", "table.md", "runs.csv"):
        assert name in done.output
    settings = re.findall(r"-s\s+([a-z]\S*=\S+)", done.output)
    assert len(settings) >= 3
    for setting in settings:
        make_plan("quick", read_pairs([setting]), ["fedavg", "prowd"], [0])


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["qiuck"], 1, ("preset: 'qiuck' is unknown", "did you mean 'quick'?")),
        (["missing.toml"], 1, ("missing.toml",)),
        (["--methods", "nope"], 1, ("method: 'nope' is unknown", "accepted: local, fedavg", "FILE.py:CLASS")),
        (["--methods", "fedavg,,prowd"], 1, ("method: '' is unknown", "accepted: local, ")),
        (["--methods", "fedavg,fedavg"], 1, ("methods: fedavg is there twice", "accepted: ")),
        (["--seeds", "1,0-2"], 1, ("seeds: 1 is there twice", "accepted: ")),
        (["--seeds", str(2**63)], 1, (f"seed: {2**63} is wrong", "accepted: less than")),
        (["-s", "seed=1"], 1, ("seed: ", "accepted: --seeds")),
        (["-s", "method=prowd"], 1, ("method: ", "accepted: --methods")),
        (["-s", "rundos=1"], 1, ("rundos", "did you mean 'rounds'?")),
        (["--seeds", "x"], 2, ("--seeds: 'x' is not a seed", "accepted: numbers")),
        (["--seeds", "3-1"], 2, ("--seeds: '3-1'", "accepted: numbers")),
        (["--seeds", "0,-1"], 2, ("--seeds: '-1'", "accepted: numbers")),
        (["--seeds", f"0-{10**30}"], 2, ("--seeds: '0-1000", "accepted: numbers")),
        (["--workers", "0"], 2, ("--workers", "0", "x>=1")),
        (["-s", "rounds"], 2, ("-s 'rounds'", "accepted: KEY=VALUE")),
    ],
)
def test_bad_arguments_are_one_line_and_leave_nothing(
    arguments: list[str],
    code: int,
    parts: tuple[str, ...],
    here: CliRunner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = compare(here, *arguments)
    assert done.exit_code == code, done.output
    assert isinstance(done.exception, SystemExit), "not a traceback"
    assert done.stdout == ""
    (line,) = (line for line in done.stderr.splitlines() if line.lower().startswith("error: "))
    assert done.stderr.endswith(f"{line}\n")
    assert all(part in line for part in parts)
    assert list(tmp_path.iterdir()) == []
