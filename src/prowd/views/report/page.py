"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
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
from prowd.views.report.tables import PaperComparison

__all__ = ["Part", "Section", "render", "verdict"]


@dataclass(frozen=True)
class Part:
    """A chapter of a group: some text, some figures, some tables."""

    title: str
    texts: Sequence[str] = ()
    drawings: Sequence[Drawing] = ()
    tables: Sequence[PageTable] = ()
    opens: bool = False
    """Whether it comes before the table of methods."""


@dataclass(frozen=True)
class Section:
    """What the page shows of a group; ``files`` are those of its drawings, by their names."""

    group: Group
    parts: Sequence[Part]
    printed: Sequence[PaperComparison]
    files: Mapping[str, Sequence[Path]]


def render(sections: Sequence[Section], problems: Sequence[str], out: Path) -> str:
    """The whole page, as it is written to ``out``."""

    def links(files: Sequence[Path]) -> list[tuple[str, str]]:
        return [(path.suffix[1:].upper(), quote(path.relative_to(out).as_posix())) for path in files]

    records = [record for section in sections for record in section.group.records]
    environment = Environment(loader=PackageLoader("prowd.views.report"), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("page.html").render(
        title=f"prowd: {', '.join(dict.fromkeys(section.group.title for section in sections))}",
        lead=f"{_runs(len(records))} of {len(sections)} federation{'s' * (len(sections) != 1)}.",
        version=__version__,
        command=command_line(sys.argv),
        problems=[*problems, *(f"{record.path}: {text}" for record in records for text in record.remarks)],
        sections=sections,
        cells=cells,
        describe=describe,
        verdict=verdict,
        config_of=_config,
        links=links,
        next_number=count().__next__,
        svg=_svg,
    )


def describe(group: Group) -> str:
    """The federation in a sentence."""
    config, record = group.first.config, group.first
    clients = ", ".join(f"{count} {width}" for width, count in record.mix.items()) or "unknown"
    seeds = sorted({one.seed for one in group.records})
    data = Path(str(config.get("data", "unknown"))).name
    if config.get("validation"):
        data += f" (measured on {config['validation']} training examples set aside)"
    if config.get("validation_clients"):
        data += f" (measured on {config['validation_clients']} people for validation)"
    done = sum(one.is_finished for one in group.records)
    return (
        f"{data}, clients: {clients}; {record.rounds} rounds, {config.get('uplink', 'ternary')} uplink, "
        f"{config.get('partition', 'iid')} partition; {_runs(len(group.records))} ({done} finished), "
        f"seed{'s' * (len(seeds) != 1)} {', '.join(map(str, seeds))}."
    )


def verdict(group: Group) -> str:
    """What the table says of the best method, in a sentence."""
    if not group.rows:
        return "No accuracy has been measured yet."
    best = max(group.rows, key=lambda row: row.average.mean)
    text = f"{best.method}: {interval(best.average)} % on average over all clients{_state(group)}"
    if len(group.rows) > 1:
        text += f", the highest of {len(group.rows)} methods"
    if best.difference is not None:
        sure = (
            "its interval excludes zero" if best.difference.excludes_zero else "undecided: its interval includes zero"
        )
        sure = "one seed only, no interval" if best.difference.half is None else sure
        text += f"; {interval(best.difference, signed=True)} against {group.baseline} ({sure})"
    return f"{text}."


def _state(group: Group) -> str:
    """How much of the federation a verdict is about."""
    done = sum(record.is_finished for record in group.records)
    if done == len(group.records):
        return ""
    last = len(next(iter(group.counted.values()))[0].lines)
    return f" ({done} of {len(group.records)} runs are finished)" if done else f" (so far: round {last})"


def _runs(number: int) -> str:
    return f"{number} run{'s' * (number != 1)}"


def _config(path: Path) -> str:
    return without_home((path / "config.toml").read_text("utf-8"))


def _svg(drawing: Drawing, number: int) -> Markup:
    return Markup(inline_svg(drawing, number))  # noqa: S704 - matplotlib escapes texts
