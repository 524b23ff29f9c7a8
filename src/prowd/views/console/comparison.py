"""The live progress of a comparison, and its tables."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from prowd.comparison import ComparisonObserver, Plan, PlannedRun, Row
from prowd.comparison.formats import interval, kilobytes, starred
from prowd.config.schema import RunConfig
from prowd.views.console.words import compact_table, duration, narrow, percent, say

__all__ = ["Clock", "ComparisonView", "comparison_tables"]


class ComparisonView(ComparisonObserver):
    """One bar for a whole comparison and a line for each run that is under way; elsewhere a line as a run ends."""

    def __init__(self, console: Console, plan: Plan) -> None:
        self.console = console
        self.clock = Clock(plan.runs)
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
        self.progress.update(self.total, completed=self.clock.done)

    def began(self, run: PlannedRun, rounds: int) -> None:
        """Show a run that is under way."""
        self.clock.began(run, rounds)
        name = f"  {run.method}, seed {run.seed}"
        self.tasks[run] = self.progress.add_task(name, total=run.config.rounds, completed=rounds, state="")

    def moved(self, run: PlannedRun, rounds: float) -> None:
        """Move the run's bar and that of the whole."""
        self.clock.moved(run, rounds)
        state = f"round {min(int(rounds) + 1, run.config.rounds)}/{run.config.rounds}"
        self.progress.update(self.tasks[run], completed=rounds, state=state)
        self.progress.update(self.total, completed=self.clock.done, state=f"{duration(self.clock.left())} left")

    def said(self, run: PlannedRun, text: str) -> None:
        """Print what a run has to say."""
        say(self.console, f"{run.method}, seed {run.seed}: {text}", style="yellow")

    def ended(self, run: PlannedRun, failure: str | None) -> None:
        """Remove the bar of a run, and print its result."""
        self.clock.ended(run)
        if run in self.tasks:
            self.progress.remove_task(self.tasks.pop(run))
        self.made += 1
        self.progress.update(self.total, description=self._count(), completed=self.clock.done)
        summary = run.summary()
        if failure is not None or summary is None:
            say(self.console, f"{run.method}, seed {run.seed} failed: {failure}", style="red")
        elif not self.console.is_terminal:
            accuracy = percent(summary["accuracy"]["trained"])
            left = f"{duration(self.clock.left())} left"
            say(self.console, f"{self._count()}  {run.method}, seed {run.seed}  {accuracy}  {left}")

    def close(self) -> None:
        """Stop the bar."""
        self.progress.stop()

    def _count(self) -> str:
        return f"{self.made}/{len(self.clock.runs)} runs"


class Clock:
    """How long a comparison still takes: the rounds that are left, at the pace of those since it began."""

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        self.runs = runs
        self.reached = {run: float(run.config.rounds if run.is_finished else 0) for run in runs}
        self.rounds = sum(run.config.rounds for run in runs)
        self.made, self.began_at = 0.0, time.perf_counter()

    @property
    def done(self) -> float:
        """Rounds that need no more time, those of failed runs among them."""
        return sum(self.reached.values())

    def began(self, run: PlannedRun, rounds: float) -> None:
        """A run starts, or goes on after so many rounds of an earlier session, which tell nothing of the pace."""
        self.reached[run] = rounds

    def moved(self, run: PlannedRun, rounds: float) -> None:
        """A run has made so many rounds."""
        self.made += rounds - self.reached[run]
        self.reached[run] = rounds

    def ended(self, run: PlannedRun) -> None:
        """A run is over, even if it failed."""
        self.reached[run] = run.config.rounds

    def left(self) -> float:
        """Seconds until the last run ends, where runs take turns as they did so far."""
        elapsed = time.perf_counter() - self.began_at
        return elapsed / self.made * (self.rounds - self.done) if self.made else 0.0


def comparison_tables(config: RunConfig, rows: Sequence[Row], baseline: str) -> list[Table]:
    """The results of a comparison in tables that fit a terminal: accuracy, then differences and traffic."""
    widths = list(dict.fromkeys(width for row in rows for width in row.widths))
    title = f"{config.name}: accuracy after local training, % ± 95 % interval"
    accuracy = compact_table(*widths, "gap", "average", title=title)
    headings = (f"against {baseline}", "as received", "up a round", "down a round")
    star = " (* interval excludes zero)" if any(row.difference and row.difference.excludes_zero for row in rows) else ""
    title = f"{config.name}: average against {baseline}{star}, as received, and traffic"
    other = compact_table(*headings, title=title)
    for row in rows:
        shown = [interval(row.widths.get(width)) for width in widths]
        accuracy.add_row(row.method, *map(narrow, (*shown, interval(row.gap, signed=True), interval(row.average))))
        against = starred(interval(row.difference, signed=True), row.difference), interval(row.received)
        other.add_row(row.method, *map(narrow, against), kilobytes(row.bytes_up), kilobytes(row.bytes_down))
    return [accuracy, other]
