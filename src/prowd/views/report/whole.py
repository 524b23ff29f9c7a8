"""From run directories to a report: a page, figures and tables."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prowd.comparison import tabulate
from prowd.config.schema import load_config
from prowd.errors import RunError
from prowd.files import atomic_write
from prowd.views.report import cells, charts, people, tables, weights
from prowd.views.report.followed import followed
from prowd.views.report.groups import Group, gather
from prowd.views.report.page import Choice, Part, Section, render
from prowd.views.report.paper import tables_for
from prowd.views.report.style import Drawing, save, styled
from prowd.views.report.tables import PaperComparison

__all__ = ["Report", "make_report"]

PAGE = "index.html"
FOLLOWED = {
    "people": "Accuracy for one person whom no client has seen, over the rounds: mean over the clients' models.",
    "own": "Accuracy of one client's model for its owner, over the rounds, on examples that it held out.",
}


@dataclass(frozen=True)
class Report:
    """What was written: the page, the files of figures and tables; and what is to be said in a terminal."""

    page: Path
    files: Sequence[Path]
    groups: Sequence[Group]
    problems: Sequence[str]


def make_report(folders: Sequence[Path], out: Path, *, files: bool = True) -> Report:
    """Read all runs in some folders and write their report to ``out``: the page, and figures and tables as files."""
    groups, problems = gather(folders)
    sections: list[Section] = []
    tabled: list[Path] = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        _remove_former(out)
        with styled(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in letters of which PNG shows boxes only
            for number, group in enumerate(groups):
                name = _file_name(f"{number + 1}-{group.title}") if len(groups) > 1 else ""
                parts, printed = _parts(group), _printed_tables(group)
                saved = _save_figures(parts, out / "figures" / name) if files else {}
                tabled += _save_tables(printed, out / "tables" / name) if files else []
                sections.append(Section(group, parts, printed, saved))
            atomic_write(out / PAGE, render(sections, problems, out).encode(errors="replace"))
    except OSError as error:
        raise RunError(f"the report cannot be written to {out}: {error}; name another --out") from error
    drawn = [path for section in sections for paths in section.files.values() for path in paths]
    return Report(out / PAGE, [*drawn, *tabled], groups, problems)


def _remove_former(out: Path) -> None:
    """Remove the figures and tables of a former report, which would be of another state than the page."""
    page = out / PAGE
    if page.is_file() and b'content="prowd ' in page.read_bytes()[:2000]:
        for folder in ("figures", "tables"):
            shutil.rmtree(out / folder, ignore_errors=True)


def _printed_tables(group: Group) -> list[PaperComparison]:
    """The paper's tables of the same federation, if it is on the paper's data."""
    config = group.first.config
    if config.get("data") != "cifar10" or config.get("validation") or not group.is_finished:
        return []
    rows = tabulate(group.outcomes, tables.BASELINE)
    return [
        tables.compare_with_paper(table, rows, _unlike(table.preset, config))
        for table in tables_for(group.first.mix, [row.method for row in rows])
        if table.uplink == config.get("uplink", "ternary")
    ]


def _unlike(preset: str, config: Mapping[str, Any]) -> list[str]:
    """In what the runs are not those of the paper, as its preset has them."""
    paper = load_config(preset).model_dump(mode="json")
    keys = ("model", "width", "input_size", "partition", "per_client", "rounds", "steps", "batch", "augment", "decay")
    other = [
        f"{key} {config[key]} instead of {paper[key]}" for key in keys if config.get(key, paper[key]) != paper[key]
    ]
    return [f"Ours are not the paper's runs (preset {preset}): {'; '.join(other)}."] if other else []


def _parts(group: Group) -> list[Part]:
    """The chapters of a group."""
    accuracy = [charts.accuracy_curves(group, against) for against in ("rounds", "megabytes")]
    clients = [table for table in (people.by_client(group),) if table is not None]
    parts = [Part("Accuracy", drawings=_there(accuracy), tables=clients)] if any(accuracy) or clients else []
    final = cells.final_models(group)
    parts += [Part("Final model", tables=[final])] if final.rows else []
    parts += [Part("Bytes per client", tables=[cells.traffic(group)]), *_holdings(group)]
    return [*_people(group), *parts, *_masks(group), _missing_clients(group), _weights(group)]


def _people(group: Group) -> list[Part]:
    """What a clinic would ask, where clients have measured it."""
    kinds = {"people": people.never_seen(group), "own": people.by_person(group)}
    charts_of = {kind: (table, followed(group, kind)) for kind, table in kinds.items()}
    found = [Choice(FOLLOWED[kind], chart, table) for kind, (table, chart) in charts_of.items() if table and chart]
    classes = [table for table in (people.by_class(group),) if table is not None]
    mistaken = _there([people.confusion(group)])
    parts = [Part("Accuracy per person", opens=True, chosen=found)] if found else []
    if classes or mistaken:
        parts.append(Part("What is taken for what", (), mistaken, classes, opens=True))
    return [*parts, Part("Bytes a day", tables=[people.a_day(group)], opens=True)] if parts else []


def _masks(group: Group) -> list[Part]:
    drawn = _there([charts.mask_curves(group)])
    return [Part("Selective aggregation", drawings=drawn)] if drawn else []


def _holdings(group: Group) -> list[Part]:
    drawn = _there([people.held(group)])
    return [Part("Who holds what", drawings=drawn)] if drawn else []


def _missing_clients(group: Group) -> Part:
    """Who was lost or refused, when and why."""
    table, count, retried = cells.absences(group)
    asked = sum(line.clients.asked for record in group.records for line in record.lines)
    texts = [f"{count} of {asked} times a client that was asked for its work was lost or its update refused."]
    if not count:
        texts = [f"Every client that was asked ({asked} times in all) took part: none was lost, none was refused."]
    if retried:
        texts.append(f"In attempts at rounds that were then tried again, {retried} more were missing.")
    held = cells.limits(group)
    if held.rows:
        texts.append("Some moved farther, or claimed more examples, than the others allow, and count within a bound.")
    return Part("Missing clients", texts, tables=[one for one in (table, held) if one.rows])


def _file_name(text: str) -> str:
    """What a file or folder can be called on any system."""
    return re.sub(r"[^\w .+()-]", "_", text, flags=re.ASCII)[:100].rstrip(" .")


def _weights(group: Group) -> Part:
    """The figures of the weights; and why some of them are not there."""
    spread, lifted, apart = weights.histograms(group), weights.blocks(group), weights.distances(group)
    texts = weights.unreadable(group)
    records = [records[0] for records in group.shown.values()]
    if spread is None and not texts:
        none = records and all(record.config.get("snapshots") == "none" for record in records)
        texts.append(f"No samples of weights were kept{': snapshots = none' if none else ''}.")
    elif apart is None and any((record.path / "devices.json").exists() for record in records):
        texts.append("The weights of real devices stay there: there are no distances between clients.")
    return Part("Weights", texts, _there([spread, lifted, apart]))


def _there(drawings: Sequence[Drawing | None]) -> list[Drawing]:
    return [drawing for drawing in drawings if drawing is not None]


def _save_figures(parts: Sequence[Part], folder: Path) -> dict[str, list[Path]]:
    """The files of each drawing, by its name."""
    folder.mkdir(parents=True, exist_ok=True)
    return {drawing.name: save(drawing, folder) for part in parts for drawing in part.drawings}


def _save_tables(found: Sequence[PaperComparison], folder: Path) -> list[Path]:
    """The paper's tables with our numbers, as Markdown, CSV and LaTeX."""
    paths: list[Path] = []
    for both in found:
        folder.mkdir(parents=True, exist_ok=True)
        texts = {"md": tables.markdown(both), "csv": tables.csv(both), "tex": tables.latex(both)}
        for kind, text in texts.items():
            paths.append(folder / f"{both.table.name}.{kind}")
            atomic_write(paths[-1], text.encode())
    return paths
