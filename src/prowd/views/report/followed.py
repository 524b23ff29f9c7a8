"""One person's accuracy over the rounds, by method: the page shows the person that is chosen."""

from __future__ import annotations

from collections.abc import Mapping

from prowd.federation.report import RoundReport
from prowd.runs.read import Record
from prowd.views.report.groups import Group, curve
from prowd.views.report.live import Chart, Line, Panel
from prowd.views.report.people import in_order, of_clients, of_people, owners

__all__ = ["followed"]

MOST_PEOPLE = 200
Rounds = Mapping[int, Mapping[str, float]]
"""Accuracies by round and by the name of a person."""


def followed(group: Group, kind: str) -> Chart | None:
    """Accuracy for each test person, "people", or for each client on its own examples, "own"."""
    known = {id(record): _rounds(record, kind) for records in group.shown.values() for record in records}
    names = {name for rounds in known.values() for found in rounds.values() for name in found}
    panels = [_panel(group, known, name) for name in sorted(names, key=in_order)[:MOST_PEOPLE]]
    return Chart(panels, chosen_by="person") if panels else None


def _rounds(record: Record, kind: str) -> Rounds:
    if kind == "people":
        return {line.round: of_people(record, line.accuracy.people) for line in record.lines}
    names = owners(record)
    return {line.round: of_clients(names, line.accuracy.own) for line in record.lines}


def _panel(group: Group, known: Mapping[int, Rounds], name: str) -> Panel:
    """A line for each method: the mean over the seeds in which the person was measured."""

    def value(record: Record, line: RoundReport) -> float | None:
        found = known[id(record)][line.round].get(name)
        return None if found is None else 100 * found

    def has(record: Record) -> bool:
        return any(name in found for found in known[id(record)].values())

    curves = [curve([one for one in records if has(one)], value) for records in group.shown.values()]
    return Panel(name, [Line(method, n, one) for n, (method, one) in enumerate(zip(group.shown, curves, strict=True))])
