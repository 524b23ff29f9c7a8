"""The report's page in a real browser: it is whole, it shows everything, to everyone, on every screen."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from urllib.parse import unquote, urlparse
from xml.etree import ElementTree

import pytest
from PIL import Image
from selenium.webdriver.common.keys import Keys

from prowd.views.report import Report

from .conftest import HOSTILE, MARKUP, WORD
from .looking import Browser, contrast

HEADLINE = 0
COLUMNS = ["method", "seeds", "int8", "float32", "gap", "average", "against fedavg", "as received"]


@pytest.fixture(params=["comparison", "hostile", "begun"])
def page(request: pytest.FixtureRequest) -> Path:
    made = request.getfixturevalue(request.param)
    return made.page if isinstance(made, Report) else made


@pytest.fixture(params=["light", "dark"])
def dark(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "dark")


# What it loads, and what it is made of


def test_the_page_loads_nothing_else_and_says_nothing(browser: Browser, page: Path) -> None:
    browser.show(page)
    assert {address for address in browser.requests() if not address.startswith("data:")} == {page.as_uri()}
    assert browser.messages() == []
    assert browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name);") == []


def test_a_message_and_a_request_would_have_been_seen(browser: Browser, begun: Path) -> None:
    browser.show(begun)
    script = "const image = new Image(); image.onerror = () => arguments[0](); image.src = 'there.png';"
    browser.driver.execute_async_script(f"console.info('here'); {script}")
    assert any("here" in message for message in browser.messages())
    assert any(address.endswith("there.png") for address in browser.requests())


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


def test_headings_go_down_one_step_at_a_time(browser: Browser, page: Path) -> None:
    browser.show(page)
    levels = [int(heading.tag_name[1]) for heading in browser.all("h1, h2, h3, h4, h5, h6")]
    assert levels[0] == 1
    assert all(level <= before + 1 for before, level in itertools.pairwise(levels)), levels


def test_ids_are_unique_and_what_refers_to_them_finds_them(browser: Browser, page: Path) -> None:
    browser.show(page)
    ids = browser.run("return [...document.querySelectorAll('[id]')].map((one) => one.id);")
    assert len(ids) == len(set(ids))
    script = """return [...document.querySelectorAll('*')].flatMap((one) => [
        ...(one.getAttribute('aria-labelledby') ?? '').split(' '),
        ...['href', 'xlink:href'].map((name) => one.getAttribute(name) ?? '').filter((to) => to.startsWith('#'))
            .map((to) => to.slice(1)),
        ...[...(one.getAttribute('clip-path') ?? '').matchAll(/url\\(#(.*)\\)/g)].map((found) => found[1]),
    ]).filter(Boolean);"""
    assert set(browser.run(script)) <= set(ids)


def test_links_lead_to_each_federation(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    links = browser.all("nav a")
    assert [link.text for link in links] == ["quick", "other"]
    links[1].click()
    browser.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]));")
    assert browser.run("return document.querySelector(':target h2').innerText;") == "other"
    top = browser.run("return document.querySelector(':target').getBoundingClientRect().top;")
    assert abs(top) < 100


# Figures


def test_every_figure_shows(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    figures = browser.figures()
    assert len(figures) == len(browser.all("figure")) == 9 + 5, "with and without weights and missing clients"
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


def test_accuracy_is_shown_against_rounds_and_megabytes(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    axes = [text for figure in browser.figures() for text in figure["texts"]]
    assert {"round", "MB sent, up and down"} <= set(axes)


def test_a_table_shows_lost_and_refused_clients(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    (table,) = [
        number for number in range(len(browser.all("table"))) if browser.headings(number)[-2:] == ["what", "reason"]
    ]
    rows = list(zip(*(browser.column(table, column) for column in range(1, 6)), strict=True))
    assert ("3", "2", "float32", "refused, attempt 2", "codes outside the width") in rows
    assert ("2", "0", "int8", "lost", "no answer within 60 s") in rows
    assert len(rows) == 4


def test_every_link_of_a_figure_leads_to_a_sound_file(browser: Browser, hostile: Report) -> None:
    browser.show(hostile.page)
    addresses = [link.get_attribute("href") or "" for link in browser.all("figcaption a")]
    paths = [Path(unquote(urlparse(address).path)) for address in addresses]
    assert sorted(paths) == sorted(hostile.files)
    assert len(paths) == 3 * len(browser.all("figure")) == 3 * 6
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


def test_only_the_column_that_is_sorted_says_so(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    buttons = browser.all("table")[HEADLINE].find_elements("css selector", "thead button")
    for button in buttons[:3]:
        button.click()
        (sorted_by,) = browser.all("th[aria-sort]")
        assert sorted_by == button.find_element("xpath", "..")
        assert "↑" in browser.run("return style(arguments[0].querySelector('span'), '::after').content;", button)


def test_every_column_of_every_table_sorts_and_loses_no_row(browser: Browser, page: Path) -> None:
    browser.show(page)
    script = """return [...document.querySelectorAll("table")].flatMap((table) => {
        const rows = () => [...table.tBodies[0].rows];
        const before = rows();
        return [...table.querySelectorAll("thead button")].map((button) => {
            const counts = [1, 2].map(() => { button.click(); return new Set(rows()).size; });
            button.click();
            return counts.every((count) => count === before.length) && rows().every((row, at) => row === before[at]);
        });
    });"""
    found = browser.run(script)
    assert len(found) > 5
    assert all(found)


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


def test_the_keyboard_sorts(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    for _ in range(20):
        browser.press(Keys.TAB)
        if browser.driver.switch_to.active_element.text.startswith("average"):
            break
    outline = browser.run("const {outlineStyle, outlineWidth} = style(document.activeElement); "
                          "return [outlineStyle, parseFloat(outlineWidth)];")  # fmt: skip
    assert outline == ["solid", 3], "one sees where one is"
    for key, order in ((Keys.ENTER, "ascending"), (Keys.SPACE, "descending")):
        browser.press(key)
        assert browser.run("return document.activeElement.closest('th').getAttribute('aria-sort');") == order
    assert browser.column(HEADLINE, 0) == ["prowd", "local", "fedavg", "fedpaq"]


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


def test_enter_opens_a_configuration(browser: Browser, begun: Path) -> None:
    browser.show(begun)
    (details,) = browser.all("details")
    browser.run("document.querySelector('summary').focus();")
    browser.press(Keys.ENTER)
    assert details.get_attribute("open") is not None
    assert 'clients = "int8:2, float32:2"' in details.text


# Light and dark


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


def test_figures_are_as_dark_as_the_page(browser: Browser, comparison: Path) -> None:
    seen = []
    for dark in (False, True):
        browser.show(comparison, dark=dark)
        axes = {text["colour"] for text in browser.texts() if text["drawn"]}
        assert axes == {browser.colour_of("ink")}
        seen.append((browser.run("return style(document.body).backgroundColor;"), axes, browser.drawn_colours()))
    (light, ink, lines), (night, chalk, glow) = seen
    assert contrast(light, night) > 12
    assert not ink & chalk
    assert not lines & glow, "every colour has a twin for the dark"


def test_figures_have_no_colour_of_their_own(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    script = """return [...document.querySelectorAll("svg *")].flatMap((one) =>
        ["style", "fill", "stroke", "color"].map((name) => one.getAttribute(name) ?? "")).filter(Boolean);"""
    written = set(browser.run(script))
    assert any("var(--ink)" in text for text in written)
    assert [text for text in written if re.search(r"#[0-9a-f]{3}|rgb|hsl|white|black|gr[ae]y", text)] == []
    assert browser.all("svg style") == [], "nor rules that would hold for the whole page"


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


def test_a_phone_keeps_names_and_captions_in_sight(browser: Browser, comparison: Path) -> None:
    browser.show(comparison, phone=True)
    script = """const place = document.querySelector(".scroll");
        place.scrollLeft = 300;
        return [...place.querySelectorAll("caption span, tbody th")].map((one) => one.getBoundingClientRect()).map(
            (box) => [box.left, box.right]);"""
    boxes = browser.run(script)
    assert len(boxes) == 1 + 4
    assert all(left >= 0 and right <= 360 for left, right in boxes), boxes


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


def test_an_unfinished_run_says_so(browser: Browser, hostile: Report) -> None:
    browser.show(hostile.page)
    (warning,) = browser.all(".warning")
    assert "2 of 5 rounds are made" in warning.text
    assert browser.all(".verdict")[0].text.endswith("(so far: round 2).")
    assert len(browser.figures()) == 6
    assert all(panel for figure in browser.figures() for panel in figure["panels"])


def test_a_run_without_a_round_has_a_page_too(browser: Browser, begun: Path) -> None:
    browser.show(begun)
    assert "no round is finished yet" in browser.all(".warning")[0].text
    assert browser.all(".verdict")[0].text == "No accuracy has been measured yet."
    assert browser.all("figure") == []
    assert browser.run("return [...document.querySelectorAll('tbody')].every((body) => body.rows.length);")
    assert [heading.text for heading in browser.all("h3")][-2:] == ["Configuration", "Provenance"]
