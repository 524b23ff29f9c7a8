"""The live progress of a comparison, and its tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from prowd.comparison import ComparisonObserver, Plan, PlannedRun, Row
from prowd.comparison.formats import interval, kilobytes, starred
from prowd.config.schema import RunConfig
from prowd.views.console.words import Clock, percent, say

__all__ = ["ComparisonView", "comparison_tables"]


class ComparisonView(ComparisonObserver):
    """One bar for a whole comparison and a line for each run that is under way; elsewhere a line as a run ends."""

    def __init__(self, console: Console, plan: Plan) -> None:
        self.console = console
        self.runs = plan.runs
        self.reached: dict[PlannedRun, float] = {run: run.config.rounds if run.is_finished else 0 for run in plan.runs}
        self.clock = Clock(sum(run.config.rounds for run in plan.runs), self.done)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[state]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self.made = sum(run.is_finished for run in plan.runs)
        self.total = self.progress.add_task(self._count(), total=self.clock.rounds, state="")
        self.tasks: dict[PlannedRun, TaskID] = {}
        methods, seeds = ({getattr(run, field) for run in plan.runs} for field in ("method", "seed"))
        counts = [(len(methods), "method"), (len(seeds), "seed"), (len(plan.runs), "run")]
        what = f"{plan.config.name}: " + ", ".join(f"{count} {word}{'s' * (count != 1)}" for count, word in counts)
        say(console, f"{what}{f', {self.made} already made' if self.made else ''}")
        say(console, f"results in {plan.path}")
        self.progress.start()
        self.progress.update(self.total, completed=self.done)

    @property
    def done(self) -> float:
        """Rounds that need no more time, those of failed runs among them."""
        return sum(self.reached.values())

    def began(self, run: PlannedRun, rounds: int) -> None:
        """Show a run that is under way; the rounds of an earlier session took no time of this one."""
        self.reached[run] = rounds
        self.clock.skipped += rounds
        name = f"  {run.method}, seed {run.seed}"
        self.tasks[run] = self.progress.add_task(name, total=run.config.rounds, completed=rounds, state="")

    def moved(self, run: PlannedRun, rounds: float) -> None:
        """Move the run's bar and that of the whole."""
        self.reached[run] = rounds
        state = f"round {min(int(rounds) + 1, run.config.rounds)}/{run.config.rounds}"
        self.progress.update(self.tasks[run], completed=rounds, state=state)
        self.progress.update(self.total, completed=self.done, state=self.clock.left(self.done))

    def said(self, run: PlannedRun, text: str) -> None:
        """Print what a run has to say."""
        say(self.console, f"{run.method}, seed {run.seed}: {text}", style="yellow")

    def ended(self, run: PlannedRun, failure: str | None) -> None:
        """Remove the bar of a run, and print its result; the rounds that a failed one lacks are skipped."""
        self.clock.skipped += run.config.rounds - self.reached[run]
        self.reached[run] = run.config.rounds
        if run in self.tasks:
            self.progress.remove_task(self.tasks.pop(run))
        self.made += 1
        self.progress.update(self.total, description=self._count(), completed=self.done)
        summary = run.summary()
        if failure is not None or summary is None:
            say(self.console, f"{run.method}, seed {run.seed} failed: {failure}", style="red")
        elif not self.console.is_terminal:
            accuracy = percent(summary["accuracy"]["trained"])
            left = self.clock.left(self.done)
            say(self.console, f"{self._count()}  {run.method}, seed {run.seed}  {accuracy}  {left}")

    def close(self) -> None:
        """Stop the bar."""
        self.progress.stop()

    def _count(self) -> str:
        return f"{self.made}/{len(self.runs)} runs"


def comparison_tables(config: RunConfig, rows: Sequence[Row], baseline: str) -> list[Table]:
    """The results of a comparison in tables that fit a terminal: accuracy, then differences and traffic."""
    widths = list(dict.fromkeys(width for row in rows for width in row.widths))
    accuracy = _table(f"{config.name}: accuracy after local training, % ± 95 % interval", *widths, "gap", "average")
    headings = (f"against {baseline}", "as received", "up a round", "down a round")
    star = " (* interval excludes zero)" if any(row.difference and row.difference.excludes_zero for row in rows) else ""
    other = _table(f"{config.name}: average against {baseline}{star}, as received, and traffic", *headings)
    for row in rows:
        shown = [interval(row.widths.get(width)) for width in widths]
        accuracy.add_row(row.method, *map(_close, (*shown, interval(row.gap, signed=True), interval(row.average))))
        against = starred(interval(row.difference, signed=True), row.difference), interval(row.received)
        other.add_row(row.method, *map(_close, against), kilobytes(row.bytes_up), kilobytes(row.bytes_down))
    return [accuracy, other]


def _table(title: str, *headings: str) -> Table:
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("method", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _close(text: str) -> str:
    """Narrower: a name of 24 letters and four such figures fit into 80 columns."""
    return text.replace(" ± ", " ±")
