"""The documentation as a site: it builds without a warning, links are sound, and it loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r'<(?:script|img|iframe)\b[^>]*\bsrc="([^"]+)"|<link\b[^>]*\bhref="([^"]+)"|url\(([^)]+)\)')
BUILDING = 900.0  # seconds; five of them are work


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(out)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=BUILDING,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return out


def test_every_page_opens_from_disk_and_loads_nothing_from_elsewhere(site: Path) -> None:
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(files) > 40
    loaded = {(file, "".join(found)) for file in files for found in LOADED.findall(file.read_text("utf-8"))}
    assert len(loaded) > 100
    for file, target in loaded:
        path = target.strip("'\"").partition("?")[0].partition("#")[0]
        if not path.startswith("data:") and path:
            assert "//" not in path, (file, target)
            assert file.name == "404.html" or (file.parent / path).is_file(), (file, target)


def test_the_reference_has_every_docstring_and_the_tour_its_pictures(site: Path) -> None:
    reference = (site / "api.html").read_text("utf-8")
    for name in ("prowd.run", "prowd.Comparison.runs", "prowd.common.local_round", "prowd.FedProx"):
        assert f'id="{name}"' in reference, name
    assert "Run a federation, or continue one" in reference
    assert (site / "examples/tour.html").read_text("utf-8").count("<img") == 5


def test_a_bar_in_the_code_of_a_table_is_a_bar(site: Path) -> None:
    settings = (site / "configuration.html").read_text("utf-8").replace("&quot;", '"')
    assert '<code>kind = "conv" | "linear" | ' in settings
    pages = [page for page in site.rglob("*.html") if "source" not in page.parts]
    assert [page.name for page in pages if re.search(r"<td>[^<]*<code>[^<]*\\\|", page.read_text("utf-8"))] == []


def test_headings_are_named_as_on_a_forge(site: Path) -> None:
    assert 'id="what-no-single-device-may-do"' in (site / "configuration.html").read_text("utf-8")
    assert 'href="configuration.html#what-no-single-device-may-do"' in (site / "SECURITY.html").read_text("utf-8")
