"""The tables of the page: what a cell shows, and by what it is sorted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prowd.comparison import Estimate, Row
from prowd.comparison.formats import interval, kilobytes, starred
from prowd.config.options import all_options
from prowd.config.schema import RunConfig
from prowd.config.tables import flat
from prowd.methods import METHODS
from prowd.runs.read import Record
from prowd.views.report.charts import bytes_a_client
from prowd.views.report.groups import FREE, OWN, Group
from prowd.views.report.tables import Beside, shown, values

__all__ = ["Cell", "PageTable", "absences", "headline", "printed", "provenance", "settings", "traffic"]

MOST_EVENTS = 500


@dataclass(frozen=True)
class Cell:
    """What is shown, and the number it is sorted by; text is sorted as such."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class PageTable:
    """A table with a heading for each column; the columns of numbers stand to the right."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: frozenset[int] = frozenset()
    wide: bool = False
    """Whether its texts stay on one line each."""


def headline(group: Group) -> list[PageTable]:
    """What the methods came to."""
    if not group.rows:
        return []
    several = len(group.rows) > 1
    against = [f"against {group.baseline}"] if several else []
    headings = [
        "method",
        "seeds",
        *group.widths,
        "gap",
        "average",
        *against,
        "as received",
        "up a round",
        "down a round",
    ]
    rows = [_method(group, row, several) for row in group.rows]
    caption = "Accuracy in % after local training; gap: highest width minus lowest; as received: before local training"
    if any(row.seeds > 1 for row in group.rows):
        caption += "; mean ± 95 % confidence interval over the seeds (Student's t)"
    if several and any(row.difference and row.difference.half for row in group.rows):
        caption += f"; differences to {group.baseline} seed by seed, * where the interval excludes zero"
    return [PageTable(f"{caption}. Traffic of all clients.", headings, rows, frozenset(range(1, len(headings))))]


def _method(group: Group, row: Row, several: bool) -> list[Cell]:
    difference = Cell(starred(interval(row.difference, signed=True), row.difference), _mean(row.difference))
    return [
        Cell(row.method),
        Cell(str(row.seeds), row.seeds),
        *(_estimate(row.widths.get(width)) for width in group.widths),
        _estimate(row.gap, signed=True),
        _estimate(row.average),
        *([difference] if several else []),
        _estimate(row.received),
        Cell(kilobytes(row.bytes_up), row.bytes_up),
        Cell(kilobytes(row.bytes_down), row.bytes_down),
    ]


def printed(both: Beside) -> PageTable:
    """A table of the paper and our numbers."""
    headings, *body = shown(both)
    rows = [
        [Cell(line.method), *(Cell(text, _mean(value)) for text, (_, value) in zip(texts, values(line), strict=True))]
        for line, (_, *texts) in zip(both.lines, body, strict=True)
    ]
    return PageTable(both.caption, headings, rows, frozenset(range(1, len(headings))))


def traffic(group: Group) -> PageTable:
    """Bytes per client: of each width and method, a round and in all."""
    rows: list[list[Cell]] = []
    for method, records in group.shown.items():
        rounds = max(len(record.lines) for record in records)
        for width in group.widths:
            up, down = (bytes_a_client(records, width, way) for way in ("up", "down"))
            members = group.first.mix.get(width, 0)
            whole = (up + down) * rounds / 1e6
            rows.append([
                Cell(method), Cell(width), Cell(str(members), members), Cell(kilobytes(up), up),
                Cell(kilobytes(down), down), Cell(f"{whole:,.2f} MB", whole),
            ])  # fmt: skip
    headings = ["method", "width", "clients", "up a round", "down a round", "if asked in every round"]
    return PageTable("Bytes of one client that crossed the wire", headings, rows, frozenset({2, 3, 4, 5}))


def absences(group: Group) -> tuple[PageTable, int, int]:
    """Who was missing, when and why; how many there were in rounds, and how many in vain attempts at rounds."""
    found = [
        [
            Cell(record.path.name), Cell(str(line.round), line.round), Cell(str(one.client), one.client),
            Cell(one.width), Cell(kind if not one.attempt else f"{kind}, attempt {one.attempt}"), Cell(one.reason),
        ]
        for record in group.records for line in record.lines
        for kind in ("lost", "refused") for one in getattr(line.clients, kind)
    ]  # fmt: skip
    caption = "Clients whose work is missing from a round"
    if len(found) > MOST_EVENTS:
        caption += f" (the first {MOST_EVENTS} of {len(found)}; rounds.jsonl has all)"
    headings = ["run", "round", "client", "width", "what", "reason"]
    vain = sum("attempt" in what.text for *_, what, _ in found)
    return PageTable(caption, headings, found[:MOST_EVENTS], frozenset({1, 2})), len(found) - vain, vain


def settings(group: Group) -> PageTable:
    """The settings that are not at their defaults."""
    defaults = RunConfig.model_construct().model_dump(mode="json", exclude={"options"})
    shown: dict[str, object] = {}
    for key, value in group.first.config.items():
        if key in FREE and any(one.config.get(key) != value for one in group.records):
            continue
        if key not in OWN | {"version", "name", "data_sha256"} and value != defaults.get(key):
            inner = defaults.get(key)
            if isinstance(value, Mapping) and isinstance(inner, Mapping):
                shown |= {f"{key}.{name}": one for name, one in value.items() if one != inner.get(name)}
            else:
                shown[key] = Path(value).name if key == "data" and isinstance(value, str) else value
    shown |= _options(group)
    rows = [[Cell(key), Cell(_plain(value))] for key, value in shown.items()]
    return PageTable("Settings of all these runs that differ from the defaults", ["setting", "value"], rows)


def _options(group: Group) -> dict[str, object]:
    """Options of the methods that are not at their defaults, where those are known."""
    shown: dict[str, object] = {}
    for label, records in group.runs.items():
        options = records[0].config.get("options")
        if isinstance(options, Mapping) and records[0].method in METHODS:
            defaults = flat(all_options(METHODS[records[0].method]()))
            changed = {name: value for name, value in flat(options).items() if defaults.get(name) != value}
            shown |= {f"options.{name} of {label}": value for name, value in changed.items()}
    return shown


def provenance(records: Sequence[Record]) -> PageTable:
    """Which code made which run, where, and by what command."""
    rows: list[list[Cell]] = []
    for record in records:
        for session in record.sessions:
            machine = session.get("machine")
            facts = machine if isinstance(machine, Mapping) else {}
            commit = _word(session.get("commit")) or "unknown"
            rows.append([
                Cell(record.path.name), Cell(str(record.seed), record.seed), Cell(_word(session.get("version"))),
                Cell(commit.rstrip("+")[:12] + "+" * commit.endswith("+")), _round(session.get("round")),
                Cell(_word(session.get("started"))[:16].replace("T", " ")),
                Cell(_machine(facts)),
                Cell(_word(session.get("command"))),
            ])  # fmt: skip
    headings = ["run", "seed", "prowd", "commit", "from round", "started (UTC)", "machine", "command"]
    caption = "Code (+: with changes that are in no commit), machine and command; a line for each session of a run"
    return PageTable(caption, headings, rows, frozenset({1, 4}), wide=True)


def _round(done: object) -> Cell:
    return Cell(str(done + 1), done + 1) if isinstance(done, int) and abs(done) < 10**9 else Cell("")


def _machine(facts: Mapping[str, Any]) -> str:
    words = {"cores": "{} cores", "python": "Python {}", "torch": "PyTorch {}"}
    return ", ".join(words.get(key, "{}").format(_word(value)) for key, value in facts.items() if _word(value))


def _word(value: object) -> str:
    """A fact as text; what is neither text nor number is none."""
    return str(value) if isinstance(value, str | int | float) else ""


def _estimate(value: Estimate | None, *, signed: bool = False) -> Cell:
    return Cell(interval(value, signed=signed), _mean(value))


def _mean(value: Estimate | None) -> float | None:
    return None if value is None else value.mean


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
