"""A page as a real browser shows it: what it loads, what it says, its colours and its sizes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.runs import wait_until

DESKTOP, PHONE = (1280, 900), (360, 740)
COUNT = """
const [canvas, colour] = [arguments[0].querySelector("canvas"), arguments[1].match(/\\d+/g).map(Number)];
const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
let count = 0;
for (let at = 0; at < data.length; at += 4)
  count += data[at + 3] === 255 && colour.every((part, n) => data[at + n] === part);
return count;
"""
Colour = tuple[float, float, float]

TOOLS = """
const shown = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
const style = (element, part) => getComputedStyle(element, part);
const opaque = (colour) => colour !== "none" && !colour.startsWith("url") && !/^rgba.*, 0\\)$/.test(colour);
const behind = (element) => {
  for (let place = element; place; place = place.parentElement)
    if (opaque(style(place).backgroundColor)) return style(place).backgroundColor;
  return "none";
};
const named = (name) => {  // the colour of a variable, as computed styles have it
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(--${name})`;
  const found = style(probe).color;
  probe.remove();
  return found;
};
"""
LOADED = "return location.protocol === 'file:' && document.readyState === 'complete';"
TEXTS = """
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  const text = walker.currentNode.data.trim();
  if (!text || !shown(element) || element.closest("script, style")) continue;
  const drawn = element instanceof SVGElement;
  const matrix = drawn ? element.getScreenCTM() : { a: 1, b: 0 };
  found.push({
    text, drawn, tag: element.localName, back: behind(element),
    colour: drawn ? style(element).fill : style(element).color,
    size: parseFloat(style(element).fontSize) * Math.hypot(matrix.a, matrix.b),
  });
}
for (const arrow of document.querySelectorAll("thead button span"))
  found.push({ text: style(arrow, "::after").content, drawn: false, tag: "arrow", back: behind(arrow),
    colour: style(arrow, "::after").color, size: parseFloat(style(arrow, "::after").fontSize) });
return found;
"""
FIGURES = """
const series = new Set([0, 1, 2, 3, 4, 5, 6, 7].map((number) => named(`c${number}`)));
const coloured = (shape) => series.has(style(shape).stroke) || series.has(style(shape).fill);
return [...document.querySelectorAll("svg")].map((svg) => {
  const panels = [...svg.querySelectorAll("g[id*='-axes_']")];
  const box = svg.getBoundingClientRect();
  return {
    width: box.width, height: box.height, is_shown: shown(svg), caption: svg.closest("figure").innerText,
    is_twin: svg.closest("figure").querySelector(".live") !== null,
    texts: [...svg.querySelectorAll("text")].map((text) => text.textContent),
    panels: panels.map((panel) =>
      panel.querySelectorAll("image").length + [...panel.querySelectorAll("path, use, rect")].filter(coloured).length),
  };
});
"""
COLOURS = """
const shapes = [...document.querySelectorAll("svg path, svg use, svg rect, svg text")];
const painted = (shape, how) => {  // what a shape is a copy of may have a colour of its own
  const copied = shape.localName === "use" ? document.querySelector(shape.getAttribute("xlink:href")) : shape;
  return style(copied.style[how] ? copied : shape)[how];
};
const has_area = (shape) => shape.getBBox().width * shape.getBBox().height > 0;
return [...new Set(shapes.filter((shape) => !shape.closest("defs")).flatMap((shape) =>
  [painted(shape, "stroke"), has_area(shape) ? painted(shape, "fill") : "none"]).filter(opaque))];
"""


@dataclass(frozen=True)
class Browser:
    """Chromium with a page in it."""

    driver: Chrome

    def show(
        self, page: Path, *, dark: bool = False, phone: bool = False, width: int | None = None, media: str = ""
    ) -> None:
        """Open a page from the disk, and forget what was before."""
        usual, height = PHONE if phone else DESKTOP
        self.prefer(dark=dark, media=media)
        self.resize(width or usual, height, phone=phone)
        self.driver.get("about:blank")
        self.messages()
        self.requests()
        self.driver.get(page.as_uri())  # which may come back early if the machine is busy
        wait_until(lambda: bool(self.run(LOADED)), f"{page} is loaded")

    def prefer(self, *, dark: bool, media: str = "") -> None:
        """Let the system have a dark or a light theme; ``media`` may be "print"."""
        wanted = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def resize(self, width: int, height: int = 900, *, phone: bool = False) -> None:
        """Make the window so wide and high."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def scrolls_sideways(self) -> bool:
        """Whether the page is wider than the window, as far as that can be seen of it."""
        whole, seen = self.run("const it = document.documentElement; return [it.scrollWidth, it.clientWidth];")
        return bool(whole > seen)

    def point(self, element: WebElement, across: float, *, down: float = 0.5) -> None:
        """Move the mouse to a place of an element, as shares of its width and height."""
        self.run("arguments[0].scrollIntoView({ block: 'center', behavior: 'instant' });", element)
        x, y = (round((share - 0.5) * element.size[side]) for share, side in ((across, "width"), (down, "height")))
        ActionChains(self.driver).move_to_element_with_offset(element, x, y).perform()

    def actions(self) -> ActionChains:
        """What the mouse is to do."""
        return ActionChains(self.driver)

    def painted(self, colour: str) -> list[int]:
        """How many pixels of each line chart have a colour."""
        return [int(self.run(COUNT, plot, colour)) for plot in self.all(".plot")]

    def messages(self) -> list[str]:
        """What the console has been told since it was asked last."""
        return [str(entry["message"]) for entry in self._log("browser")]

    def requests(self) -> list[str]:
        """The addresses that the page has asked for since."""
        events = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def _log(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.driver.get_log(name)  # type: ignore[no-untyped-call]
        return found

    def run(self, script: str, *arguments: object) -> Any:
        """What a script returns, with the tools above at hand."""
        return self.driver.execute_script(TOOLS + script, *arguments)

    def all(self, selector: str) -> list[WebElement]:
        """The elements of a selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def texts(self) -> list[dict[str, Any]]:
        """Every text that is seen: in which colour, before which, and how many pixels high."""
        found: list[dict[str, Any]] = self.run(TEXTS)
        return found

    def figures(self) -> list[dict[str, Any]]:
        """Every figure: its box, its texts, and how many shapes of a series each of its panels has."""
        found: list[dict[str, Any]] = self.run(FIGURES)
        return found

    def drawn_colours(self) -> set[str]:
        """The colours in which something is drawn in figures."""
        return set(self.run(COLOURS))

    def colour_of(self, name: str) -> str:
        """The colour that a variable of the page has."""
        return str(self.run("return named(arguments[0]);", name))

    def column(self, table: int, column: int) -> list[str]:
        """What a column of a table shows, from top to bottom."""
        script = """const rows = document.querySelectorAll("table")[arguments[0]].tBodies[0].rows;
            return [...rows].map((row) => row.cells[arguments[1]].innerText);"""
        found: list[str] = self.run(script, table, column)
        return found

    def headings(self, table: int) -> list[str]:
        """The headings of a table without their arrows."""
        script = """return [...document.querySelectorAll("table")[arguments[0]].tHead.rows[0].cells].map(
            (cell) => cell.textContent.trim());"""
        found: list[str] = self.run(script, table)
        return found


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2 between two colours as computed styles write them."""
    low, high = sorted((_luminance(_parse(one)), _luminance(_parse(other))))
    return (high + 0.05) / (low + 0.05)


def _parse(colour: str) -> Colour:
    name, _, numbers = colour.rstrip(")").partition("(")
    parts = [float(part) for part in numbers.split(",")]
    assert name in ("rgb", "rgba"), colour
    assert parts[3:] in ([], [1.0]), f"{colour} lets something shine through"
    return parts[0], parts[1], parts[2]


def _luminance(colour: Sequence[float]) -> float:
    linear = [part / 3294.6 if part <= 10.31475 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
