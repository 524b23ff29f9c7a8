"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from prowd import __version__
from prowd.comparison.formats import interval
from prowd.runs.provenance import command_line, without_home
from prowd.views.report import cells
from prowd.views.report.cells import PageTable
from prowd.views.report.groups import Group
from prowd.views.report.style import Drawing, inline_svg
from prowd.views.report.tables import Beside

__all__ = ["Part", "Section", "render", "verdict"]


@dataclass(frozen=True)
class Part:
    """A chapter of a group: some text, some figures, some tables."""

    title: str
    texts: Sequence[str] = ()
    drawings: Sequence[Drawing] = ()
    tables: Sequence[PageTable] = ()


@dataclass(frozen=True)
class Section:
    """What the page shows of a group."""

    group: Group
    parts: Sequence[Part]
    beside: Sequence[Beside] = field(default_factory=tuple)


def render(sections: Sequence[Section], problems: Sequence[str], files: Mapping[int, Sequence[Path]], out: Path) -> str:
    """The whole page. ``files`` are those of a drawing, by its ``id``."""
    counter = iter(range(10**6))
    titles = list(dict.fromkeys(section.group.title for section in sections))
    environment = Environment(
        loader=PackageLoader("prowd.views.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=False
    )
    records = [record for section in sections for record in section.group.records]
    remarks = [f"{record.path}: {text}" for record in records for text in record.remarks]
    return environment.get_template("page.html").render(
        title=f"prowd: {', '.join(titles)}",
        lead=_lead(sections),
        version=__version__,
        command=command_line(sys.argv),
        style=_template("page.css"),
        script=_template("page.js"),
        problems=[*problems, *remarks],
        groups=[_section(section, counter, files, out) for section in sections],
    )


def _section(section: Section, counter: Any, files: Mapping[int, Sequence[Path]], out: Path) -> dict[str, Any]:
    group = section.group
    return {
        "title": group.title,
        "lead": describe(group),
        "verdict": verdict(group),
        "headline": cells.headline(group),
        "beside": [
            {"title": both.table.title, "table": cells.printed(both), "notes": both.notes} for both in section.beside
        ],
        "parts": [
            {
                "title": part.title,
                "texts": part.texts,
                "tables": part.tables,
                "drawings": [_drawing(one, next(counter), files.get(id(one), ()), out) for one in part.drawings],
            }
            for part in section.parts
        ],
        "settings": [cells.settings(group)],
        "configs": [(f"config.toml of {record.path.name}", _config(record.path)) for record, *_ in group.runs.values()],
        "provenance": cells.provenance(group.records),
    }


def _drawing(drawing: Drawing, number: int, files: Sequence[Path], out: Path) -> dict[str, Any]:
    label = f"f{number}-caption"
    return {
        "svg": Markup(inline_svg(drawing, number, label)),  # noqa: S704 - matplotlib escapes texts
        "label": label,
        "caption": drawing.caption,
        "note": drawing.note,
        "files": [(path.suffix[1:].upper(), quote(path.relative_to(out).as_posix())) for path in files],
    }


def describe(group: Group) -> str:
    """The federation in a sentence."""
    config, record = group.first.config, group.first
    clients = ", ".join(f"{count} {width}" for width, count in record.mix.items()) or "unknown"
    seeds = sorted({one.seed for one in group.records})
    data = Path(str(config.get("data", "unknown"))).name
    if config.get("validation"):
        data += f" (measured on {config['validation']} training examples set aside)"
    states = f"{len(group.records)} run{'s' * (len(group.records) != 1)}"
    done = sum(one.is_finished for one in group.records)
    return (
        f"{data}, clients: {clients}; {record.rounds} rounds, {config.get('uplink', 'ternary')} uplink, "
        f"{config.get('partition', 'iid')} partition; {states} ({done} finished), "
        f"seed{'s' * (len(seeds) != 1)} {', '.join(map(str, seeds))}."
    )


def verdict(group: Group) -> str:
    """What the table says of the best method, in a sentence."""
    rows = sorted(group.rows, key=lambda row: -row.average.mean)
    if not rows:
        return "No accuracy has been measured yet."
    best, state = rows[0], _state(group)
    text = f"{best.method}: {interval(best.average)} % on average over all clients{state}"
    if len(rows) == 1:
        return f"{text}."
    if best.difference is None:
        return f"{text}, the highest of {len(rows)} methods."
    sure = "its interval excludes zero" if best.difference.excludes_zero else "not decided: the interval includes zero"
    if best.difference.half is None:
        sure = "one seed only, no interval"
    difference = f"{interval(best.difference, signed=True)} against {group.baseline} ({sure})"
    return f"{text}, the highest of {len(rows)} methods; {difference}."


def _state(group: Group) -> str:
    """How much of the federation a verdict is about."""
    done = sum(record.is_finished for record in group.records)
    if done == len(group.records):
        return ""
    last = len(next(iter(group.counted.values()))[0].lines)
    return f" ({done} of {len(group.records)} runs are finished)" if done else f" (so far: round {last})"


def _lead(sections: Sequence[Section]) -> str:
    count = sum(len(section.group.records) for section in sections)
    what = f"{count} run{'s' * (count != 1)}"
    return f"{what} of {len(sections)} federations." if len(sections) > 1 else f"{what} of one federation."


def _config(path: Path) -> str:
    try:
        return without_home((path / "config.toml").read_text("utf-8"))
    except (OSError, ValueError) as error:
        return f"cannot be read: {error}"


def _template(name: str) -> Markup:
    text = (resources.files("prowd.views.report") / "templates" / name).read_text("utf-8")
    return Markup(text)  # noqa: S704 - our own file
