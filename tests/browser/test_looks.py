"""How the report's page looks in a real browser: light and dark, on small screens, with hostile words in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from prowd.views.report import Report

from .conftest import HOSTILE, MARKUP, WORD
from .looking import Browser, contrast


@pytest.fixture(params=["light", "dark"])
def dark(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "dark")


def test_every_text_stands_out(browser: Browser, page: Path, dark: bool) -> None:
    browser.show(page, dark=dark)
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; });")
    texts = browser.texts()
    kinds = {text["tag"] for text in texts}
    assert {"h1", "h2", "p", "span", "th", "td", "button", "arrow", "summary", "pre", "code"} <= kinds
    pale = [text for text in texts if contrast(text["colour"], text["back"]) < 4.5]
    assert pale == []


def test_every_series_stands_out(browser: Browser, comparison: Path, dark: bool) -> None:
    browser.show(comparison, dark=dark)
    paper, grid = browser.colour_of("paper"), browser.colour_of("line")
    assert browser.run("return style(document.body).backgroundColor;") == paper
    series = {browser.colour_of(f"c{number}") for number in range(8)}
    assert len(series) == 8
    assert [colour for colour in series if contrast(colour, paper) < 3] == []
    drawn = browser.drawn_colours()
    assert drawn - series - {grid, browser.colour_of("ink")} == set(), "no colour but the page's"
    assert len(drawn & series) >= 4


# Small screens


def test_a_phone_shows_it_all_without_scrolling_sideways(browser: Browser, page: Path) -> None:
    browser.show(page, phone=True)
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; });")
    assert browser.run("return [innerWidth, document.documentElement.scrollWidth];") == [360, 360]
    script = """return [...document.querySelectorAll("body *")].filter((one) =>
        shown(one) && !one.closest(".skip, .scroll > *, pre") && one.getBoundingClientRect().right > 360
    ).map((one) => one.outerHTML.slice(0, 200));"""
    assert browser.run(script) == []
    wide = browser.run(
        "return [...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > 360).length;"
    )
    assert wide > 0, "what is wide scrolls in its own place"


def test_texts_of_a_phone_are_not_small(browser: Browser, page: Path) -> None:
    browser.show(page, phone=True)
    assert [text for text in browser.texts() if text["size"] < 11.99] == []


# Odd runs


def test_hostile_words_are_shown_as_they_are(browser: Browser, hostile: Report) -> None:
    browser.show(hostile.page)
    assert browser.run("return document.scripts.length;") == 1
    assert browser.all("img, b, object, iframe, svg script, svg foreignObject") == []
    shown = browser.run("return document.querySelector('main').textContent;")
    assert shown.count(HOSTILE) >= 5, "title, partition, reason, setting, version, machine and command"
    assert browser.all("h1")[0].text.startswith(f"prowd: {MARKUP}")
    assert WORD in browser.all("h1")[0].text.replace("\n", "")
    drawn = {text for figure in browser.figures() for text in figure["texts"]}
    assert any(text.startswith(MARKUP[:40]) for text in drawn), "in figures too"
