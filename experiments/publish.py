"""From a comparison's directory to what is kept of it: its table, a line a run, and where runs are from."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from experiments.reading import LAST, NEAR_A_LEVEL, PROVENANCE, RUNS, outcome_of, read_rows
from prowd.comparison import tabulate
from prowd.comparison.formats import table_markdown
from prowd.config.schema import load_config
from prowd.errors import RunError
from prowd.files import atomic_write
from prowd.runs.read import PlanRecord, Record, find_records, read_plan
from prowd.runs.snapshots import client_files, read_snapshot

__all__ = ["lost_runs", "near_levels", "publish"]

NEAR = 0.1
LEVELS = (-0.5, 0.0, 0.5)

Row = Mapping[str, object]
Label = tuple[str, int]
"""A run: the name of its method, and its seed."""


def publish(source: Path, target: Path) -> None:
    """Write what is kept of a comparison's finished runs, next to those in ``target`` that they confirm.

    Runs that are there already stay if one of them was made again to the bit: then settings, code and kind of
    processor are the same. Of a method that came out otherwise none stays. A run that did not measure every width in
    its last round is left out.
    """
    plan, records = _finished(source)
    runs = _runs(source, records)
    kept = _confirmed(target, runs)
    names = {f"{method}-seed{seed}" for method, seed in kept}
    runs += [row for row in read_rows(target / RUNS) if _label(row) in kept]
    origins = [*_provenance(records), *(row for row in read_rows(target / PROVENANCE) if row["run"] in names)]
    methods = list(dict.fromkeys([method for method, _ in plan.runs.values()] + [_label(row)[0] for row in runs]))
    runs.sort(key=lambda row: (_label(row)[1], methods.index(_label(row)[0])))
    target.mkdir(parents=True, exist_ok=True)
    _write(target / RUNS, runs)
    _write(target / PROVENANCE, sorted(origins, key=lambda row: str(row["run"])))
    rows = tabulate([outcome_of(row) for row in read_rows(target / RUNS)], plan.baseline)
    table = table_markdown(load_config(records[0].path / "config.toml"), rows, plan.baseline)
    atomic_write(target / "table.md", table.encode())


def lost_runs(source: Path, target: Path) -> list[str]:
    """Runs that are published in ``target``, and would not be once a comparison was."""
    runs = _runs(source, _finished(source)[1])
    lost = set(map(_label, read_rows(target / RUNS))) - set(map(_label, runs)) - _confirmed(target, runs)
    return [f"{method}-seed{seed}" for method, seed in sorted(lost)]


def _confirmed(target: Path, runs: Sequence[Row]) -> set[Label]:
    """The published runs that were not made again, as far as those which were speak for them."""
    before = {_label(row): row[LAST] for row in read_rows(target / RUNS)}
    same = {_label(row): row[LAST] == before[_label(row)] for row in runs if _label(row) in before}
    changed = {method for (method, _), is_same in same.items() if not is_same}
    return {label for label in before.keys() - same if label[0] not in changed} if any(same.values()) else set()


def _label(row: Mapping[str, object]) -> Label:
    return str(row["method"]), int(str(row["seed"]))


def _finished(source: Path) -> tuple[PlanRecord, list[Record]]:
    plan = read_plan(source)
    if plan is None:
        raise RunError(f"{source} has no comparison.json; accepted: a directory of prowd compare")
    found = [record for record in find_records(source)[0] if record.path.name in plan.runs]
    whole = [one for one in found if one.is_finished and set(one.mix) <= set(one.lines[-1].accuracy.trained)]
    if not whole:
        raise RunError(f"{source} has no finished run; accepted: one with some, called for by its comparison.json")
    return plan, whole


def _runs(source: Path, records: Sequence[Record]) -> list[Row]:
    """The comparison's own lines, with how much of each width's last convolution is near a ternary level."""
    places = {(record.method, str(record.seed)): record.path for record in records}
    found: list[Row] = []
    for row in read_rows(source / "runs.csv"):
        path = places.get((row["method"], row["seed"]))
        if path is not None:
            near = {f"{width} {NEAR_A_LEVEL}": share for width, share in _near(path).items()}
            found.append({**row, **near})
    return found


def _near(path: Path) -> dict[str, float]:
    """Percent of the clients' own weights after the last snapshot's training, by width."""
    snapshots = client_files(path / "snapshots")
    shares: dict[str, list[float]] = {}
    for file in snapshots[max(snapshots)].values() if snapshots else ():
        snapshot = read_snapshot(file)
        last = [name for name, shape in snapshot.shapes.items() if len(shape) == 4][-1]
        shares.setdefault(str(snapshot.width), []).append(near_levels(snapshot.values[last].tolist()))
    return {width: round(100 * sum(values) / len(values), 3) for width, values in shares.items()}


def near_levels(values: Iterable[float]) -> float:
    """Share of weights within 0.1 of −½, 0 or ½; of weights spread evenly over ±0.75 it is 0.4."""
    near = [min(abs(value - level) for level in LEVELS) <= NEAR for value in values]
    return sum(near) / len(near)


def _provenance(records: Sequence[Record]) -> list[Row]:
    return [
        {
            "run": record.path.name,
            "from_round": session.get("round", 0),
            "commit": session.get("commit", ""),
            "command": session.get("command", ""),
            **{fact: session.get("machine", {}).get(fact, "") for fact in ("processor", "instructions", "torch")},
            "started": session.get("started", ""),
        }
        for record in records
        for session in record.sessions
    ]


def _write(path: Path, rows: Sequence[Row]) -> None:
    columns = sorted(dict.fromkeys(name for row in rows for name in row), key=LAST.__eq__)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
