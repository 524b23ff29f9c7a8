"""The page as a file: it needs nothing else, nobody's words become markup, and it says what the runs say."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from prowd.views.report import make_report

from .directories import SESSION, absent, keep_clients, line, lines, spread, write, write_plan

HOSTILE = """</script><script src="//evil.example/x.js"></script>"'><img src=http://evil.example onerror=alert(1)>"""
HTML = """
    a body button caption code details div figcaption figure footer h1 h2 h3 head header html li link main meta nav p
    pre script section span style summary table tbody td tfoot th thead title tr ul
"""
SVG = "svg clippath defs g image path pattern rect text tspan use"


class Page(HTMLParser):
    """Everything that a browser would find: tags with their attributes, and texts with the tag that they are in."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.within = ""
        self.feed(path.read_text("utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self.within = "data" if tag == "script" and ("type", "application/json") in attrs else tag

    def handle_endtag(self, tag: str) -> None:
        self.within = ""

    def handle_data(self, data: str) -> None:
        self.texts.append((self.within, data))

    @property
    def attributes(self) -> Iterator[tuple[str, str, str]]:
        """All attributes with their tags."""
        return ((tag, name, value) for tag, found in self.tags for name, value in found.items())

    @property
    def ids(self) -> list[str]:
        """All names that can be referred to."""
        return [value for _, name, value in self.attributes if name == "id"]

    @property
    def text(self) -> str:
        """All that can be read, in one line, styles and scripts left out."""
        return " ".join(" ".join(data for tag, data in self.texts if tag not in ("style", "script", "data")).split())


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of two federations; one is all hostile words, and both have every kind of figure with several panels."""
    folder = tmp_path_factory.mktemp("pages")
    odd = folder / 'a <b>&amp; "run"'
    write(
        odd / f"1 {HOSTILE.replace('/', '∕')[:40]}",
        [line(1, {"int8": 0.5, "float32": 0.6}, lost=[absent(1, reason=HOSTILE)], refused=[absent(0, HOSTILE)])],
        name=HOSTILE, method=HOSTILE, partition=HOSTILE, rounds=2, finished=False,
        sessions=[{**SESSION, "command": HOSTILE, "commit": HOSTILE, "machine": {HOSTILE: HOSTILE}}],
    )  # fmt: skip
    path = write(odd / "2", lines(0.2), name=HOSTILE, method="$x_{日本", partition=HOSTILE, rounds=2, finished=False)
    write_plan(odd, HOSTILE, {HOSTILE: HOSTILE})
    (odd / "3").mkdir()
    (odd / "3" / "config.toml").write_text(HOSTILE)
    other = write(folder / "other", lines(0.3, 0.4), name="plain")
    for run in (path, other):
        keep_clients(run, 1, {c: ("int8", {"conv": spread(c)}) for c in (0, 1)})
    return Page(make_report([odd, other], folder / "report", files=False).page)


def test_no_tag_but_those_of_the_page(page: Page) -> None:
    counts = Counter(tag for tag, _ in page.tags)
    assert set(counts) <= {*HTML.split(), *SVG.split()}
    assert (counts["style"], counts["link"]) == (1, 1)
    kinds = [attributes.get("type", "") for tag, attributes in page.tags if tag == "script"]
    assert kinds == ["application/json"] * (counts["script"] - 1) + [""], "one script, and before it what it shows"
    assert counts["script"] == 3
    assert counts["svg"] > 5


def test_nothing_is_loaded_from_elsewhere(page: Page) -> None:
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("src", "srcset", "action", "background", "data", "poster"), (tag, name)
        if name in ("href", "xlink:href"):
            assert value.startswith(("#", "data:")), (tag, value)
        if tag not in ("th", "td", "meta") and not name.startswith(("xmlns", "aria-label")):
            assert not re.search(r"https?:|(?<!:)//", value) or value.startswith("data:"), (tag, name, value)
    for kind, data in page.texts:
        if kind in ("style", "script"):
            code = re.sub(r"(?s:/\*.*?\*/)|//.*", "", data) if kind == "script" else data
            assert len(code) > len(data) / 2
            assert not re.search(r"https?:|//|@import|url\((?!#)", code)


def test_a_browser_runs_the_page_s_script_and_no_other(page: Page) -> None:
    (policy,) = (found["content"] for tag, found in page.tags if found.get("http-equiv") == "Content-Security-Policy")
    (script,) = (data for kind, data in page.texts if kind == "script")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.split("; ")[:2] == ["default-src 'none'", f"script-src 'sha256-{digest}'"]
    assert set(policy.split()) & {"*", "http:", "https:", "file:", "'unsafe-eval'"} == set()


def test_the_lines_of_a_hostile_name_are_data(page: Page) -> None:
    found = [json.loads(data) for kind, data in page.texts if kind == "data"]
    names = {line["name"] for panels in found for panel in panels for line in panel["lines"]}
    assert HOSTILE.rpartition(":")[2] in names
    assert "$x_{日本" in names


def test_hostile_words_are_read_as_they_are(page: Page) -> None:
    shown = page.text
    assert shown.count(HOSTILE) >= 6, "name, partition, reason, machine, command, failure"
    assert f" failed: {HOSTILE}" in shown
    assert 'a <b>&amp; "run"/3/config.toml cannot be read' in shown
    assert "$x_{日本" in shown


def test_every_name_is_there_once_and_every_reference_leads_somewhere(page: Page) -> None:
    assert [name for name, count in Counter(page.ids).items() if count > 1] == []
    wanted: set[str] = set()
    for _, name, value in page.attributes:
        wanted |= set(re.findall(r"url\(#([^)]*)\)", value))
        if name in ("href", "xlink:href") and value.startswith("#"):
            wanted.add(value[1:])
        if name in ("aria-labelledby", "aria-describedby", "for", "aria-controls"):
            wanted |= set(value.split())
    assert wanted - set(page.ids) == set()
    assert sum(name.startswith("f0-") for name in page.ids) > 3
    assert {"g1", "g2"} <= wanted


def test_what_is_left_out_or_incomplete_is_said(page: Page) -> None:
    assert "Left out or incomplete" in page.text
    assert page.text.count("1 of 2 rounds are made") == 2
