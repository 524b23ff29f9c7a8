"""A round's line as scalars: what every tracker is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from prowd.federation.report import RoundReport
from prowd.numbers.bits import parse_mix
from prowd.runs.summary import weighted_mean

__all__ = ["BALANCED", "BY_CLIENT", "SECTIONS", "Scalars"]

ACCURACY = {
    "trained": "accuracy after training",
    "received": "accuracy as received",
    "server": "accuracy of the new model",
}
TOTALS = "megabytes so far"
BY_CLIENT = {"clients": "accuracy by client", "own": "own accuracy by client"}
BY_GROUP = {"classes": "accuracy by class", "people": "accuracy by test person"}
BALANCED = "balanced accuracy"
SECTIONS = [
    *ACCURACY.values(),
    *BY_CLIENT.values(),
    BALANCED,
    "loss",
    "bytes up",
    "bytes down",
    TOTALS,
    "clients",
    "round",
]


class Scalars:
    """Lines of rounds.jsonl, in their order, as scalars; those of a section are shown together."""

    def __init__(self, clients: str) -> None:
        self.counts = Counter(str(width) for width in parse_mix(clients))
        self.latest: dict[str, dict[str, float]] = {when: {} for when in ACCURACY}
        self.moved = {"up": 0, "down": 0}

    def of(self, line: RoundReport) -> dict[str, float]:
        """The scalars of the next round."""
        found: dict[str, float] = {}
        for when, section in ACCURACY.items():
            measured = getattr(line.accuracy, when)
            found |= _under(section, measured | self._average(when, measured))
        for kind, section in BY_CLIENT.items():
            found |= _under(section, {str(one): value for one, value in getattr(line.accuracy, kind).items()})
        for kind, section in BY_GROUP.items():
            for width, values in getattr(line.accuracy, kind).items():
                found |= _under(f"{section} · {width}", {str(one): value for one, value in values.items()})
        found |= _under(BALANCED, line.accuracy.balanced)
        found |= _under("loss", line.loss)
        for way in self.moved:
            sizes = getattr(line.traffic, way)
            self.moved[way] += sum(sizes.values())
            found |= _under(f"bytes {way}", sizes)
        found |= _under(TOTALS, {way: moved / 1e6 for way, moved in self.moved.items()})
        found |= _under("clients", {what: len(getattr(line.clients, what)) for what in ("lost", "refused", "limited")})
        found |= {_note_tag(path): value for path, value in _numbers(line.notes)}
        return found | {"round/seconds": line.seconds}

    def _average(self, when: str, measured: Mapping[str, float]) -> dict[str, float]:
        """Of all clients, by the last accuracy of their width, as in summary.json; none where nothing was measured."""
        latest = self.latest[when]
        latest.update(measured)
        average = weighted_mean(self.counts, latest) if measured else None
        return {} if average is None else {"average": average}


def _under(section: str, values: Mapping[str, float]) -> dict[str, float]:
    return {f"{section}/{name}": value for name, value in values.items()}


def _numbers(note: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """All numbers of a method's notes and where they are; of a list, such as losses epoch by epoch, the last."""
    if isinstance(note, Mapping):
        for key, value in note.items():
            yield from _numbers(value, (*path, key))
    elif isinstance(note, list):
        yield from _numbers(note[-1] if note else None, path)
    elif isinstance(note, int | float) and abs(note) < 1e308:  # JSON knows greater numbers, but no float does
        yield path, note


def _note_tag(path: tuple[str, ...]) -> str:
    """A chart for each tensor in a section for each figure: ``masks · kept/conv1.weight``, ``drift/conv1.weight``."""
    at = next((n for n, part in enumerate(path) if part.endswith(".weight")), len(path) - 1)
    section = " · ".join((*path[:at], *path[at + 1 :])) or "notes"
    return f"notes · {section}/{path[at]}" if section in SECTIONS else f"{section}/{path[at]}"
