"""The lines of the page in a real browser: values where one points, methods switched off, themes and sizes."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from prowd.views.report.page import LIMIT
from tests.runs import wait_until

from .looking import Browser

ROUNDS, SEEDS = 5, 3
METHODS = ["local", "fedavg", "fedpaq", "prowd"]
CHARTS = 6  # of the first federation: three against rounds, three against megabytes


def expected(end: float, round_: int) -> str:
    """What a method of the page has at Float32: its mean, and t of two degrees of freedom times s/√3."""
    share = 0.3 + 0.7 * round_ / ROUNDS
    return f"{100 * end * share:.2f} ± {4.302653 * 0.2 * share / math.sqrt(SEEDS):.2f} %"


def tip(browser: Browser) -> str:
    """What is shown beside the mouse, in one line."""
    shown = [one for one in browser.all(".tip") if one.is_displayed()]
    assert len(shown) <= 1
    return " ".join(shown[0].text.split()) if shown else ""


def key(browser: Browser, name: str, figure: int = 0) -> WebElement:
    """The button that switches a method off."""
    (found,) = (one for one in browser.all(".live")[figure].find_elements("css selector", ".key") if one.text == name)
    return found


def float32(browser: Browser, figure: int = 0) -> WebElement:
    """The place of lines of the second panel."""
    return browser.all(".live")[figure].find_elements("css selector", ".u-over")[1]


# Values


@pytest.mark.parametrize(("across", "round_"), [(0.02, 1), (0.48, 3), (0.98, 5)])
def test_pointing_shows_round_value_and_interval_of_every_method(
    browser: Browser, comparison: Path, across: float, round_: int
) -> None:
    browser.show(comparison)
    assert tip(browser) == ""
    browser.point(float32(browser), across)
    shown = tip(browser)
    assert shown.startswith(f"round {round_} prowd {expected(0.875, round_)} local {expected(0.1251, round_)}")
    assert f"fedavg {expected(0.1249, round_)} fedpaq {expected(0.075, round_)}" in shown
    assert shown.endswith("± 95 % interval over the seeds")
    browser.point(browser.all("h1")[0], 0.5)
    assert tip(browser) == ""


def test_against_megabytes_every_method_is_told_with_its_round_and_bytes(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    browser.point(float32(browser, 1), 0.98)
    assert f"fedavg {expected(0.1249, 5)} round 5, 1 MB" in tip(browser), "four clients, 200 kB both ways a round"
    assert re.search(r"local 12\.51 ± \S+ % final", tip(browser)), "which sends nothing"


def test_arrow_keys_read_the_values(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    plot = browser.all(".plot")[1]
    browser.run("arguments[0].focus();", plot)
    assert tip(browser) == ""
    for keys, round_ in (([Keys.ARROW_RIGHT], 1), ([Keys.ARROW_RIGHT], 2), ([Keys.END], 5), ([Keys.ARROW_LEFT], 4)):
        browser.press(*keys)
        assert tip(browser).startswith(f"round {round_} prowd {expected(0.875, round_)}")
    browser.press(Keys.ESCAPE)
    assert tip(browser) == ""
    assert "Arrow keys" in plot.accessible_name


def test_a_drag_zooms_in_and_a_double_click_out(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    over = float32(browser)
    browser.run("arguments[0].scrollIntoView({ block: 'center', behavior: 'instant' });", over)
    wide, high = over.size["width"], over.size["height"]
    actions = browser.actions()
    actions.move_to_element_with_offset(over, -int(0.05 * wide), 0).click_and_hold()
    actions.move_by_offset(int(0.5 * wide), high // 8).release().perform()
    browser.point(over, 0.03)
    assert tip(browser).startswith("round 3")
    browser.actions().double_click(over).perform()
    browser.point(over, 0.03)
    assert tip(browser).startswith("round 1")


# Methods


def test_a_method_is_switched_off_in_every_chart_by_mouse_and_keyboard(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    assert [one.text for one in browser.all(".live")[0].find_elements("css selector", ".key")] == METHODS
    prowd, fedpaq = (browser.colour_of(f"c{METHODS.index(name)}") for name in ("prowd", "fedpaq"))
    before = browser.painted(prowd)[:CHARTS]
    assert min(before) > 50
    key(browser, "prowd").click()
    assert browser.painted(prowd)[:CHARTS] == [0] * CHARTS
    assert min(browser.painted(fedpaq)[:CHARTS]) > 50, "the others stay"
    assert [key(browser, "prowd", figure).get_attribute("aria-pressed") for figure in (0, 1)] == ["false", "false"]
    assert key(browser, "fedpaq").get_attribute("aria-pressed") == "true"
    browser.point(float32(browser), 0.98)
    assert "prowd" not in tip(browser)
    browser.run("arguments[0].focus();", key(browser, "prowd", 1))
    browser.press(Keys.SPACE)
    assert browser.painted(prowd)[:CHARTS] == before
    assert key(browser, "prowd").get_attribute("aria-pressed") == "true"


def test_all_methods_may_be_switched_off(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    every = browser.all(".all")[0]
    assert every.text == "Hide all"
    every.click()
    assert [one.get_attribute("aria-pressed") for one in browser.all(".key")] == ["false"] * len(browser.all(".key"))
    browser.point(float32(browser), 0.5)
    assert browser.messages() == []
    assert sum(sum(browser.painted(browser.colour_of(f"c{n}"))[:CHARTS]) for n in range(4)) == 0
    key(browser, "prowd").click()
    assert every.text == "Hide all", "what is left"
    key(browser, "prowd").click()
    assert every.text == "Show all"
    every.click()
    assert key(browser, "fedavg", 1).get_attribute("aria-pressed") == "true"


# Colours and sizes


def test_lines_have_the_colours_of_the_theme_however_it_is_changed(browser: Browser, comparison: Path) -> None:
    browser.show(comparison)
    light, paper = browser.colour_of("c3"), browser.colour_of("paper")
    (button,) = browser.all("#theme")
    assert (button.text, min(browser.painted(light)[:CHARTS]) > 50) == ("Dark colours", True)
    button.click()
    dark = browser.colour_of("c3")
    assert (button.text, dark != light, browser.colour_of("paper") != paper) == ("Light colours", True, True)
    wait_until(lambda: min(browser.painted(dark)[:CHARTS]) > 50, "lines are in dark colours")
    assert max(browser.painted(light)) == 0
    button.click()
    wait_until(lambda: min(browser.painted(light)[:CHARTS]) > 50, "lines are in light colours")
    browser.show(comparison)
    browser.prefer(dark=True)
    wait_until(lambda: min(browser.painted(dark)[:CHARTS]) > 50, "lines follow the system")
    assert browser.all("#theme")[0].text == "Light colours"


def test_charts_are_as_wide_as_their_place_when_the_window_changes(browser: Browser, comparison: Path) -> None:
    script = """return [...document.querySelectorAll(".plot")].every((plot) =>
        Math.abs(plot.querySelector("canvas").getBoundingClientRect().width - plot.clientWidth) < 2);"""
    browser.show(comparison, width=1300)
    for width in (400, 2000, 1300):
        browser.resize(width)
        wait_until(lambda: bool(browser.run(script)), "charts have the new size")
        assert not browser.scrolls_sideways()


@pytest.mark.parametrize("across", [0.02, 0.5, 0.98])
def test_on_a_phone_values_are_not_cut(browser: Browser, comparison: Path, across: float) -> None:
    browser.show(comparison, width=400)
    for figure in (0, 1):
        browser.point(float32(browser, figure), across)
        (shown,) = (one for one in browser.all(".tip") if one.is_displayed())
        box = browser.run("const { left, right } = arguments[0].getBoundingClientRect(); return [left, right];", shown)
        assert (box[0] >= 0, box[1] <= 400) == (True, True), box
        assert not browser.scrolls_sideways()


def test_a_page_is_small(page: Path) -> None:
    assert page.stat().st_size < LIMIT


# People


def test_a_person_is_chosen_from_a_list_or_in_the_table(browser: Browser, clinic: Path) -> None:
    browser.show(clinic)
    (chooser,) = browser.all(".chooser select")
    assert chooser.accessible_name.startswith("Person")
    assert [one.text for one in chooser.find_elements("css selector", "option")] == ["person 3", "person 10"]

    def last() -> str:
        browser.point(browser.all(".chosen .u-over")[0], 0.98)
        return tip(browser)

    assert last().startswith("round 3 prowd 60.00 % fedavg 50.00 %")
    browser.run("arguments[0].focus();", chooser)
    browser.press("person 1")
    assert last().startswith("round 3 prowd 55.00 % fedavg 45.00 %")
    assert [one.text.split()[1] for one in browser.all("tr.is-chosen")] == ["10"]
    (row,) = (one for one in browser.all(".pair tbody tr") if one.text.startswith("person 3"))
    row.click()
    assert chooser.get_attribute("value") == "0"
    assert len(browser.all(".chosen canvas")) == 1
    assert browser.messages() == []


def test_the_mean_stays_below_the_people_however_they_are_sorted(browser: Browser, clinic: Path) -> None:
    browser.show(clinic)
    (total,) = browser.all(".pair tfoot tr")
    assert total.text.startswith("all of them")
    browser.all(".pair thead button")[1].click()
    rows = browser.all(".pair tr")
    assert rows[-1] == total
    assert [one.text.split()[1] for one in rows[1:-1]] == ["10", "3"], "45 and 50 % of the first method"


def test_equal_accuracies_have_bars_of_equal_length_in_every_column(browser: Browser, clinic: Path) -> None:
    browser.show(clinic)
    script = """return [...document.querySelectorAll(".pair tbody td")].map(
        (one) => [parseFloat(one.textContent), parseFloat(style(one).backgroundSize)]);"""
    bars = browser.run(script)
    assert [share for share, _ in bars] == [50, 60, 45, 55]
    per_cent = [length / share for share, length in bars]
    assert per_cent == pytest.approx([per_cent[0]] * 4)
    assert per_cent[0] > 0.3
