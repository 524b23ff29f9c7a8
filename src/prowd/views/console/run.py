"""The live progress of a run, and its closing table."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from prowd.config.schema import RunConfig
from prowd.federation.engine import Federation
from prowd.federation.report import RoundReport
from prowd.methods import ServerState
from prowd.runs.observe import RunObserver
from prowd.runs.run import RunResult
from prowd.views.console.words import Clock, percent, say, size

__all__ = ["RunView", "result_table"]


class RunView(RunObserver):
    """Live progress: a bar on a terminal, a line a round elsewhere."""

    task: TaskID
    clock: Clock

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
        self.up, self.down = 0, 0
        self.held: set[tuple[int, str]] = set()

    def began(self, config: RunConfig, federation: Federation, path: Path, done: int) -> None:
        """Say what is run and where the results go, and start the bar."""
        weights = federation.scene.architecture.parameters
        what = f"{config.name}: {federation.method.name} on {config.data}, clients {config.clients}"
        say(self.console, f"{what}, {weights:,} weights, seed {config.seed}")
        say(self.console, f"results in {path}" + (f", resumed after round {done}" if done else ""))
        self.clock = Clock(config.rounds, done)
        self.task = self.progress.add_task(
            "", total=config.rounds, completed=done, round=min(done + 1, config.rounds), rounds=config.rounds,
            accuracy="", traffic="", left="",
        )  # fmt: skip
        self.progress.start()

    def replied(self, round_: int, done: int, asked: int) -> None:
        """Move the bar by one client."""
        completed = round_ - 1 + done / asked
        self.progress.update(self.task, completed=completed, round=round_, left=self.clock.left(completed))

    def finished(self, report: RoundReport, state: ServerState) -> None:
        """Show the round's accuracy and traffic."""
        self.up += sum(report.traffic.up.values())
        self.down += sum(report.traffic.down.values())
        traffic = f"↑{size(self.up)} ↓{size(self.down)}"
        for text in report.left_out():
            say(self.console, text, style="yellow")
        for limit, text in zip(report.clients.limited, report.held(), strict=True):
            if (limit.client, limit.what) not in self.held:  # a client that claims too much does so in every round
                say(self.console, text, style="yellow")
                self.held.add((limit.client, limit.what))
        left = self.clock.left(report.round)
        self.progress.update(self.task, completed=report.round, traffic=traffic, left=left)
        if report.accuracy.trained:
            self.progress.update(self.task, accuracy=percent(report.accuracy.trained))
        if not self.console.is_terminal:
            measured = percent(report.accuracy.trained) or "not measured"
            say(self.console, f"round {report.round}/{self.clock.rounds}  {measured}  {traffic}  {left}")
        if report.round == self.clock.rounds:
            self.close()

    def close(self) -> None:
        """Stop the bar."""
        self.progress.stop()


def result_table(result: RunResult) -> Table:
    """The closing table: accuracy and traffic of every width.

    The first two accuracies are what devices say; the final model is measured by the server.
    """
    summary = result.summary
    table = Table(title=Text(f"{summary['name']}: {summary['method']} after {summary['rounds']} rounds"))
    table.add_column("clients")
    for heading in ("as received", "after training", "final model", "sent up", "received"):
        table.add_column(heading, justify="right")
    for width in summary["bytes"]["down"]:
        accuracies = [_share(summary["accuracy"][when].get(width)) for when in ("received", "trained", "server")]
        up, down = (summary["bytes"][way].get(width, 0) for way in ("up", "down"))
        table.add_row(width, *accuracies, size(up), size(down))
    totals = [size(sum(summary["bytes"][way].values())) for way in ("up", "down")]
    means = [_share(summary["average_accuracy"][when]) for when in ("received", "trained", "server")]
    table.add_section()
    table.add_row("all", *means, *totals)
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}%"
