"""From a comparison's directory to what is kept of it under results/: text only, and little of it."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from prowd.errors import RunError
from prowd.runs.read import Record, find_records, read_plan
from prowd.runs.snapshots import client_files, read_snapshot

__all__ = ["near_levels", "publish"]

TABLES = ("table.md", "table.csv", "runs.csv", "comparison.json")
OF_A_RUN = ("config.toml", "summary.json", "provenance.json", "rounds.jsonl")  # enough for `prowd report`
NEAR = 0.1
LEVELS = (-0.5, 0.0, 0.5)

Cell = str | int | float


def publish(source: Path, target: Path) -> None:
    """Copy the tables and the finished runs of a comparison as it was last called for, in place of what was there.

    rounds.csv and peaks.csv have a line for each run, round and width.
    """
    plan = read_plan(source)
    if plan is None:
        raise RunError(f"{source} has no comparison.json; accepted: a directory of prowd compare")
    found = [record for record in find_records(source)[0] if record.path.name in plan.runs]
    records = [record for record in found if record.is_finished]
    if not records:
        raise RunError(f"{source} has no finished run; accepted: one with some, called for by its comparison.json")
    shutil.rmtree(target, ignore_errors=True)
    for record in records:
        folder = target / record.path.name
        folder.mkdir(parents=True, exist_ok=True)
        for name in OF_A_RUN:
            shutil.copyfile(record.path / name, folder / name)
    for name in TABLES:
        shutil.copyfile(source / name, target / name)
    _write(target / "rounds.csv", _rounds(records))
    _write(target / "peaks.csv", _peaks(records))


def _rounds(records: Sequence[Record]) -> list[dict[str, Cell]]:
    return [
        {
            "method": record.method,
            "seed": record.seed,
            "round": line.round,
            "width": width,
            "received": _percent(line.accuracy.received.get(width)),
            "trained": _percent(line.accuracy.trained.get(width)),
            "loss": round(line.loss[width], 6) if width in line.loss else "",
            "bytes_up": line.traffic.up.get(width, 0),
            "bytes_down": line.traffic.down.get(width, 0),
        }
        for record in records
        for line in record.lines
        for width in record.mix
    ]


def _percent(share: float | None) -> Cell:
    return "" if share is None else round(100 * share, 4)


def _peaks(records: Sequence[Record]) -> list[dict[str, Cell]]:
    """How much of the last convolution is near a ternary level, in the clients' own weights after their training."""
    found: list[dict[str, Cell]] = []
    for record in records:
        for round_, clients in client_files(record.path / "snapshots").items():
            shares: dict[str, list[float]] = {}
            for path in clients.values():
                snapshot = read_snapshot(path)
                last = [name for name, shape in snapshot.shapes.items() if len(shape) == 4][-1]
                shares.setdefault(str(snapshot.width), []).append(near_levels(snapshot.values[last].tolist()))
            for width, values in shares.items():
                place: dict[str, Cell] = {"method": record.method, "seed": record.seed, "round": round_, "width": width}
                found.append({**place, "near": round(100 * sum(values) / len(values), 3)})
    return found


def near_levels(values: Iterable[float]) -> float:
    """Share of weights within 0.1 of −½, 0 or ½; of weights spread evenly over ±0.75 it is 0.4."""
    near = [min(abs(value - level) for level in LEVELS) <= NEAR for value in values]
    return sum(near) / len(near)


def _write(path: Path, rows: Sequence[dict[str, Cell]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
