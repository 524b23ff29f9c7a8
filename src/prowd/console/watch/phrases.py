"""What is said of a run that is watched, in words and small signs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from statistics import fmean

from rich import box
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from prowd.console.watch.sight import Picture, Sight
from prowd.console.words import duration, size

__all__ = [
    "absences", "again", "bar", "count", "figures", "last_line", "left", "moved", "plain", "share", "silence", "span",
    "sparkline", "title", "who",
]  # fmt: skip

BLOCKS = "▁▂▃▄▅▆▇█"


def title(picture: Picture) -> str:
    """What is watched."""
    records = [run.reading.record for run in picture.runs if run.reading]
    if picture.is_single:
        (record,) = records
        return plain(f"{record.name}: {record.method}, clients {record.config.get('clients', '?')}, seed {record.seed}")
    methods, seeds = {run.method for run in picture.runs} - {""}, {run.seed for run in picture.runs} - {None}
    name = records[0].name if len({record.name for record in records}) == 1 else picture.folder.resolve().name
    counts = count(len(methods), "method"), count(len(seeds), "seed"), count(len(picture.runs), "run")
    return plain(f"{name}: {', '.join(counts)}")


def who(run: Sight) -> str:
    """A run among others."""
    return plain(f"{run.method}, seed {run.seed}" if run.method else run.name)


def left(seconds: float | None) -> str:
    """The time that is left, where it is known."""
    return f"{duration(seconds)} left" if seconds is not None and seconds < 1e9 else ""


def silence(run: Sight) -> str:
    """How long nothing was heard of a run, and what would be usual."""
    took = "no round is finished yet" if run.pace is None else f"a round took {span(run.pace)}"
    return f"no news for {span(run.silence)} ({took})"


def again(picture: Picture) -> str:
    """How to go on with what was stopped."""
    if not picture.is_single:
        return "the same prowd compare goes on with them" if picture.plan else "prowd run --resume DIR goes on with one"
    if (picture.folder / "devices.json").exists():
        return "go on with it on Flower (docs/deploy.md)"
    return f"prowd run --resume {shlex.quote(str(picture.folder))}"


def absences(run: Sight, first: int = 0) -> list[str]:
    """Clients whose work is missing from a round, and why."""
    return [
        plain(
            f"round {line.round}: client {absent.client} ({absent.width}) {word}: {absent.reason or 'no reason given'}"
        )
        for line in (run.reading.record.lines[first:] if run.reading else ())
        for word, found in (("lost", line.clients.lost), ("refused", line.clients.refused))
        for absent in found
    ]


def span(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(min(seconds, 1e12)), 60)
    if minutes < 1:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 1:
        return f"{minutes} min {rest} s"
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days"


def sparkline(values: Iterable[float], width: int) -> str:
    """The course of an accuracy, from its lowest to its highest, in so many characters."""
    known = [min(value, 1.0) for value in values if value >= 0]
    number = min(width, len(known))
    if number < 1:
        return ""
    means = [fmean(known[n * len(known) // number : (n + 1) * len(known) // number]) for n in range(number)]
    low, high = min(means), max(means)
    if high == low:
        return BLOCKS[3] * number
    return "".join(BLOCKS[round((value - low) / (high - low) * (len(BLOCKS) - 1))] for value in means)


def plain(text: str) -> str:
    """A text on one line and without anything that would steer a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def last_line(reason: str) -> str:
    """What a failure comes down to: of a traceback the last line."""
    return plain((reason.strip().splitlines() or ["?"])[-1])[:200]


def moved(count: int) -> str:
    """Bytes, however many a damaged file may say."""
    return size(min(count, 10**30))


def share(value: float | None, digits: int) -> str:
    """An accuracy, if it can be one."""
    if value is None:
        return "-"
    return f"{100 * value:.{digits}f}%" if abs(value) < 100 else "?"


def count(number: int, word: str) -> str:
    """As in 1 run, 2 runs."""
    return f"{number} {word}{'s' * (number != 1)}"


def bar(before: str, done: float, total: float, after: str) -> Table:
    """A bar between two texts."""
    grid = Table.grid(padding=(0, 1, 0, 0), expand=True, pad_edge=False)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_row(Text(before), ProgressBar(total=max(total, 1), completed=done), Text(after))
    return grid


def figures(*headings: str, gap: int) -> Table:
    """An empty table. Words, in the first column and under headings of words, are to the left, figures to the right."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), pad_edge=False, show_edge=False)
    for number, heading in enumerate(headings):
        is_text = number == 0 or heading in ("", "state")
        table.add_column(Text(heading), no_wrap=True, justify="left" if is_text else "right")
    return table
