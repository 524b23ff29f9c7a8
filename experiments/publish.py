"""From a comparison's directory to what is kept of it under results/: its table, a line a run, and where runs are from.

A screening keeps many comparisons in one folder; its files then have the column ``choice``.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from prowd.errors import RunError
from prowd.runs.read import Record, find_records, read_plan
from prowd.runs.snapshots import client_files, read_snapshot

__all__ = ["NEAR_A_LEVEL", "lost_seeds", "near_levels", "publish", "read_rows"]

NEAR_A_LEVEL = "near a level"
NEAR = 0.1
LEVELS = (-0.5, 0.0, 0.5)
LAST = "weights_sha256"

Row = Mapping[str, object]


def publish(source: Path, target: Path, *, choice: str = "") -> None:
    """Write what is kept of a comparison's finished runs, in place of what was there of the same choice.

    A run that did not measure every width in its last round is left out.
    """
    records = _finished(source)
    label = {"choice": choice} if choice else {}
    target.mkdir(parents=True, exist_ok=True)
    for name, rows in (("runs.csv", _runs(source, records)), ("provenance.csv", _provenance(records))):
        path = target / name
        others = [row for row in read_rows(path) if row["choice"] != choice] if choice else []
        _write(path, [*others, *({**label, **row} for row in rows)])
    if not choice:
        shutil.copyfile(source / "table.md", target / "table.md")


def lost_seeds(old: Path, new: Path, enough: Collection[int], *, choice: str = "") -> list[int]:
    """Seeds that would be lost if the results of one folder took the place of another's.

    None where every method of the new results has all the seeds that are enough, or as many as the old ones have.
    """
    before, after = _seeds(old, choice), _seeds(new, choice)
    return [] if after >= set(enough) or len(after) >= len(before) else sorted(before - after)


def _seeds(folder: Path, choice: str) -> set[int]:
    """The seeds with which every method was run."""
    seeds: dict[str, set[int]] = {}
    for row in read_rows(folder / "runs.csv"):
        if row.get("choice", "") == choice:
            seeds.setdefault(row["method"], set()).add(int(row["seed"]))
    return set.intersection(*seeds.values()) if seeds else set()


def read_rows(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file; none if there is no such file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _finished(source: Path) -> list[Record]:
    plan = read_plan(source)
    if plan is None:
        raise RunError(f"{source} has no comparison.json; accepted: a directory of prowd compare")
    found = [record for record in find_records(source)[0] if record.path.name in plan.runs]
    whole = [one for one in found if one.is_finished and set(one.mix) <= set(one.lines[-1].accuracy.trained)]
    if not whole:
        raise RunError(f"{source} has no finished run; accepted: one with some, called for by its comparison.json")
    return whole


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
