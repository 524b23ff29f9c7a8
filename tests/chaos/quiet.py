"""The runs that nobody disturbs: what the others must come to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from prowd.federation.transport import InProcess, Reply
from prowd.runs.build import assemble
from prowd.runs.run import Session
from prowd.wire import Parcel, decode_task
from tests.chaos.ledger import Ledger

__all__ = ["Quiet", "rounds_in"]

Absences = frozenset[tuple[int, int]]
"""Who (client, round) was left out."""
TIMES = ("seconds", "devices")


@dataclass
class Quiet:
    """Runs in this process, each made once."""

    folder: Path
    made: dict[tuple[str, str, Absences], tuple[str, list[dict[str, Any]]]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def outcome(
        self, source: str, settings: Mapping[str, Any], absent: Absences = frozenset()
    ) -> tuple[str, list[dict[str, Any]]]:
        """The hash of the final weights, and the rounds without their times."""
        key = source, json.dumps(settings, sort_keys=True), absent
        with self.lock:
            if key not in self.made:
                out = self.folder / f"quiet-{len(self.made)}"
                session = Session.start(source, settings, out=out)
                clients = assemble(session.config, session.dataset).clients(session.rundir.memories, session.snapshots)
                result = session.run(transport=Without(InProcess(clients), absent))
                self.made[key] = result.summary["weights_sha256"], lines(out)
            return self.made[key]

    def judge(self, path: Path, source: str, settings: Mapping[str, Any], ledger: Ledger) -> None:
        """Compare a run that has ended with the quiet one, and see that nothing but results is left of it."""
        found, rounds = json.loads((path / "summary.json").read_text("utf-8"))["weights_sha256"], lines(path)
        absent = absences(rounds)
        expected, quiet = self.outcome(source, settings, absent)
        tried_again = any(line["clients"]["lost"] or line["clients"]["refused"] for line in rounds)
        where = f"{path.parent.name}, {path.name}"
        if found != expected:
            ledger.complain(f"{where}: weights {found}; expected {expected}; left out {sorted(absent)}")
        elif not tried_again and rounds != quiet:
            ledger.complain(f"{where}: rounds.jsonl differs from that of the quiet run")
        elif left := [str(file.relative_to(path)) for file in path.rglob("*.tmp")]:
            ledger.complain(f"{where}: left behind: {', '.join(left)}")
        else:
            ledger.ended(losses=bool(absent))


@dataclass
class Without:
    """All clients in this process, except some in some rounds."""

    inner: InProcess
    absent: Absences
    remote: ClassVar[bool] = False

    def exchange(self, parcels: Mapping[int, Parcel]) -> Iterator[tuple[int, Reply]]:
        """Ask the others."""
        rounds = {client: decode_task(parcel.join()).round for client, parcel in parcels.items()}
        asked = {client: parcel for client, parcel in parcels.items() if (client, rounds[client]) not in self.absent}
        return self.inner.exchange(asked)

    def close(self) -> None:
        """Nothing to do."""


def lines(path: Path) -> list[dict[str, Any]]:
    """The rounds of a run without what time and transport add to them."""
    text = (path / "rounds.jsonl").read_text("utf-8")
    return [{key: value for key, value in json.loads(line).items() if key not in TIMES} for line in text.splitlines()]


def absences(rounds: list[dict[str, Any]]) -> Absences:
    """Who was left out of which round."""
    missing = [(line["round"], gone) for line in rounds for how in ("lost", "refused") for gone in line["clients"][how]]
    return frozenset((gone["client"], round_) for round_, gone in missing if not gone.get("attempt"))


def rounds_in(path: Path) -> int:
    """How many rounds a run has written down so far."""
    try:
        return (path / "rounds.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0
