"""What hostile devices cost. Run with ``python -m experiments.hostile``; it goes on where it was stopped.

The preset ``quick``, ten clients, 1 to 3 of them hostile. Every run is a row of a CSV file: the accuracy of the
server's model in %, over all clients, a mean of the last three rounds, and how often a client was refused, clipped or
capped.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple
from unittest import mock

from experiments.hostile.devices import KINDS, MANY, Mixed
from experiments.hostile.table import table
from prowd.data import Dataset
from prowd.device.scene import ClientSpec
from prowd.errors import ProwdError
from prowd.federation import engine
from prowd.federation.defence import defend
from prowd.federation.report import RoundReport
from prowd.methods import ServerState
from prowd.runs.build import assemble, prepare

METHODS = ("fedavg", "fedpaq", "prowd-plus", "prowd")
OFF = {"clip_movement": "off", "cap_examples": "off"}
HALF, ALL = "trimmed:0.2", "trimmed:0.4"  # of five in a width one is left out, or two
DEFENCES: dict[str, dict[str, Any]] = {"undefended": OFF, "defaults": {}, HALF: {"robust": HALF}, ALL: {"robust": ALL}}
OPTIONS = {"prowd": {"dequantizer": {"batch": 16, "steps": 30}}}  # as in the other presets for two cores
NOBODY, PAIR = "nobody", "collusion of two"
LAST = 3  # rounds whose models are measured
ORDER = {"+1 everywhere": (0, 9, 1), PAIR: (8, 9)}  # who turns hostile first; 0 to 4 are Int8, 5 to 9 Float32
USUAL = (9, 0, 8)
FIRST = ((0, "undefended"), (0, ALL), (1, "defaults"), (3, ALL))
THEN = (
    *((2, ALL), (3, "undefended"), (1, "undefended"), (3, HALF), (0, HALF), (2, "undefended")),
    *((2, "defaults"), (3, "defaults"), (1, ALL)),
)


class Case(NamedTuple):
    """One run."""

    method: str
    kind: str
    hostile: int
    defence: str
    seed: int


@dataclass
class Watch(engine.Observer):
    """Measures the models of the last rounds, and counts whom the server held back."""

    federation: engine.Federation
    accuracies: list[float] = field(default_factory=list)
    refused: int = 0
    clipped: int = 0
    capped: int = 0

    def finished(self, report: RoundReport, state: ServerState) -> None:
        """Look at a round."""
        self.refused += len(report.clients.refused)
        self.clipped += sum(limit.what == "clipped" for limit in report.clients.limited)
        self.capped += sum(limit.what == "capped" for limit in report.clients.limited)
        if report.round > self.federation.rounds - LAST:
            self.accuracies.append(100 * fmean(engine.measure(self.federation, state).values()))


def cases(methods: list[str], seeds: list[int]) -> Iterator[Case]:
    """All runs, the most telling first: how many of ten are of which kind, and against which defence."""
    for part, seed in itertools.product((FIRST, THEN), seeds):
        for kind, (hostile, defence), method in itertools.product((NOBODY, *KINDS), part, methods):
            if hostile in {NOBODY: (0,), PAIR: (2,)}.get(kind, (1, 2, 3)):
                yield Case(method, kind, hostile, defence, seed)


def play(case: Case, rounds: int) -> dict[str, object]:
    """Make a run."""
    settings: dict[str, Any] = {"method": case.method, "seed": case.seed, "rounds": rounds, "evaluate_every": 10**6}
    settings["options"] = OPTIONS.get(case.method, {})
    config, dataset = prepare("quick", {**settings, **DEFENCES[case.defence]})
    hostile = ORDER.get(case.kind, USUAL)[: case.hostile]
    assembly = assemble(config, dataset)
    if case.kind == "label flip":
        assembly = assembly._replace(dataset=flip_labels(dataset, [assembly.partition.clients[n] for n in hostile]))
    if case.kind.startswith("2^62"):
        assembly = assembly._replace(federation=with_claims(assembly.federation, hostile))
    federation, watch = assembly.federation, Watch(assembly.federation)
    ended = "in the end"
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(engine, "defend", *undefended(case)):
        transport = Mixed(assembly.clients(Path(folder)), hostile, case.kind)
        try:
            engine.run(federation, federation.method.init(federation.scene), transport, watch)
        except ProwdError as error:
            ended = str(error).partition(":")[0]
    accuracy = round(fmean(watch.accuracies), 2) if ended == "in the end" else ""
    counts = {"refused": watch.refused, "clipped": watch.clipped, "capped": watch.capped}
    return {**case._asdict(), "rounds": rounds, "accuracy": accuracy, **counts, "stopped": ended}


def undefended(case: Case) -> list[Any]:
    """Nothing, or what lets every update pass that is of the right form, as it was before there was a defence."""
    return [lambda scene, method, tasks, admitted: admitted] if case.defence == "undefended" else [defend]


def flip_labels(dataset: Dataset, rows: list[Any]) -> Dataset:
    """The data with the labels of some clients counted from the other end."""
    labels = dataset.y_train.clone()
    for those in rows:
        labels[those] = dataset.classes - 1 - labels[those]
    return replace(dataset, y_train=labels)


def with_claims(federation: engine.Federation, hostile: tuple[int, ...]) -> engine.Federation:
    """A federation in which some have said that they have more examples than anybody."""
    clients = tuple(
        ClientSpec(client.id, client.width, MANY) if client.id in hostile else client
        for client in federation.scene.clients
    )
    return replace(federation, scene=replace(federation.scene, clients=clients))


def main() -> None:
    """Make what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("runs/experiments/hostile.csv"))
    arguments = parser.parse_args()
    done = {tuple(row[name] for name in Case._fields) for row in read(arguments.out)}
    for case in cases(arguments.methods, arguments.seeds):
        if tuple(map(str, case)) not in done:
            append(arguments.out, play(case, arguments.rounds))
    print(table(read(arguments.out), DEFENCES))


def read(path: Path) -> list[dict[str, str]]:
    """The rows so far."""
    return list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []


def append(path: Path, row: dict[str, object]) -> None:
    """Write a run down."""
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        if not begun:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
