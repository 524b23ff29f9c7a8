"""What is compiled travels with the source distribution, and a change of it compiles anew."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import setuptools  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """The files that setup.py compiles or includes."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", lambda **given: found.update(given))
    monkeypatch.chdir(ROOT)
    runpy.run_path(str(ROOT / "setup.py"))
    return {Path(path) for one in found["ext_modules"] for path in (*one.sources, *one.depends)}


def test_everything_that_is_compiled_is_there_and_in_the_source_distribution(compiled: set[Path]) -> None:
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf-8")
    grafted = {line.split()[1] for line in manifest.splitlines() if line.startswith("graft ")}
    assert {path.parts[0] for path in compiled} == {"src", "embedded"}
    assert {path.parts[0] for path in compiled} <= grafted
    assert all((ROOT / path).is_file() for path in compiled)
    assert all((ROOT / folder).is_dir() for folder in grafted)


def test_make_compiles_anew_what_has_changed(compiled: set[Path]) -> None:
    (wildcards,) = re.findall(r"^NATIVE := .*\$\(wildcard (.*)\)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    watched = {path.relative_to(ROOT) for pattern in wildcards.split() for path in ROOT.glob(pattern)}
    assert compiled <= watched


def test_everything_says_the_same_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE) == [version]
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)[0] == version


def test_the_extra_all_has_every_extra_that_users_choose_from() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    named = set(re.findall(r"[a-z]+", everything.partition("[")[2]))
    assert named == {*extras} - {"all", "dev", "docs", "fuzz"}
