"""prowd report: from run directories to a page, figures and tables, and how it answers where there are none."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runs import ask, config_file, environment, summary
from tests.unit.views.report.directories import lines, write, write_plan

WHEN = "no round is finished yet"


def begun(path: Path, **settings: Any) -> Path:
    """A run without a round: its page has no figures, and takes moments."""
    return write(path, [], rounds=3, finished=False, **settings)


# A real run


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of ProWD with its closing page, and what was printed; then its page as ``prowd report`` makes it."""
    folder = tmp_path_factory.mktemp("real")
    source = config_file(folder, method="prowd", options={"dequantizer": {"module": 4}})
    arguments = ["-s", "rounds=2", "-s", "steps=2", "--out", "my run", "--workers", "1", "--report"]
    ran = ask("run", source, *arguments, cwd=folder)
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "report: my run/report/index.html")
    done = ask("report", "my run", "--page-only", "--out", "again", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder, done.stdout


def test_a_real_run_has_all_figures(real: tuple[Path, str]) -> None:
    page = (real[0] / "again" / "index.html").read_text("utf-8")
    assert page.count("<figure>") == page.count("<svg ") == 7


def test_a_run_ends_with_the_same_page(real: tuple[Path, str]) -> None:
    closing, again = ((real[0] / name / "index.html").read_text("utf-8") for name in ("my run/report", "again"))
    assert closing.partition("<footer>")[0] == again.partition("<footer>")[0]


def test_the_page_says_what_the_summary_says(real: tuple[Path, str]) -> None:
    folder, printed = real
    page = (folder / "again" / "index.html").read_text("utf-8")
    found = summary(folder / "my run")
    average = f"{100 * found['average_accuracy']['trained']:.2f}"
    assert f"{average} %" in printed
    assert f"{average} %" in page
    for width in ("int8", "float32"):
        assert f">{100 * found['accuracy']['trained'][width]:.2f}</td>" in page
    up = sum(found["bytes"]["up"].values()) / 2
    assert f"{up / 1000:,.1f} kB" in page


# Where it goes


def test_of_several_folders_it_goes_here_and_shows_them_all(tmp_path: Path) -> None:
    begun(tmp_path / "a", name="first")
    begun(tmp_path / "b" / "c", name="second", steps=3)
    begun(tmp_path / "b" / "d", name="second", steps=3, method="local")
    done = ask("report", "a", "b", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "report: report/index.html"
    page = (tmp_path / "report" / "index.html").read_text("utf-8")
    assert "3 runs" in page
    assert "first, second" in page


def test_figures_as_files_or_the_page_alone(tmp_path: Path) -> None:
    write(tmp_path / "a", lines(0.5, clients="int8:1"), clients="int8:1")
    done = ask("report", "a", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "report: a/report/index.html"
    found = sorted(path.name for path in (tmp_path / "a" / "report" / "figures").iterdir())
    assert found == sorted(
        f"{name}.{kind}" for name in ("accuracy-rounds", "accuracy-megabytes") for kind in ("png", "svg", "pdf")
    )
    done = ask("report", "a", "--out", "there/it is", "--page-only", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in (tmp_path / "there" / "it is").iterdir()] == ["index.html"]


def test_what_is_left_out_is_said_here_too(tmp_path: Path) -> None:
    begun(tmp_path / "all" / "a")
    begun(tmp_path / "all" / "b")
    (tmp_path / "all" / "c").mkdir()
    (tmp_path / "all" / "c" / "config.toml").write_text("rounds = ")
    write_plan(tmp_path / "all", "fedavg", {"d": "[red]no memory[/red]"})
    done = ask("report", "all", cwd=tmp_path)
    assert done.returncode == 0
    shown = done.stdout.splitlines()
    assert [line.partition(" ")[0] for line in shown[:3]] == ["all/c/config.toml", "all/d", "all/b"]
    assert "[red]no memory[/red]" in shown[1]


# Errors


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nowhere"], "nowhere"),
        (["run", "empty"], "empty"),
        (["broken"], "broken/config.toml"),
        (["run", "--out", "file"], "file"),
        (["x" * 3000], "xxx"),
    ],
)
def test_errors_are_one_line_without_traceback(arguments: list[str], expected: str, tmp_path: Path) -> None:
    begun(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    begun(tmp_path / "broken")
    (tmp_path / "broken" / "config.toml").write_bytes(b"\x80")
    done = ask("report", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_without_the_extra_it_is_said_how_to_get_it(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("prowd.cli.report.find_spec", lambda name: None if name == missing else find(name))
    done = ask("report", begun(tmp_path / "a"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert missing in done.stderr
    assert "pip install '.[report]'" in done.stderr
    assert not (tmp_path / "a" / "report").exists()


# What it costs those who do not ask for it

PROGRAM = """
import sys
from click.testing import CliRunner
from prowd.cli import main
for command in ([], ["run"], ["compare"], ["report"]):
    assert CliRunner().invoke(main, [*command, "--help"]).exit_code == 0
import prowd
prowd.run, prowd.compare
print([name for name in sys.modules if name.partition(".")[0] == "matplotlib"])
"""


def test_the_plotting_library_waits_until_it_is_needed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
