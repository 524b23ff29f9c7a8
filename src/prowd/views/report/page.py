"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import count
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from prowd import __version__
from prowd.runs.provenance import command_line, without_home
from prowd.views.report import cells
from prowd.views.report.cells import PageTable
from prowd.views.report.groups import Group
from prowd.views.report.live import MOST_POINTS, Chart
from prowd.views.report.sentences import caution, count_runs, describe, verdict
from prowd.views.report.style import Drawing, inline_svg, width_of
from prowd.views.report.tables import PaperComparison

__all__ = ["LIMIT", "Choice", "Part", "Section", "render"]

LIMIT = 1_500_000  # bytes that a page is to have at most
FEW_POINTS = 100  # of a line, where a page would be too large with more
LIBRARY = "vendor/uplot"
WIDE = 7  # columns from which on a table takes the whole width of the page
WIDTHS, MARGIN = (470, 500), 34  # pixels of chapters with tables of fewer columns, and what is around a figure


@dataclass(frozen=True)
class Choice:
    """A table, and a chart that shows one of its rows over the rounds: on paper there is the table alone."""

    caption: str
    chart: Chart
    table: PageTable


@dataclass(frozen=True)
class Part:
    """A chapter of a group: some text, some figures, some tables."""

    title: str
    texts: Sequence[str] = ()
    drawings: Sequence[Drawing] = ()
    tables: Sequence[PageTable] = ()
    opens: bool = False
    """Whether it comes before the table of methods."""
    chosen: Sequence[Choice] = ()

    @property
    def width(self) -> int:
        """Pixels below which it has a row of the page for itself; 0 if it always has."""
        is_whole = any(one.live for one in self.drawings) or len(self.drawings) > 1
        columns = max((len(table.headings) for table in self.tables), default=0)
        if is_whole or self.chosen or columns >= WIDE:
            return 0
        return max([WIDTHS[columns == WIDE - 1], *(MARGIN + width_of(drawing) for drawing in self.drawings)])


@dataclass(frozen=True)
class Section:
    """What the page shows of a group; ``files`` are those of its drawings, by their names."""

    group: Group
    parts: Sequence[Part]
    printed: Sequence[PaperComparison]
    files: Mapping[str, Sequence[Path]]


def render(sections: Sequence[Section], problems: Sequence[str], out: Path) -> str:
    """The whole page, as it is written to ``out``.

    A chart that the script draws is there as a figure too, for paper and where no scripts run. Where the page would
    become larger than it is to be, these figures are left out, and then points of the charts.
    """
    whole = _render(sections, problems, out, has_twins=True)
    for points in (MOST_POINTS, FEW_POINTS):
        if len(whole.encode(errors="replace")) > LIMIT:
            whole = _render(sections, problems, out, has_twins=False, points=points)
    return whole


def _render(
    sections: Sequence[Section], problems: Sequence[str], out: Path, *, has_twins: bool, points: int = MOST_POINTS
) -> str:
    def links(files: Sequence[Path]) -> list[tuple[str, str]]:
        return [(path.suffix[1:].upper(), quote(path.relative_to(out).as_posix())) for path in files]

    records = [record for section in sections for record in section.group.records]
    environment = Environment(loader=PackageLoader("prowd.views.report"), autoescape=True, undefined=StrictUndefined)
    script = _script()
    return environment.get_template("page.html").render(
        title=f"prowd: {', '.join(dict.fromkeys(section.group.title for section in sections))}",
        lead=f"{count_runs(len(records))} of {len(sections)} federation{'s' * (len(sections) != 1)}",
        version=__version__,
        command=command_line(sys.argv),
        problems=[*problems, *(f"{record.path}: {text}" for record in records for text in record.remarks)],
        sections=sections,
        cells=cells,
        describe=describe,
        verdict=verdict,
        caution=caution,
        config_of=_config,
        links=links,
        next_number=count().__next__,
        svg=_svg,
        has_twins=has_twins,
        data=_Data(points),
        script=Markup(script),  # noqa: S704 - files of this package
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        library_style=Markup(_file(f"{LIBRARY}/uPlot.min.css")),  # noqa: S704 - the same
    )


class _Data:
    """The data of charts: two that show the same lines, against rounds and against megabytes, have them once."""

    def __init__(self, points: int) -> None:
        self.points, self.known = points, dict[str, str]()

    def name(self, chart: Chart) -> str:
        """The element that holds the lines of a chart."""
        return self.known.setdefault(chart.data(self.points), f"lines-{len(self.known)}")

    def __call__(self) -> list[tuple[str, Markup]]:
        """All elements and what is in them: JSON in which no sign of markup is left."""
        return [(name, Markup(text)) for text, name in self.known.items()]  # noqa: S704 - see Chart.data


def _script() -> str:
    """All that runs: the library with its licence, the charts, the page's own."""
    licence, library = (_file(f"{LIBRARY}/{name}") for name in ("LICENSE", "uPlot.iife.min.js"))
    return "\n".join([f"/*\n{licence}\n*/", library, _file("templates/charts.js"), _file("templates/page.js")])


def _file(name: str) -> str:
    return (resources.files("prowd.views.report") / name).read_text("utf-8")


def _config(path: Path) -> str:
    return without_home((path / "config.toml").read_text("utf-8"))


def _svg(drawing: Drawing, number: int) -> Markup:
    return Markup(inline_svg(drawing, number))  # noqa: S704 - matplotlib escapes texts
