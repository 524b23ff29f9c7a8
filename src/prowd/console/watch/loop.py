"""The watching itself: a live page on a terminal, lines elsewhere, until everything has ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from prowd.console.watch.comparison_page import comparison_page
from prowd.console.watch.follower import Follower
from prowd.console.watch.lines import RoundLines
from prowd.console.watch.run_page import run_page
from prowd.console.watch.sight import Picture

__all__ = ["page", "watch"]


def watch(
    folder: Path,
    console: Console,
    *,
    every: float = 1.0,
    once: bool = False,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Picture:
    """Follow what is in a folder until all of it has ended, or look at it once; returns what was seen last.

    Whatever ends the watching, Ctrl-C too, the last page stays on the screen.
    """
    with _quiet():
        follower = Follower(folder, now)
        picture = follower.look()
        is_live = console.is_terminal and not console.is_dumb_terminal
        live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")
        lines = RoundLines(console)

        def tell() -> None:
            if is_live:
                live.start()
                live.update(Group(*page(picture, console, console.height)), refresh=True)
            else:
                lines.tell(picture)

        try:
            if not once and not picture.is_over:
                tell()
            while not once and not picture.is_over:
                sleep(every)
                picture = follower.look()
                tell()
            return picture
        finally:
            live.stop()
            for part in page(picture, console):
                console.print(part, soft_wrap=isinstance(part, Text))


def page(picture: Picture, console: Console, height: int | None = None) -> list[RenderableType]:
    """All that is to be said; with a height, in so many lines."""
    if not picture.runs:
        return [Text(f"{picture.folder}: waiting for the first round")]
    (run, *_) = picture.runs
    if picture.is_single and run.reading is not None:
        return run_page(picture, run, run.reading, console.width)
    return comparison_page(picture, console, height)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of those who read files, which would tear a live page; what matters is on it."""
    log = logging.getLogger("prowd")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
