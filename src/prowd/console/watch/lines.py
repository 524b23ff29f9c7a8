"""A watched run in lines, for output that is no terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Console

from prowd.console.watch.phrases import absences, last_line, left, moved, plain, silence, title, who
from prowd.console.watch.sight import Picture, Sight
from prowd.console.words import percent, say

__all__ = ["RoundLines"]

News = Iterator[tuple[str, str | None]]


class RoundLines:
    """A line for each round that is new, and for what else happens to a run."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.told: dict[str, Sight] | None = None
        self.is_waiting = False

    def tell(self, picture: Picture) -> None:
        """Say what is new since the last picture; of the first one only what it is and how far."""
        if not picture.runs:
            if not self.is_waiting:
                say(self.console, f"{picture.folder}: waiting for the first round")
            self.is_waiting = True
            return
        if self.told is None:
            self._introduce(picture)
        for run in picture.runs:
            name = "" if picture.is_single else f"{who(run)}: "
            for text, style in self._news(run):
                say(self.console, f"{name}{text}", style)
        self.told = {run.name: run for run in picture.runs}

    def _introduce(self, picture: Picture) -> None:
        counts = Counter(run.state for run in picture.runs)
        states = "" if picture.is_single else f" ({', '.join(f'{number} {state}' for state, number in counts.items())})"
        say(self.console, f"{title(picture)}{states}")
        say(self.console, f"in {picture.folder}")

    def _news(self, run: Sight) -> News:
        before = self.told.get(run.name) if self.told else None
        made = before.made if before else 0
        if self.told is None:
            if run.state == "running":
                yield f"{run.made} of {run.rounds} rounds are made", None
        elif run.made < made:
            yield f"goes on after round {run.made}", None
        else:
            yield from _rounds(run, made)
        if run.state == "no news" and (before is None or before.state != "no news"):
            yield silence(run), "yellow"
        if run.reason and (before is None or before.reason != run.reason):
            yield f"{run.state}: {last_line(run.reason)}", "red"
        for remark in run.remarks:
            if before is None or remark not in before.remarks:
                yield plain(remark), "red"


def _rounds(run: Sight, made: int) -> News:
    """The rounds after those that were made before."""
    for text in absences(run, made):
        yield text, "yellow"
    lines = run.reading.record.lines if run.reading else ()
    up, down = (sum(sum(getattr(line.traffic, way).values()) for line in lines[:made]) for way in ("up", "down"))
    for line in lines[made:]:
        up, down = up + sum(line.traffic.up.values()), down + sum(line.traffic.down.values())
        measured = plain(percent(line.accuracy.trained)) or "not measured"
        rest = left(run.left) if line is lines[-1] else ""
        yield f"round {line.round}/{run.rounds}  {measured}  ↑{moved(up)} ↓{moved(down)}  {rest}".rstrip(), None
