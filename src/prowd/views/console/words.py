"""Formats of numbers and lines in a terminal, the time that is left, and the progress bar of a download."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from prowd.data import Progress as DownloadProgress

__all__ = ["Clock", "download_bar", "duration", "percent", "say", "size"]

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


class Clock:
    """The time that is left of some rounds, at the pace of those that were made since it was started."""

    def __init__(self, rounds: int, skipped: float) -> None:
        self.rounds, self.skipped, self.began_at = rounds, skipped, time.perf_counter()

    def left(self, done: float) -> str:
        """What is left after so many rounds; those that were skipped tell nothing of the pace."""
        made = done - self.skipped
        if made <= 0:
            return ""
        return f"{duration((time.perf_counter() - self.began_at) / made * (self.rounds - done))} left"


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
