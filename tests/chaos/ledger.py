"""What happened: how often each fault was made, what came of it, and what was wrong. Shared by all lanes."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["OUTCOMES", "Ledger", "one_line"]

OUTCOMES = ("went on", "ended in one line", "killed", "wrong")
ERROR = "error: "


@dataclass
class Ledger:
    """Counts, and says when it is enough."""

    left: dict[str, int]
    """Faults that are still to be made, of ``prowd run`` and on Flower."""
    end: float
    """When no more faults are made; runs are still brought to their end."""
    grace: float = 600.0
    """Seconds for that."""
    made: int = 0
    runs: int = 0
    with_losses: int = 0
    count: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    """The last error that a fault led to, as the user sees it."""
    stopped: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.wanted = sum(self.left.values())

    def over(self, group: str) -> bool:
        """Whether no more faults are to be made: all were, or the time is up."""
        return self.left[group] <= 0 or time.monotonic() > self.end or self.stopped.is_set()

    @property
    def late(self) -> bool:
        """Whether runs are not even to be brought to their end: somebody pressed Ctrl-C, or it takes too long."""
        return self.stopped.is_set() or time.monotonic() > self.end + self.grace

    def take(self, group: str) -> bool:
        """Whether there is one more fault to make."""
        with self.lock:
            if self.over(group):
                return False
            self.left[group] -= 1
            return True

    def note(self, kind: str, outcome: str) -> None:
        """A fault came to something."""
        with self.lock:
            self.made += 1
            self.count[kind, outcome] += 1

    def ended(self, *, losses: bool = False) -> None:
        """A run ended with the weights that it must have."""
        with self.lock:
            self.runs += 1
            self.with_losses += losses

    def complain(self, text: str) -> None:
        """Something is wrong."""
        with self.lock:
            self.wrong.append(text)
        print(f"\nWRONG: {text}\n", flush=True)

    def progress(self, began: float) -> str:
        """One line on how far it is."""
        minutes, seconds = divmod(int(time.monotonic() - began), 60)
        made = f"{self.made} of {self.wanted} faults"
        return f"{minutes}:{seconds:02}  {made}, {self.runs} runs ended as they must, {len(self.wrong)} wrong"

    def table(self) -> list[str]:
        """A row for each fault, and their sum."""
        kinds = list(dict.fromkeys(kind for kind, _ in self.count))
        rows: list[Sequence[object]] = [("fault", "times", *OUTCOMES)]
        for kind in sorted(kinds):
            found = [self.count[kind, outcome] for outcome in OUTCOMES]
            rows.append((kind, sum(found), *found))
        sums = [sum(self.count[kind, outcome] for kind in kinds) for outcome in OUTCOMES]
        rows.append(("all", sum(sums), *sums))
        return [f"{row[0]!s:<26}" + "".join(f"{cell!s:>19}" for cell in row[1:]) for row in rows]


def one_line(said: str) -> str | None:
    """What is wrong with the words of a program that ended with an error; nothing if it is one line beside warnings."""
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("WARNING: ")]
    if re.search(r"^\s*Traceback ", said, re.MULTILINE):
        return "a traceback"
    if len(lines) != 1:
        return f"{len(lines)} lines"
    return None if lines[0].startswith(ERROR) else f"a line that does not begin with {ERROR!r}"
