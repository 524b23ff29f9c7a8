"""Formats of numbers, lines and tables in a terminal, and the progress bar of a download."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from prowd.data import Progress as DownloadProgress

__all__ = ["compact_table", "download_bar", "duration", "narrow", "percent", "say", "size"]

UNITS = ("B", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """Bytes as people read them."""
    unit = 0
    while count >= 1000 and unit < len(UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {UNITS[unit]}" if unit == 0 else f"{count:.1f} {UNITS[unit]}"


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def percent(accuracy: Mapping[str, float]) -> str:
    """Accuracy of every width on one line."""
    return "  ".join(f"{width} {100 * value:.1f}%" for width, value in accuracy.items())


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print a line as it is: brackets are brackets, and a long path stays whole."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def compact_table(*headings: str, title: str | None = None) -> Table:
    """A table of figures by method that fits 80 columns."""
    shown = None if title is None else Text(title)
    table = Table(title=shown, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("method", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def narrow(interval: str) -> str:
    """An interval without its blank: a name of 24 letters and four such figures fit into 80 columns."""
    return interval.replace(" ± ", " ±")


@contextmanager
def download_bar(console: Console) -> Iterator[DownloadProgress]:
    """A progress bar for data that has to be fetched; nothing is shown until there is something to fetch."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def show(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
                if not console.is_terminal:
                    console.print(what)
            progress.update(tasks[what], completed=done, total=total)

        yield show
