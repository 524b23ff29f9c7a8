"""Line charts as numbers: what the static figures are drawn from, and what the page's script is handed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prowd.views.report.groups import Curve

__all__ = ["COLOURS", "MOST_POINTS", "Chart", "Line", "Panel", "look_of"]

COLOURS = 8
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.5, 1.5), (5, 1.5, 1.5, 1.5))  # in widths of the line
MOST_POINTS, MOST_IN_ALL = 500, 25_000  # of a line, and of a chart: no screen shows more, and a page stays small


def look_of(number: int) -> tuple[int, tuple[float, ...]]:
    """Colour and dashes of the n-th series, so that nobody has to tell colours apart."""
    return number % COLOURS, DASHES[(number + number // COLOURS) % len(DASHES)]


@dataclass(frozen=True)
class Line:
    """A method in a panel; ``number`` says how it looks."""

    label: str
    number: int
    curve: Curve
    is_level: bool = False
    """Whether against megabytes only its last value is shown, all across: it sends nothing to be drawn against."""


@dataclass(frozen=True)
class Panel:
    """Lines that share their axes."""

    title: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Chart:
    """Panels that are read alike, against "rounds" or "megabytes"."""

    panels: Sequence[Panel]
    against: str = "rounds"
    measure: str = "accuracy, %"
    unit: str = " %"
    bounds: tuple[float, float] | None = (0.0, 100.0)
    margin: float = 1.0
    """The least that an axis shows above and below its lines."""
    chosen_by: str = ""
    """What one panel is chosen by, such as "person"; empty where all are side by side."""

    @property
    def across(self) -> str:
        """What the lines are drawn against."""
        return "round" if self.against == "rounds" else "MB sent, up and down"

    def options(self) -> str:
        """How the lines are shown, as JSON for an attribute."""
        return json.dumps(
            {
                "against": self.against,
                "across": self.across,
                "measure": self.measure,
                "unit": self.unit,
                "bounds": self.bounds,
                "margin": self.margin,
                "chosenBy": self.chosen_by,
            }
        )

    def thinned(self, most: int) -> Chart:
        """The same with at most so many points of a line, evenly, the first and the last among them."""
        panels = [replace(panel, lines=[_thinned(line, most) for line in panel.lines]) for panel in self.panels]
        return replace(self, panels=panels)

    @property
    def longest(self) -> int:
        """Points of the line that has most."""
        return max((len(line.curve.values) for panel in self.panels for line in panel.lines), default=0)

    def data(self, points: int = MOST_POINTS) -> str:
        """The lines as JSON, in which nothing can end the element that holds it."""
        count = sum(len(panel.lines) for panel in self.panels)
        most = max(2, min(points, MOST_IN_ALL // max(count, 1)))
        panels = [
            {"title": panel.title, "lines": [_line(line) for line in panel.lines if line.curve.values]}
            for panel in self.thinned(most).panels
        ]
        text = json.dumps(panels, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def _line(line: Line) -> Mapping[str, Any]:
    """Places, means, and half the intervals if there are any."""
    found, (colour, dashes) = line.curve, look_of(line.number)
    halves = [_number(value.half) for value in found.values]
    return {
        "name": line.label,
        "colour": colour,
        "dash": dashes,
        "level": line.is_level,
        "seeds": max(value.count for value in found.values),
        "round": list(found.rounds),
        "mb": [_number(megabytes) for megabytes in found.megabytes],
        "mean": [_number(value.mean) for value in found.values],
        "half": halves if any(half is not None for half in halves) else None,
    }


def _thinned(line: Line, most: int) -> Line:
    count = len(line.curve.values)
    if count <= most:
        return line
    kept = [round(place * (count - 1) / (most - 1)) for place in range(most)]
    found = line.curve
    thin = Curve(
        [found.rounds[at] for at in kept], [found.megabytes[at] for at in kept], [found.values[at] for at in kept]
    )
    return replace(line, curve=thin)


def _number(value: float | None) -> float | None:
    """Six digits are more than anybody reads; what is no number is not there."""
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None
