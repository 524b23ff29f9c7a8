"""From a comparison's directory to what is kept of it: its table, a line a run, and where runs are from."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from prowd.errors import RunError
from prowd.runs.read import Record, find_records, read_plan
from prowd.runs.snapshots import client_files, read_snapshot

__all__ = ["NEAR_A_LEVEL", "lost_runs", "near_levels", "publish", "read_rows"]

NEAR_A_LEVEL = "near a level"
NEAR = 0.1
LEVELS = (-0.5, 0.0, 0.5)
LAST = "weights_sha256"

Row = Mapping[str, object]


def publish(source: Path, target: Path) -> None:
    """Write what is kept of a comparison's finished runs, in place of what was there.

    A run that did not measure every width in its last round is left out.
    """
    records = _finished(source)
    target.mkdir(parents=True, exist_ok=True)
    _write(target / "runs.csv", _runs(source, records))
    _write(target / "provenance.csv", _provenance(records))
    shutil.copyfile(source / "table.md", target / "table.md")


def lost_runs(old: Path, new: Path, enough: Iterable[tuple[str, int]]) -> list[str]:
    """Runs that would be lost if the results of one folder took the place of another's.

    None where the new results have all the runs that are enough, by method and seed.
    """
    before, after = _labels(old), _labels(new)
    return [] if after >= set(enough) else [f"{method}-seed{seed}" for method, seed in sorted(before - after)]


def _labels(folder: Path) -> set[tuple[str, int]]:
    return {(row["method"], int(row["seed"])) for row in read_rows(folder / "runs.csv")}


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
