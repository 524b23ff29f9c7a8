"""How figures look, and how they are saved: as files, and as a part of the page, light or dark as it is."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from prowd.files import atomic_write
from prowd.views.report.live import Chart, look_of

__all__ = ["LINES", "Drawing", "inline_svg", "legend_below", "look", "panels", "save", "styled", "width_of"]

SCALE = 108  # pixels of the page an inch of a figure: texts of 8 points are 12 pixels high
INK, LINES = "#222222", "#cccccc"
# Each at least 3 : 1 against white; the page has their twins for the dark. Series differ in dashes and markers too.
PALETTE = ("#0072b2", "#d55e00", "#007d5c", "#9b4fa5", "#8a5a00", "#cc3377", "#666666", "#0c2f6b")
SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.edgecolor": LINES,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINES,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "text.parse_math": False,  # a name with two dollar signs is no formula
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 2,
    "ytick.major.size": 2,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "savefig.dpi": 160,
}


@dataclass(frozen=True)
class Drawing:
    """A figure of the report: its file name, what it shows in a sentence, and how it is drawn."""

    name: str
    caption: str
    figure: Figure
    note: str = ""
    """To what of the paper it corresponds."""
    reading: str = ""
    """How to read it, in a sentence."""
    live: Chart | None = None
    """The numbers of its lines: on a screen the page draws them itself, and the figure is for paper."""
    small: Figure | None = None
    """What is in the page instead, where the figure has more points than a page should."""

    def __post_init__(self) -> None:
        """Lay it out once, for all the formats in which it is saved."""
        for figure in filter(None, (self.figure, self.small)):
            figure.draw_without_rendering()
            figure.set_layout_engine("none")


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the report's own style, whatever the user's is."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        yield


def look(number: int) -> dict[str, Any]:
    """How the n-th series is drawn."""
    colour, dashes = look_of(number)
    return {"color": PALETTE[colour], "linestyle": (0, dashes) if dashes else "solid"}


def panels(count: int, *, columns: int = 3, width: float = 2.7, height: float = 2.2) -> tuple[Figure, list[Axes]]:
    """A figure of so many panels, row by row."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(max(width * columns, 3.4), height * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for unused in grid[count:]:
        unused.set_axis_off()
    return figure, grid[:count]


def legend_below(figure: Figure, *panels: Axes) -> None:
    """One legend for all panels: what any of them shows."""
    found: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if len(found) > 1:
        widest = 0.5 + 0.075 * max(map(len, found))  # inches: the key, and a letter of 9 points
        fitting = max(1, int(figure.get_figwidth() / widest))
        many = min(4, fitting, len(found))
        figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=many)


def save(drawing: Drawing, folder: Path) -> list[Path]:
    """Write a figure's files. The same figure gives the same bytes: no dates, no random names."""
    dates = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
    paths: list[Path] = []
    with mpl.rc_context({"svg.hashsalt": drawing.name}):
        for kind, metadata in dates.items():
            data = io.BytesIO()
            drawing.figure.savefig(data, format=kind, metadata=metadata)
            paths.append(folder / f"{drawing.name}.{kind}")
            atomic_write(paths[-1], data.getvalue())
    return paths


def width_of(drawing: Drawing) -> int:
    """Pixels of the page."""
    return round(SCALE * float(drawing.figure.get_figwidth()))


def inline_svg(drawing: Drawing, number: int) -> str:
    """The n-th figure of the page, named by its caption: its colours are the page's, and so is its font."""
    data = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": f"{drawing.name}-{number}"}):
        (drawing.small or drawing.figure).savefig(
            data, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    whole = data.getvalue()
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", whole[whole.index("<svg") :], flags=re.DOTALL)
    width, height = (f"{SCALE * inches:.0f}" for inches in drawing.figure.get_size_inches())
    head = f'<svg role="img" aria-labelledby="f{number}-caption" width="{width}" height="{height}"'
    text = re.sub(r'<svg (.*?)width="[\d.]+pt" height="[\d.]+pt"', rf"{head} \1", text, count=1)
    return re.sub(r"<[^>]*>", lambda tag: _of_page(tag[0], number), text)


def _of_page(tag: str, number: int) -> str:
    """A tag with names that no other figure has, and with the page's variables for its colours."""
    tag = re.sub(r"font-family: [^;\"]*; ?", "", tag)
    tag = re.sub(r'(?<=\bd=")[^"]*', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", " ".join(path[0].split())), tag)
    own = "" if tag.startswith("<image") else rf'id="f{number}-\1"'  # two images that are alike have the same one
    tag = re.sub(r'\bid="([^"]+)"', own, tag)
    tag = re.sub(r'(href="|url\()#', rf"\g<1>#f{number}-", tag)
    for old, new in {INK: "ink", LINES: "line", **{value: f"c{n}" for n, value in enumerate(PALETTE)}}.items():
        tag = tag.replace(old, f"var(--{new})")
    return tag
