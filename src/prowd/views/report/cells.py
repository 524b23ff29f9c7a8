"""The tables of the page, as text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prowd.comparison.formats import interval, kilobytes, starred
from prowd.config.schema import RunConfig
from prowd.config.tables import flat
from prowd.runs.read import Record
from prowd.views.report.groups import FREE, OWN, Group, default_options
from prowd.views.report.tables import PaperComparison, shown

__all__ = [
    "PageTable",
    "absences",
    "bytes_a_client",
    "final_models",
    "headline",
    "limits",
    "printed",
    "provenance",
    "settings",
    "traffic",
]

MOST_EVENTS = 500


@dataclass(frozen=True)
class PageTable:
    """A table with a heading for each column; columns of numbers stand to the right and are sorted as numbers."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Collection[int] = ()
    wide: bool = False
    """Whether its texts stay on one line each."""
    total: Sequence[str] = ()
    """A last row that stays the last however the others are sorted."""
    has_bars: bool = False
    """Whether its numbers are percentages that are seen as bars as well."""


def headline(group: Group) -> PageTable:
    """Accuracy and traffic of the methods."""
    several = len(group.rows) > 1
    against = [f"against {group.baseline}"] * several
    traffic = ["as received", "up a round", "down a round"]
    headings = ["method", "seeds", *group.widths, "gap", "average", *against, *traffic]
    rows = [
        [
            row.method,
            str(row.seeds),
            *(interval(row.widths.get(width)) for width in group.widths),
            interval(row.gap, signed=True),
            interval(row.average),
            *[starred(interval(row.difference, signed=True), row.difference)] * several,
            interval(row.received),
            kilobytes(row.bytes_up),
            kilobytes(row.bytes_down),
        ]
        for row in group.rows
    ]
    caption = "Accuracy in % after local training; gap: highest width minus lowest; as received: before local training"
    if any(row.seeds > 1 for row in group.rows):
        caption += "; mean ± 95 % confidence interval over the seeds (Student's t)"
    if several and any(row.difference and row.difference.half for row in group.rows):
        caption += f"; differences to {group.baseline} seed by seed, * where the interval excludes zero"
    return PageTable(f"{caption}. Traffic of all clients.", headings, rows, range(1, len(headings)))


def printed(both: PaperComparison) -> PageTable:
    """A table of the paper and our numbers."""
    headings, *rows = shown(both)
    return PageTable(both.caption, headings, rows, range(1, len(headings)))


def traffic(group: Group) -> PageTable:
    """Bytes per client: of each width and method, a round and in all."""
    rows: list[list[str]] = []
    for method, records in group.shown.items():
        rounds = max(len(record.lines) for record in records)
        for width in group.widths:
            up, down = (bytes_a_client(records, width, way) for way in ("up", "down"))
            whole = f"{(up + down) * rounds / 1e6:,.2f} MB"
            members = str(group.first.mix.get(width, 0))
            rows.append([method, width, members, kilobytes(up), kilobytes(down), whole])
    headings = ["method", "width", "clients", "up a round", "down a round", "if asked in every round"]
    return PageTable("Bytes of one client that crossed the wire", headings, rows, range(2, len(headings)))


def bytes_a_client(records: Sequence[Record], width: str, way: str) -> float:
    """Mean bytes of one client of a width in a round in which it sends, or is sent, something."""
    side = ("up", "down").index(way)
    sizes = [
        moved[side]
        for record in records
        for line in record.lines
        for client, moved in line.traffic.clients.items()
        if record.widths.get(client) == width and moved[side]
    ]
    return sum(sizes) / len(sizes) if sizes else 0.0


def absences(group: Group) -> tuple[PageTable, int, int]:
    """Who was missing, when and why; how many there were in rounds, and how many in attempts that were repeated."""
    found = [
        (record, line, kind, one)
        for record in group.records
        for line in record.lines
        for kind in ("lost", "refused")
        for one in getattr(line.clients, kind)
    ]
    rows = [
        [record.path.name, str(line.round), str(one.client), one.width,
         f"{kind}, attempt {one.attempt}" if one.attempt else kind, one.reason]
        for record, line, kind, one in found[:MOST_EVENTS]
    ]  # fmt: skip
    caption = "Clients whose work is missing from a round"
    if len(found) > MOST_EVENTS:
        caption += f" (the first {MOST_EVENTS} of {len(found)}; rounds.jsonl has all)"
    headings = ["run", "round", "client", "width", "what", "reason"]
    retried = sum(one.attempt > 0 for *_, one in found)
    return PageTable(caption, headings, rows, {1, 2}), len(found) - retried, retried


def limits(group: Group) -> PageTable:
    """Whose update was held to a bound, when, and to which."""
    found = [(record, line, one) for record in group.records for line in record.lines for one in line.clients.limited]
    rows = [
        [record.path.name, str(line.round), str(one.client), one.width, one.what, one.reason]
        for record, line, one in found[:MOST_EVENTS]
    ]
    caption = "Clients that counted within a bound, or were trimmed"
    if len(found) > MOST_EVENTS:
        caption += f" (the first {MOST_EVENTS} of {len(found)}; rounds.jsonl has all)"
    return PageTable(caption, ["run", "round", "client", "width", "what", "reason"], rows, {1, 2})


def final_models(group: Group) -> PageTable:
    """The last model of every run, as the server has measured it at each width."""
    rows: list[list[str]] = []
    for method, records in group.counted.items():
        for record in records:
            found, made = record.latest("server"), str((record.summary or {}).get("weights_sha256", ""))[:12]
            if found:
                shares = [f"{100 * found[width]:.2f}" if width in found else "" for width in group.widths]
                rows.append([method, str(record.seed), *shares, made])
    caption = "Accuracy in % of the final model, measured by the server; all other accuracies are what devices say"
    return PageTable(caption, ["method", "seed", *group.widths, "weights"], rows, range(1, 2 + len(group.widths)))


def settings(group: Group) -> PageTable:
    """The settings and the options of each method that are not at their defaults, as far as these are known."""
    config = group.first.config
    defaults = flat(RunConfig.model_construct().model_dump(mode="json", exclude={"options"}))
    varied = {key for key in FREE if any(one.config.get(key) != config.get(key) for one in group.records)}
    hidden = OWN | varied | {"version", "name", "data_sha256"}
    common = flat({key: value for key, value in config.items() if key not in hidden})
    shown = {key: value for key, value in common.items() if value != defaults.get(key)}
    if isinstance(shown.get("data"), str):
        shown["data"] = Path(shown["data"]).name
    for label, records in group.runs.items():
        options = records[0].config.get("options")
        usual = default_options(records[0].method)
        if isinstance(options, Mapping):
            changed = {name: value for name, value in flat(options).items() if usual.get(name) != value}
            shown |= {f"options.{name} of {label}": value for name, value in changed.items()}
    rows = [
        [key, ", ".join(map(str, value)) if isinstance(value, list) else str(value)] for key, value in shown.items()
    ]
    return PageTable("Settings of all these runs that differ from the defaults", ["setting", "value"], rows)


def provenance(records: Sequence[Record]) -> PageTable:
    """Which code made which run, where, and by what command."""
    words = {"cores": "{} cores", "python": "Python {}", "torch": "PyTorch {}"}
    rows: list[list[str]] = []
    for record, session in [(one, session) for one in records for session in one.sessions]:
        facts, machine = _facts(session), _facts(session.get("machine"))
        commit, done = facts.get("commit") or "unknown", session.get("round")
        rows.append(
            [
                record.path.name,
                str(record.seed),
                facts.get("version", ""),
                commit.rstrip("+")[:12] + "+" * commit.endswith("+"),
                str(done + 1) if isinstance(done, int) else "",
                facts.get("started", "")[:16].replace("T", " "),
                ", ".join(words.get(key, "{}").format(word) for key, word in machine.items() if word),
                facts.get("command", ""),
            ]
        )
    headings = ["run", "seed", "prowd", "commit", "from round", "started (UTC)", "machine", "command"]
    caption = "Code (+: with changes that are in no commit), machine and command; a line for each session of a run"
    return PageTable(caption, headings, rows, {1, 4}, wide=True)


def _facts(values: object) -> dict[str, str]:
    """Facts as text; what is neither text nor number is none."""
    named = values.items() if isinstance(values, Mapping) else ()
    return {key: str(value) for key, value in named if isinstance(value, str | int | float)}
