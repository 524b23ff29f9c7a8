"""What a client remembers between rounds, on its own disk: atomic, versioned by round, damage detected.

A memory written in round r is read in the next round the client takes part in. A round that is repeated after a crash
finds what the client knew before it, so a resumed run goes through the same states.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from prowd.errors import DiskError, RunError, WireError
from prowd.files import atomic_write
from prowd.numbers.quantize import QTensor, Weights
from prowd.wire import Task, decode_task, encode_task

__all__ = ["ClientMemory", "forget_after"]

NAME = "round-*.bin"
KEPT = 3  # as far back as a resume from the second-newest checkpoint can reach


@dataclass(frozen=True)
class ClientMemory:
    """One client's memory, a file a round, in the wire's own checked encoding."""

    folder: Path
    seed: int
    client: int

    def load(self, before: int) -> dict[str, QTensor] | None:
        """What the client knew at the start of round ``before``; None if it has not taken part yet."""
        rounds = [round_ for round_ in self._rounds() if round_ < before]
        if not rounds:
            return None
        path = self._path(rounds[-1])
        try:
            task = decode_task(path.read_bytes(), limit=path.stat().st_size)
        except WireError as error:
            raise RunError(f"client {self.client}: its memory {path} is damaged: {error}") from error
        if (task.round, task.seed, task.client) != (rounds[-1], self.seed, self.client):
            found = f"of round {task.round}, client {task.client}, seed {task.seed}"
            raise RunError(f"client {self.client}: {path} is not its memory but that {found}")
        return dict(task.weights)

    def save(self, round_: int, weights: Weights) -> None:
        """Remember ``weights`` as the outcome of a round. Of weights that diverged nothing is kept."""
        if not all(bool(torch.isfinite(tensor.codes).all()) for tensor in weights.values() if tensor.width.is_float):
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic_write(self._path(round_), encode_task(Task(round_, self.seed, self.client, weights)).join())
        except OSError as error:
            raise DiskError.of(f"client {self.client}: its memory {self.folder} cannot be written", error) from error
        for stale in [r for r in self._rounds() if r <= round_][:-KEPT]:
            self._path(stale).unlink(missing_ok=True)

    def _rounds(self) -> list[int]:
        return sorted(_round_of(path) for path in self.folder.glob(NAME))

    def _path(self, round_: int) -> Path:
        return self.folder / f"round-{round_:06d}.bin"


def forget_after(memories: Path, round_: int) -> None:
    """Remove what clients remember of rounds after ``round_``, a past that a resumed run undoes.

    Only whoever holds the run does this, never a client: a worker that outlives a killed server may still save a round.
    """
    for path in memories.glob(f"*/{NAME}"):
        if _round_of(path) > round_:
            path.unlink()


def _round_of(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))
