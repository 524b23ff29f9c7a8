"""What a person sees in a terminal: the live progress of a run, closing tables, download bars."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from prowd.config import RunConfig
from prowd.data import Progress as DownloadProgress
from prowd.engine import Federation
from prowd.methods import ServerState
from prowd.rounds import RoundReport
from prowd.session import RunResult, Watcher

__all__ = ["RunView", "download_bar", "result_table", "say", "size"]

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


class RunView(Watcher):
    """Live progress: a bar on a terminal, a line a round elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            TextColumn("round {task.fields[round]}/{task.fields[rounds]}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[accuracy]}"),
            TextColumn("[dim]{task.fields[traffic]}[/]"),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self.task: TaskID | None = None
        self.rounds, self.first, self.began_at = 0, 0, 0.0
        self.up, self.down = 0, 0

    def began(self, config: RunConfig, federation: Federation, path: Path, done: int) -> None:
        """Say what is run and where the results go, and start the bar."""
        weights = federation.scene.architecture.parameters
        what = f"{config.name}: {federation.method.name} on {config.data}, clients {config.clients}"
        say(self.console, f"{what}, {weights:,} weights, seed {config.seed}")
        say(self.console, f"results in {path}" + (f", resumed after round {done}" if done else ""))
        self.rounds, self.first, self.began_at = config.rounds, done, time.perf_counter()
        self.task = self.progress.add_task(
            "", total=config.rounds, completed=done, round=min(done + 1, config.rounds), rounds=config.rounds,
            accuracy="", traffic="", left="",
        )  # fmt: skip
        self.progress.start()

    def replied(self, round_: int, done: int, asked: int) -> None:
        """Move the bar by one client."""
        if self.task is not None:
            completed = round_ - 1 + done / asked
            self.progress.update(self.task, completed=completed, round=round_, left=self._left(completed))

    def finished(self, report: RoundReport, state: ServerState) -> None:
        """Show what the round came to."""
        self.up += sum(report.bytes_up.values())
        self.down += sum(report.bytes_down.values())
        traffic = f"↑{size(self.up)} ↓{size(self.down)}"
        for absence in (*report.lost, *report.refused):
            what = f"client {absence.client} ({absence.width}) left out: {absence.reason}"
            say(self.console, f"round {report.round}: {what}", style="yellow")
        if self.task is not None:
            left = self._left(report.round)
            self.progress.update(self.task, completed=report.round, traffic=traffic, left=left)
            if report.trained:
                self.progress.update(self.task, accuracy=percent(report.trained))
            if not self.console.is_terminal:
                measured = percent(report.trained) or "not measured"
                say(self.console, f"round {report.round}/{self.rounds}  {measured}  {traffic}  {left}")
        if report.round == self.rounds:
            self.close()

    def close(self) -> None:
        """Stop the bar."""
        self.progress.stop()

    def _left(self, completed: float) -> str:
        done = completed - self.first
        if done <= 0:
            return ""
        elapsed = time.perf_counter() - self.began_at
        return f"{duration(elapsed / done * (self.rounds - completed))} left"


def result_table(result: RunResult) -> Table:
    """The closing table: accuracy and traffic of every width."""
    summary = result.summary
    table = Table(title=Text(f"{summary['name']}: {summary['method']} after {summary['rounds']} rounds"))
    table.add_column("clients")
    for heading in ("as received", "after training", "sent up", "received"):
        table.add_column(heading, justify="right")
    for width in summary["bytes"]["down"]:
        received, trained = (summary["accuracy"][when].get(width) for when in ("received", "trained"))
        up, down = (summary["bytes"][way].get(width, 0) for way in ("up", "down"))
        table.add_row(width, _share(received), _share(trained), size(up), size(down))
    totals = [size(sum(summary["bytes"][way].values())) for way in ("up", "down")]
    means = [_share(summary["average_accuracy"][when]) for when in ("received", "trained")]
    table.add_section()
    table.add_row("all", *means, *totals)
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}%"


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
