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
        shown(one) && !one.closest(".skip, nav > *, .scroll > *, pre") && one.getBoundingClientRect().right > 360
    ).map((one) => one.outerHTML.slice(0, 200));"""
    assert browser.run(script) == []
    wide = browser.run(
        "return [...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > 360).length;"
    )
    assert wide > 0, "what is wide scrolls in its own place"


def test_texts_of_a_phone_are_not_small(browser: Browser, page: Path) -> None:
    browser.show(page, phone=True)
    assert [text for text in browser.texts() if text["size"] < 11.99] == []


@pytest.mark.parametrize("width", [400, 1300, 2000])
def test_no_screen_scrolls_sideways(browser: Browser, page: Path, width: int) -> None:
    browser.show(page, width=width)
    assert browser.run("return innerWidth;") == width
    assert not browser.scrolls_sideways()


@pytest.mark.parametrize(("width", "columns", "beside"), [(400, 1, False), (1300, 3, True), (2000, 6, True)])
def test_wide_screens_are_used(browser: Browser, comparison: Path, width: int, columns: int, beside: bool) -> None:
    browser.show(comparison, width=width)
    boxes = browser.run("""return [...document.querySelectorAll("#g1 canvas")].map(
        (one) => { const { left, width } = one.getBoundingClientRect(); return { left, width }; });""")
    assert len(boxes) == 6, "two widths and their mean, against rounds and against megabytes"
    assert len({box["left"] for box in boxes}) == columns
    assert sum(box["width"] for box in boxes[:columns]) > 0.7 * (width - 200 * beside)
    contents, main = (browser.all(selector)[0].rect for selector in ("nav", "main"))
    assert (contents["x"] + contents["width"] <= main["x"]) == beside, "the contents are a column of their own"
    cards = browser.run("""return [...document.querySelectorAll("#g1 .chapter")].map(
        (one) => one.getBoundingClientRect().top);""")
    assert (len(set(cards)) < len(cards)) == beside, "small tables are side by side"


# Odd runs


def test_hostile_words_are_shown_as_they_are(browser: Browser, hostile: Report) -> None:
    browser.show(hostile.page)
    kinds = browser.run("return [...document.scripts].map((script) => script.type);")
    assert kinds == ["application/json", ""], "lines, and one script"
    assert browser.all("img, b, object, iframe, svg script, svg foreignObject") == []
    shown = browser.run("return document.querySelector('main').textContent;")
    assert shown.count(HOSTILE) >= 5, "title, partition, reason, setting, version, machine and command"
    assert browser.all("h1")[0].text.startswith(f"prowd: {MARKUP}")
    assert WORD in browser.all("h1")[0].text.replace("\n", "")
    buttons = [key.text for key in browser.all(".key")]
    assert any(MARKUP[:40] in text for text in buttons), f"and where lines are switched off: {buttons}"
    drawn = {text for figure in browser.figures() for text in figure["texts"]}
    assert any(text.startswith(MARKUP[:40]) for text in drawn), "in figures too"
