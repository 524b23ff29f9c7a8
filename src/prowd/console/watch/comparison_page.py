"""The page of a comparison, or of any folder with several runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from prowd.bits import Bitwidth
from prowd.console.watch.phrases import again, bar, count, figures, last_line, left, plain, share, silence, title, who
from prowd.console.watch.sight import Picture, Sight, State
from prowd.errors import ConfigError

__all__ = ["comparison_page"]

SHOWN = 3  # lines of a kind below the table
NAME, ACCURACY, GAP = 24, 7, 2  # columns of a method's name and of an accuracy, and between all
STYLES: Mapping[State, str] = {"running": "cyan", "no news": "yellow", "failed": "red", "unreadable": "red"}
IMPORTANT: Sequence[State] = ("running", "no news", "failed", "unreadable", "finished", "waiting")


def comparison_page(picture: Picture, console: Console, height: int | None) -> list[RenderableType]:
    """How far the runs are, each in a line; with a height, those that matter most and how many others there are."""
    head: list[RenderableType] = [Text(title(picture), "bold"), _bar(picture)]
    tail: list[RenderableType] = [Text(plain(text), style) for text, style in _below(picture)]
    runs = list(picture.runs)
    if height is not None:
        room = max(1, height - len(console.render_lines(Group(*head, *tail))) - 3)  # with the heading and its rule
        if len(runs) > room:
            chosen = sorted(range(len(runs)), key=lambda number: IMPORTANT.index(runs[number].state))
            runs = [runs[number] for number in sorted(chosen[: max(1, room - 1)])]
    rest = Counter(run.state for run in picture.runs) - Counter(run.state for run in runs)
    others = ", ".join(f"{rest[state]} {state}" for state in IMPORTANT if rest[state])
    return [*head, _table(picture, runs, console.width), *([Text(f"and {others}")] if others else []), *tail]


def _bar(picture: Picture) -> Table:
    """Rounds of all runs that are made."""
    made = sum(run.made for run in picture.runs)
    total = sum(run.rounds or picture.rounds for run in picture.runs)
    states = Counter(run.state for run in picture.runs)
    after = [f"{states['failed']} failed"] if states["failed"] else []
    if not picture.is_over:
        after += [f"{picture.jobs} at once"] if picture.jobs > 1 else []
        after += [text] if (text := left(picture.left())) else []
    return bar(f"{states['finished']}/{count(len(picture.runs), 'run')} finished", made, total, ", ".join(after))


def _table(picture: Picture, runs: Sequence[Sight], width: int) -> Table:
    """A line for each run. Accuracy is that after local training, of as many widths as there is room for."""
    is_by_name = len({(run.method, run.seed) for run in picture.runs}) < len(picture.runs)
    fixed = [
        (
            _name(run, is_by_name),
            "-" if run.seed is None else str(run.seed),
            _rounds(picture, run),
            run.state,
            "average",
        )
        for run in runs
    ]
    headings = "run" if is_by_name else "method", "seed", "round", "state", "average"
    taken = sum(GAP + max(map(len, column)) for column in zip(headings, *fixed, strict=True)) - GAP
    widths = _widths(picture, max(1, (width - taken) // (ACCURACY + GAP)))
    table = figures(*headings[:3], *map(plain, widths), "average", "state", gap=GAP)
    for run, (name, seed, rounds, state, _) in zip(runs, fixed, strict=True):
        trained = run.reading.trained if run.reading else {}
        average = run.reading.record.average(trained) if run.reading else None
        shown = [share(value, 1) for value in (*map(trained.get, widths), average)]
        table.add_row(Text(name), seed, rounds, *shown, Text(state, STYLES.get(run.state, "")))
    return table


def _below(picture: Picture) -> list[tuple[str, str]]:
    """Failures, silence, damage, and where all that is."""
    failed = [f"{who(run)} {run.state}: {last_line(run.reason)}" for run in picture.runs if run.reason]
    silent = sorted((run for run in picture.runs if run.state == "no news"), key=lambda run: run.silence)
    quiet = _some([f"{who(run)}: {silence(run)}" for run in silent])
    if silent and not any(run.state == "running" for run in picture.runs):
        quiet.append(f"if they were stopped: {again(picture)}")
    damage = [f"{who(run)}: {remark}" for run in picture.runs for remark in run.remarks]
    lines = [(text, "red") for text in _some(failed)] + [(text, "yellow") for text in quiet]
    return [*lines, *((text, "red") for text in (*_some(damage), *picture.remarks)), (str(picture.folder), "")]


def _some(lines: Sequence[str]) -> list[str]:
    more = len(lines) - SHOWN
    return [*lines[:SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _name(run: Sight, is_by_name: bool) -> str:
    """The method, or the folder where two runs are of one method and seed."""
    name = plain(run.name if is_by_name or not run.method else run.method)
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"


def _rounds(picture: Picture, run: Sight) -> str:
    total = run.rounds or picture.rounds
    return f"{run.made}/{total}" if total else "-"


def _widths(picture: Picture, room: int) -> list[str]:
    """The widths of the runs, low ones first; of many those that most runs have, the outer before the middle ones."""
    readings = [run.reading for run in picture.runs if run.reading]
    counts = Counter(width for reading in readings for width in reading.record.mix or reading.trained)
    widths = sorted(counts, key=_bits)
    ends = {width: min(number, len(widths) - 1 - number) for number, width in enumerate(widths)}
    return sorted(sorted(widths, key=lambda width: (-counts[width], ends[width]))[:room], key=_bits)


def _bits(width: str) -> tuple[int, str]:
    try:
        return Bitwidth.parse(width).bits, width
    except ConfigError:
        return 0, width
