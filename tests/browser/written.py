"""Run directories written by hand, in moments: what the page shows of a run that nobody has waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from prowd.numbers.bits import parse_mix
from tests.unit.views.report.directories import SESSION, keep_clients, keep_server, line, spread, write

SENT = {"float32": 40_000, "int8": 10_000, "int4": 5_000}


def write_run(
    folder: Path,
    *,
    method: str = "fedavg",
    seed: int = 0,
    clients: str = "int8:2, float32:2",
    rounds: int = 5,
    made: int | None = None,
    end: float = 0.9,
    lost: Mapping[int, Sequence[dict[str, Any]]] = {},
    refused: Mapping[int, Sequence[dict[str, Any]]] = {},
    samples: bool = False,
    session: Mapping[str, Any] = {},
    **settings: Any,
) -> Path:
    """Write a run whose Float32 clients come to the accuracy ``end``, all others to 5 % less, if all rounds are made.

    Seeds differ by 0.2 %, so that those of three runs have the middle one's as their mean.
    """
    widths = list(map(str, parse_mix(clients)))
    size = {width: 100 if method == "local" else SENT[width] for width in widths}
    moved = {width: widths.count(width) * size[width] for width in size}
    by_client = {client: (size[width], size[width]) for client, width in enumerate(widths)}
    done = rounds if made is None else made
    lines = []
    for number in range(1, done + 1):
        accuracy = (end + 0.002 * (seed - 1)) * (0.3 + 0.7 * number / rounds)
        trained = {width: accuracy - 0.05 * (width != "float32") for width in size}
        received = {width: 0.97 * value for width, value in trained.items()}
        missing: dict[str, Any] = {"lost": lost.get(number, ()), "refused": refused.get(number, ())}
        lines.append(line(number, trained, received=received, up=moved, down=moved, clients=by_client, **missing))
    settings = {"name": "quick", "steps": 25, "method": method, "seed": seed, "clients": clients, **settings}
    write(folder, lines, finished=done == rounds, sessions=[{**SESSION, **session}], rounds=rounds, **settings)
    if samples:
        _write_samples(folder, widths, done, method == "prowd")
    return folder


def _write_samples(folder: Path, widths: Sequence[str], last: int, has_blocks: bool) -> None:
    model = {"conv1.weight": spread(1, (4, 3, 3, 3)), "fc1.weight": spread(2, (10, 16))}
    low = {name: torch.sign(values) / 2 for name, values in model.items()}
    for round_ in (0, 1, last):
        blocks = [low, model] if has_blocks and round_ else []
        keep_server(folder, round_, model, blocks, 0 if blocks else -1)
    for round_ in (1, last):
        own = [{name: values * (0.5 + 0.1 * client) for name, values in model.items()} for client in range(len(widths))]
        keep_clients(folder, round_, dict(enumerate(zip(widths, own, strict=True))))
