"""Run directories written by hand, as whole or as damaged as a test needs them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from prowd.runs.read import find_records

CONFIG: dict[str, Any] = {
    "name": "mine",
    "method": "prowd",
    "seed": 4,
    "rounds": 3,
    "clients": "float32:2, int8:1",
    "snapshots": "auto",
    "float32": {"lr": 0.1},
}


SUMMARY: dict[str, Any] = {"method": "prowd", "rounds": 3, "weights_sha256": "c0ffee"}


SESSIONS = [{"version": "0.1.0", "command": "prowd run mine.toml", "round": 0}, {"version": "0.2.0", "round": 2}]

PLAN = {
    "name": "mine",
    "baseline": "fedavg",
    "runs": [
        {"folder": "fedavg-seed0", "method": "fedavg", "seed": 0},
        {"folder": "prowd-seed0", "method": "prowd", "seed": 0},
    ],
    "failures": {"prowd-seed0": "the fit diverged"},
}


def line(round_: int, **changes: Any) -> dict[str, Any]:
    """A round as it is written down."""
    return {
        "round": round_,
        "accuracy": {
            "received": {"int8": 0.25, "float32": 0.5},
            "trained": {"int8": round_ / 10, "float32": 0.75},
            "server": {"int8": 0.5},
        },
        "loss": {"int8": 1.5, "float32": 0.5},
        "bytes": {
            "up": {"int8": 10, "float32": 200},
            "down": {"int8": 40, "float32": 200},
            "clients": {"0": [100, 100], "1": [100, 100], "2": [10, 40]},
        },
        "clients": {"asked": 3, "lost": [], "refused": [], "limited": []},
        "notes": {"zeros": {"conv.weight": 0.5}},
        "seconds": 2.5,
        **changes,
    }


def without(given: Mapping[str, Any], *path: str) -> dict[str, Any]:
    """A table without one of its keys, which may be in an inner table."""
    key, *rest = path
    if rest:
        return {**given, key: without(given[key], *rest)}
    return {name: value for name, value in given.items() if name != key}


def write(
    path: Path,
    config: Mapping[str, Any] | None = None,
    lines: Iterable[Mapping[str, Any]] = (),
    summary: Mapping[str, Any] | None = None,
    sessions: Iterable[Mapping[str, Any]] | None = None,
) -> Path:
    """A run directory, as far as it has come."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.toml").write_text(tomli_w.dumps(CONFIG if config is None else config), "utf-8")
    texts = [json.dumps(one) + "\n" for one in lines]
    if texts:
        (path / "rounds.jsonl").write_text("".join(texts), "utf-8")
    if summary is not None:
        (path / "summary.json").write_text(json.dumps(summary), "utf-8")
    if sessions is not None:
        (path / "provenance.json").write_text(json.dumps({"sessions": list(sessions)}), "utf-8")
    return path


def finished(path: Path, **config: Any) -> Path:
    return write(path, {**CONFIG, **config}, map(line, (1, 2, 3)), SUMMARY, SESSIONS)


def names(folder: Path) -> list[str]:
    return [str(record.path.relative_to(folder)) for record in find_records(folder)[0]]
