"""A wheel as make dist builds it runs where only its dependencies are installed."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.runs import TIMEOUT, config_file, environment, expected
from tests.wheel.build import ROOT, extensions

pytestmark = pytest.mark.slow
BUILDING = 1800.0  # seconds; half a minute of work, for a machine that does other things


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "tests.wheel.build", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BUILDING, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return source, wheel


@pytest.fixture(scope="module")
def installed(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it, and with the dependencies of this one: PyTorch is large."""
    home = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(home)
    (packages,) = home.glob("lib/python*/site-packages")
    places = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (packages / "dependencies.pth").write_text("\n".join(places), "utf-8")  # not the .pth files in them
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin/python")]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "install", *quiet, str(distributions[1])], env=alone(), timeout=TIMEOUT, check=True)
    return home


def alone() -> dict[str, str]:
    """An environment that does not know of this repository."""
    return {key: value for key, value in environment().items() if not key.startswith("PYTHON")}


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=alone(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_serves_every_python_from_3_11_on(distributions: tuple[Path, Path]) -> None:
    wheel = distributions[1].name
    assert "-cp311-abi3-" in wheel
    assert "_core" in extensions(distributions[1])
    if sys.platform == "linux":
        assert "manylinux" in wheel


def test_the_source_distribution_has_the_c_client_and_the_tests(distributions: tuple[Path, Path]) -> None:
    with tarfile.open(distributions[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"embedded/core/prowd.h", "embedded/core/train.c", "examples/fedavgm.py", "tests/conftest.py", "Makefile"}
    assert wanted <= names
    assert {name for name in names if name.endswith((".so", ".pyc")) or name.startswith((".venv", "runs"))} == set()


def test_the_wheel_has_all_that_a_page_is_made_of(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[1]) as archive:
        names = set(archive.namelist())
    report = ROOT / "src/prowd/views/report"
    files = [path for folder in ("templates", "vendor") for path in (report / folder).rglob("*") if path.is_file()]
    assert {"page.html", "charts.js", "uPlot.iife.min.js", "LICENSE"} <= {path.name for path in files}
    assert {path.relative_to(ROOT / "src").as_posix() for path in files} <= names
    assert any(name.endswith("uplot/LICENSE") for name in names if "dist-info/licenses" in name)


def test_everything_comes_with_the_extra_all(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[1]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    required = metadata.get_all("Requires-Dist") or []
    extras = {"watch", "flower", "report", "tensorboard", "mlflow", "wandb", "onnx"}
    assert {*extras, "all"} <= {*(metadata.get_all("Provides-Extra") or [])}
    (everything,) = (line for line in required if 'extra == "all"' in line)
    assert {name.strip() for name in everything.partition("[")[2].partition("]")[0].split(",")} == extras


def test_it_runs_where_it_is_installed(installed: Path, tmp_path: Path) -> None:
    python, prowd = installed / "bin/python", installed / "bin/prowd"
    assert installed in Path(run(python, "-c", "import prowd; print(prowd.__file__)", cwd=tmp_path).strip()).parents
    run(sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "check", cwd=tmp_path)
    assert "watch" in run(prowd, "presets", cwd=tmp_path)
    path = config_file(tmp_path)
    found = [weights_of(prowd, path, kernel) for kernel in ("c99", "auto")]
    assert found == [expected()["weights"]] * 2
    run(prowd, "embed", path, "--out", "firmware", cwd=tmp_path)
    assert (tmp_path / "firmware/client/client.h").is_file(), "the C sources are in the wheel"


def weights_of(prowd: Path, config: Path, kernel: str) -> str:
    """The hash of what a tiny run comes to; a kernel that is not there is refused."""
    run(prowd, "run", config, "-s", f"kernel={kernel}", "--out", kernel, "--workers", "1", cwd=config.parent)
    return str(json.loads((config.parent / kernel / "summary.json").read_text("utf-8"))["weights_sha256"])
