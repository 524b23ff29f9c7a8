"""prowd compare and prowd.compare: the runs, their tables, and what is made again and what is not."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path
from statistics import fmean

import pytest

import prowd
from prowd.cli.arguments import read_pairs
from prowd.comparison import make_plan
from prowd.runs.read import find_records
from tests.runs import TINY, ask, call, config_file, expected, outcome, summary

BOTH = [(method, seed) for method in ("fedavg", "local") for seed in (0, 1)]


def files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Everything below a folder, and whether it is still the same."""
    found = ((path, path.stat()) for path in sorted(folder.rglob("*")))
    return {path.relative_to(folder): (stat.st_ino, stat.st_mtime_ns) for path, stat in found}


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods over two seeds, made by the program with three workers: the directory, its configuration beside."""
    folder = tmp_path_factory.mktemp("compare")
    arguments = ["--methods", "fedavg,local", "--seeds", "0-1", "--out", "both", "--workers", "3"]
    done = call("compare", config_file(folder), *arguments, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    ends = [line for line in done.stdout.splitlines() if re.match(r"\d/4 runs  ", line)]
    assert [end[0] for end in ends] == ["1", "2", "3", "4"], "it tells how far it is"
    return folder / "both"


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A copy of the finished comparison; the configuration and the data are where they were."""
    return shutil.copytree(made, tmp_path / "both")


def test_the_tables_say_what_the_runs_came_to(made: Path) -> None:
    path = made
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
    names = {"table.md", "table.csv", "table.tex", "runs.csv", "comparison.json"}
    assert {file.name for file in path.iterdir()} == names | {f"{method}-seed{seed}" for method, seed in BOTH}
    shown = f"| local | {float(table['local']['int8']):.2f} ± {float(table['local']['int8 ±']):.2f} |"
    assert shown in (path / "table.md").read_text("utf-8")
    assert r"\begin{tabular}" in (path / "table.tex").read_text("utf-8")


@pytest.mark.parametrize(("method", "seed"), BOTH)
def test_a_run_of_a_comparison_is_the_run_alone(method: str, seed: int, made: Path) -> None:
    assert outcome(made / f"{method}-seed{seed}") == expected(method=method, seed=seed)


def test_the_runs_of_a_comparison_say_by_what_command_they_were_made(made: Path) -> None:
    records, problems = find_records(made)
    assert problems == []
    assert [(record.method, record.seed) for record in records] == BOTH
    for record in records:
        (session,) = record.sessions
        assert session["command"].startswith("prowd compare ")
        assert session["command"].endswith(" --methods fedavg,local --seeds 0-1 --out both --workers 3")


def test_called_again_it_repeats_nothing(made: Path, copy: Path) -> None:
    before = {name: files(copy / name) for name in (f"{method}-seed{seed}" for method, seed in BOTH)}
    source = made.parent / "tiny.toml"
    done = ask("compare", source, "--methods", "local,fedavg", "--seeds", "1,0", "--out", copy, cwd=copy)
    assert done.returncode == 0, done.stdout
    assert "4 already made" in done.stdout
    assert not re.search(r"\d/4 runs", done.stdout)
    assert {name: files(copy / name) for name in before} == before
    assert sorted(read_csv(copy / "runs.csv"), key=str) == sorted(read_csv(made / "runs.csv"), key=str)


def test_methods_and_seeds_can_be_added_later(made: Path, copy: Path) -> None:
    before = {path.name: files(path) for path in copy.iterdir() if path.is_dir()}
    source = made.parent / "tiny.toml"
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


def test_a_file_suggests_methods_and_seeds(made: Path, copy: Path, tmp_path: Path) -> None:
    suggested = {"methods": ["local"], "seeds": [1]}
    source = config_file(tmp_path, data=str(made.parent / "tiny.npz"), compare=suggested)
    for arguments, wanted in (
        ([], [("local", "1")]),
        (["--methods", "fedavg"], [("fedavg", "1")]),
        (["--seeds", "0,1"], [("local", "0"), ("local", "1")]),
    ):
        done = ask("compare", source, *arguments, "--out", copy, cwd=tmp_path)
        assert done.returncode == 0, done.stdout
        assert [(line["method"], line["seed"]) for line in read_csv(copy / "runs.csv")] == wanted


def test_other_settings_in_the_same_place_are_refused(made: Path, copy: Path) -> None:
    before = files(copy)
    done = ask("compare", made.parent / "tiny.toml", "--methods", "fedavg", "-s", "rounds=4", "--out", copy, cwd=copy)
    assert done.returncode == 1
    assert "rounds = 3, now it is 4" in done.stderr
    assert files(copy) == before


def test_settings_that_the_help_shows_are_accepted(tmp_path: Path) -> None:
    done = ask("compare", "--help", cwd=tmp_path)
    settings = re.findall(r"-s\s+([a-z]\S*=\S+)", done.stdout)
    assert len(settings) >= 3
    for setting in settings:
        make_plan("quick", read_pairs([setting]), ["fedavg", "prowd"], [0])


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["qiuck"], 1, "'quick'"),
        (["--methods", "nope"], 1, "'nope'"),
        (["--methods", "fedavg,,prowd"], 1, "method: ''"),
        (["--methods", "fedavg,fedavg"], 1, "methods: fedavg"),
        (["--seeds", "1,0-2"], 1, "seeds: 1"),
        (["-s", "seed=1"], 1, "--seeds"),
        (["-s", "method=prowd"], 1, "--methods"),
        (["--seeds", "3-1"], 2, "--seeds"),
        (["--seeds", f"0-{10**30}"], 2, "--seeds"),
        (["-s", "rounds"], 2, "'rounds'"),
    ],
)
def test_bad_arguments_are_one_line_and_leave_nothing(
    arguments: list[str], code: int, named: str, tmp_path: Path
) -> None:
    done = ask("compare", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = (line for line in done.stderr.splitlines() if line.lower().startswith("error: "))
    assert named in line
    assert list(tmp_path.iterdir()) == []
