"""The report's page in a real browser: it is whole, it shows everything, to everyone, on every screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse
from xml.etree import ElementTree

import pytest
from PIL import Image
from selenium.webdriver.common.keys import Keys

from prowd.views.report import Report, make_report
from tests.runs import wait_until

from .looking import Browser
from .written import write_run

HEADLINE = 0
COLUMNS = ["method", "seeds", "int8", "float32", "gap", "average", "against fedavg", "as received"]


# What it loads, and what it is made of


def test_the_page_loads_nothing_else_and_says_nothing(browser: Browser, page: Path) -> None:
    browser.show(page)
    assert {address for address in browser.requests() if not address.startswith("data:")} == {page.as_uri()}
    assert browser.messages() == []
    assert browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name);") == []


def test_the_page_has_a_language_a_title_and_landmarks(browser: Browser, page: Path) -> None:
    browser.show(page)
    assert browser.run("return [document.documentElement.lang, document.title, document.compatMode];") == [
        "en",
        browser.all("h1")[0].text,
        "CSS1Compat",
    ]
    assert [len(browser.all(tag)) for tag in ("h1", "main", "body > header", "body > footer")] == [1, 1, 1, 1]
    parts = "header, nav, main, footer, script, .skip"
    assert browser.run("return [...document.body.children].filter((one) => !one.matches(arguments[0]));", parts) == []


# Figures


def test_every_figure_shows(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    figures = [figure for figure in browser.figures() if not figure["is_twin"]]
    assert len(figures) == 3, "of weights"
    assert len(browser.all(".plot canvas")) == 2 * 3 + 2 * 1, "and lines, of two widths and of one"
    assert len(browser.all("figure")) == 3 + 2 + 2
    for figure in figures:
        check(figure)
    for colour in range(4):
        assert sum(count > 5 for count in browser.painted(browser.colour_of(f"c{colour}"))) >= 6


def test_on_paper_and_without_scripts_lines_are_figures(browser: Browser, comparison: Path) -> None:
    browser.show(comparison, dark=True, media="print")
    figures = browser.figures()
    assert len(figures) == len(browser.all("figure")) == 5 + 2, "with and without weights"
    for figure in figures:
        check(figure)
    assert browser.run("return [...document.querySelectorAll('.live')].some(shown);") is False
    assert browser.run("return style(document.body).color;") == "rgb(31, 35, 40)", "ink on paper, whatever the theme"
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.show(comparison)
        assert [one.is_displayed() for one in browser.all("figure svg")] == [True] * 7
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_without_figures_for_paper_the_charts_are_printed_in_light_colours(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prowd.views.report.page.LIMIT", 0)
    page = make_report([write_run(tmp_path / "run")], tmp_path / "report", files=False).page
    browser.show(page)
    light = browser.colour_of("c0")
    browser.show(page, dark=True)
    assert browser.all("figure svg") == []
    browser.prefer(dark=True, media="print")
    wait_until(lambda: min(browser.painted(light)) > 5, "charts are in light colours")
    assert all(one.is_displayed() for one in browser.all("canvas"))


def check(figure: dict[str, Any]) -> None:
    """See that a figure is there and that none of its panels is empty."""
    assert figure["is_shown"], figure
    assert figure["width"] > 300, figure
    assert figure["height"] > 120, figure
    assert figure["panels"], figure
    assert all(figure["panels"]), f"a panel is empty: {figure}"
    assert len([text for text in figure["texts"] if text.strip()]) > 3, figure


def test_every_figure_has_a_name_that_is_its_caption(browser: Browser, comparison: Path) -> None:
    browser.show(comparison, media="print")
    for image, figure in zip(browser.all("svg"), browser.figures(), strict=True):
        assert image.aria_role in ("img", "image")
        assert len(image.accessible_name) > 40
        assert image.accessible_name in figure["caption"]


def test_every_link_of_a_figure_leads_to_a_sound_file(browser: Browser, hostile: Report) -> None:
    browser.show(hostile.page)
    addresses = [link.get_attribute("href") or "" for link in browser.all("figcaption a")]
    paths = [Path(unquote(urlparse(address).path)) for address in addresses]
    assert sorted(paths) == sorted(hostile.files)
    assert len(paths) == 3 * len(browser.all("figure")) == 3 * 2
    for path in paths:
        if path.suffix == ".png":
            with Image.open(path) as image:
                image.load()
                assert min(image.size) > 200
        elif path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
        else:
            assert path.read_bytes()[:5] == b"%PDF-"
            assert path.read_bytes().rstrip().endswith(b"%%EOF")


# Tables


def test_a_click_sorts_numbers_as_numbers(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    assert browser.headings(HEADLINE)[:8] == COLUMNS
    at = COLUMNS.index("average")
    heading = browser.all("table")[HEADLINE].find_elements("css selector", "thead th")[at]
    first = browser.column(HEADLINE, 0)
    assert first == ["local", "fedavg", "fedpaq", "prowd"]
    orders = []
    for _ in range(4):
        heading.find_element("css selector", "button").click()
        values = [text.partition(" ")[0] for text in browser.column(HEADLINE, at)]
        orders.append((heading.get_attribute("aria-sort"), values, browser.column(HEADLINE, 0)))
    rising, falling = ["5.00", "9.99", "10.01", "85.00"], ["85.00", "10.01", "9.99", "5.00"]
    assert orders[0] == ("ascending", rising, ["fedpaq", "fedavg", "local", "prowd"])
    assert orders[1] == ("descending", falling, ["prowd", "local", "fedavg", "fedpaq"])
    assert orders[2] == (None, ["10.01", "9.99", "5.00", "85.00"], first), "as it was"
    assert orders[3] == orders[0]


def test_signed_numbers_sort_by_their_sign_and_what_is_missing_comes_last(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    at = COLUMNS.index("against fedavg")
    button = browser.all("table")[HEADLINE].find_elements("css selector", "thead button")[at]
    for expected in (["-4.99", "+0.02", "+75.01", "–"], ["+75.01", "+0.02", "-4.99", "–"]):
        button.click()
        assert [text.partition(" ")[0] for text in browser.column(HEADLINE, at)] == expected


# The keyboard


def test_the_first_tab_offers_to_skip_to_the_results(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    assert browser.run("return document.querySelector('.skip').getBoundingClientRect().right;") < 0
    browser.press(Keys.TAB)
    where = "const box = document.activeElement.getBoundingClientRect(); return [box.left, box.top, box.right];"
    left, top, right = browser.run(where)
    assert browser.driver.switch_to.active_element.text == "Skip to the results"
    assert (left >= 0, top >= 0, right <= 1280) == (True, True, True)
    browser.press(Keys.ENTER)
    assert browser.driver.switch_to.active_element.get_attribute("id") == "content"
    browser.press(Keys.TAB)
    assert browser.run("return document.activeElement.closest('main, nav').localName;") == "main", "past the links"


@pytest.mark.parametrize("phone", [False, True])
def test_tab_stops_at_everything_that_can_be_used_and_nowhere_else(browser: Browser, begun: Path, phone: bool) -> None:
    browser.show(begun, phone=phone)
    browser.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]));")
    usable = browser.run("""return [...document.querySelectorAll("a, button, summary, .scroll, pre")].filter(
        (one) => shown(one) && (!one.matches(".scroll, pre") || one.scrollWidth > one.clientWidth));""")
    scrolled = [one for one in usable if one.get_attribute("class") == "scroll"]
    assert scrolled, "a table of commands is wider than any screen"
    for expected in usable:
        browser.press(Keys.TAB)
        assert browser.driver.switch_to.active_element == expected
