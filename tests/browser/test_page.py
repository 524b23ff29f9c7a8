"""The report's page in a real browser: it is whole, it shows everything, to everyone, on every screen."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse
from xml.etree import ElementTree

import pytest
from PIL import Image
from selenium.webdriver.common.keys import Keys

from prowd.views.report import Report

from .looking import Browser

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
    outside = (
        "return [...document.body.children].filter((part) => !part.matches('header, main, footer, script, .skip'));"
    )
    assert browser.run(outside) == []


# Figures


def test_every_figure_shows(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    figures = browser.figures()
    assert len(figures) == len(browser.all("figure")) == 5 + 2, "with and without weights"
    for figure in figures:
        assert figure["is_shown"], figure
        assert figure["width"] > 300, figure
        assert figure["height"] > 120, figure
        assert figure["panels"], figure
        assert all(figure["panels"]), f"a panel is empty: {figure}"
        assert len([text for text in figure["texts"] if text.strip()]) > 3, figure


def test_every_figure_has_a_name_that_is_its_caption(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
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
    assert bool(scrolled) == phone, "there is a table that is wider than a phone"
    for expected in usable:
        browser.press(Keys.TAB)
        assert browser.driver.switch_to.active_element == expected
