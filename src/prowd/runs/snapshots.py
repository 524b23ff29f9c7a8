"""Samples of weights that a run keeps for its figures: of the server's model, and of simulated devices' own models.

They are looked at, never computed with, and cost nothing on the wire: what a real device holds stays there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from prowd.config.schema import Rounds
from prowd.errors import ConfigError, DiskError
from prowd.files import atomic_write
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import QTensor, Weights
from prowd.numbers.seeds import generator

__all__ = ["BLOCKS", "MODEL", "Snapshot", "Snapshots", "client_files", "read_snapshot", "server_files"]

MOST_CLIENTS = 64
NAME = re.compile(r"round-(?P<round>[0-9]{6,7})(-client-(?P<client>[0-9]{4,7}))?\.safetensors")
FACTS = "facts"  # one entry of metadata: several come in any order, and equal samples are to be equal files
MODEL, BLOCKS = "model/", "phi/"  # what the server's file holds: its weights, and a client's after each block of φ


@dataclass(frozen=True)
class Snapshots:
    """Where samples go, of which rounds, and how many entries of each tensor."""

    folder: Path
    rounds: Rounds = "auto"
    last: int = 0
    entries: int = 2048
    cohort: int = 1
    """Clients a round."""

    def wants(self, round_: int) -> bool:
        """Whether a round is kept. auto: before the first, then 1, 2, 5, 10, 20, 50, 100, ..., and the last."""
        if self.rounds == "auto":
            return round_ in (0, self.last) or str(round_).rstrip("0") in ("1", "2", "5")
        return self.rounds != "none" and round_ in self.rounds

    def wants_client(self, rank: int) -> bool:
        """Whether a client's weights are kept, the rank-th of its width: of a large cohort every so many are."""
        return rank % max(1, -(-self.cohort // MOST_CLIENTS)) == 0

    def keep_client(self, round_: int, client: int, weights: Weights) -> None:
        """Keep samples of a device's weights after its local training, as the codes that it holds."""
        width = max(tensor.width for tensor in weights.values())
        codes = torch.float32 if width.is_float else torch.int8 if width.bits <= 8 else torch.int16
        samples = {name: self._sample(name, tensor.codes).to(codes) for name, tensor in weights.items()}
        shapes = {name: tensor.shape for name, tensor in weights.items()}
        self._write(f"round-{round_:06d}-client-{client:04d}", samples, {"width": str(width), "shapes": shapes})

    def keep_server(
        self, round_: int, model: Mapping[str, Tensor], stages: Sequence[Mapping[str, Tensor]] = (), client: int = -1
    ) -> None:
        """Keep samples of the server's weights, and of one client's as they came and after each block of φ."""
        named = {f"{MODEL}{name}": tensor for name, tensor in model.items()}
        for block, values in enumerate(stages):
            named |= {f"{BLOCKS}{block}/{name}": tensor for name, tensor in values.items()}
        samples = {name: self._sample(name, tensor).float() for name, tensor in named.items()}
        shapes = {name: tuple(tensor.shape) for name, tensor in named.items()}
        self._write(f"round-{round_:06d}", samples, {"width": "float32", "shapes": shapes, "client": client})

    def _sample(self, name: str, tensor: Tensor) -> Tensor:
        """Entries at random places: the same ones in every round, of every client and of every method."""
        flat = tensor.detach().cpu().flatten()
        layer = name.rpartition("/")[2]  # whatever group, side or block its tensor is of
        return flat.clone() if len(flat) <= self.entries else flat[_places(layer, len(flat), self.entries)]

    def _write(self, stem: str, samples: Mapping[str, Tensor], facts: Mapping[str, object]) -> None:
        data = save(dict(samples), {FACTS: json.dumps(facts)})
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic_write(self.folder / f"{stem}.safetensors", data)
        except OSError as error:
            raise DiskError.of(f"{self.folder} cannot be written", error) from error


@dataclass(frozen=True)
class Snapshot:
    """A file of samples: values in the network's order, their width, the shapes of whole tensors, whose they are."""

    round: int
    values: Mapping[str, Tensor]
    width: Bitwidth
    shapes: Mapping[str, Sequence[int]]
    client: int


def read_snapshot(path: Path) -> Snapshot:
    """Read one file; ValueError, OSError or SafetensorError where it is damaged."""
    named = NAME.fullmatch(path.name)
    if named is None:
        raise ValueError(f"{path} is not named as a file of samples is")
    with safe_open(path, "pt") as file:
        text = (file.metadata() or {}).get(FACTS, "")
        codes = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - the file is no mapping
    try:
        facts = json.loads(text)
        width = Bitwidth.parse(facts["width"])
        shapes = {name: [int(size) for size in shape] for name, shape in facts["shapes"].items()}
        values = {name: QTensor(codes[name], width).value() for name in shapes}
        client = int(named["client"] or facts.get("client", -1))
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError, ConfigError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from error
    return Snapshot(int(named["round"]), values, width, shapes, client)


def server_files(folder: Path) -> dict[int, Path]:
    """The server's samples by round."""
    return {round_: path for round_, client, path in _files(folder) if client < 0}


def client_files(folder: Path) -> dict[int, dict[int, Path]]:
    """The clients' samples by round and client."""
    found: dict[int, dict[int, Path]] = {}
    for round_, client, path in _files(folder):
        if client >= 0:
            found.setdefault(round_, {})[client] = path
    return found


def _files(folder: Path) -> list[tuple[int, int, Path]]:
    """Round, client (−1: the server) and path of every file of samples, in this order; other files are left alone."""
    named = [(NAME.fullmatch(path.name), path) for path in folder.glob("round-*.safetensors")]
    return sorted((int(name["round"]), int(name["client"] or -1), path) for name, path in named if name)


@cache
def _places(name: str, size: int, entries: int) -> Tensor:
    return torch.randint(size, (entries,), generator=generator(0, "snapshot", name)).sort().values
