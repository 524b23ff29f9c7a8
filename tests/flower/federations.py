"""Federations of real processes, for tests: Flower's own programs, TLS, keys and all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from prowd.flower.control import Control
from prowd.flower.processes import LocalFederation
from prowd.flower.settings import write_app

__all__ = ["children_of", "hostile_app", "lines_of", "outcome", "until"]

PATIENCE = 240.0  # seconds; whatever takes longer is broken


def hostile_app(folder: Path) -> Path:
    """The app directory with a device that misbehaves."""
    app = write_app(folder)
    text = (app / "pyproject.toml").read_text()
    honest = 'clientapp = "prowd.flower.client_app:app"'
    assert honest in text
    (app / "pyproject.toml").write_text(text.replace(honest, 'clientapp = "hostile:app"'))
    (app / "hostile.py").write_text((Path(__file__).parent / "hostile.py").read_text())
    return app


def until(what: Callable[[], bool], federation: LocalFederation, seconds: float = PATIENCE) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"still not so after {seconds:g} s; logs: {federation.folder}"
        time.sleep(0.2)


def outcome(federation: LocalFederation, control: Control, run: int) -> tuple[str, str]:
    """How a Flower run ended, and what it says of it."""
    until(lambda: control.status(run).stage == "finished", federation)
    status = control.status(run)
    return status.outcome, status.details


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The rounds on the disk so far; the last may still be being written."""
    file = path / "rounds.jsonl"
    whole = [text for text in file.read_text().splitlines() if text.endswith("}")] if file.exists() else []
    return [json.loads(text) for text in whole]


def children_of(pid: int, name: str) -> list[int]:
    """Descendants of a process whose command has a name in it."""
    parents = {pid}
    processes: Mapping[int, tuple[int, str]] = dict(_processes())
    for _ in range(4):
        parents |= {child for child, (parent, _) in processes.items() if parent in parents}
    return sorted(child for child in parents if child in processes and name in processes[child][1])


def _processes() -> list[tuple[int, tuple[int, str]]]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text()
            command = (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it has ended
        found.append((int(entry.name), (int(stat.rpartition(")")[2].split()[1]), command)))
    return found
