"""Run directories written by hand, in moments: what the page shows of a run that nobody has waited for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
import torch

from prowd.numbers.bits import Bitwidth, parse_mix
from prowd.numbers.quantize import quantize
from prowd.runs.snapshots import Snapshots

WEIGHTS = {"conv1.weight": (4, 3, 3, 3), "fc1.weight": (10, 16)}
SENT = {"float32": 40_000, "int16": 20_000, "int8": 10_000, "int4": 5_000}
SESSION = {
    "version": "0.1.0",
    "commit": "beb2b0dd18e5b1955e876dd5deb7ca0e395d93b5+",
    "command": "prowd run quick",
    "started": "2026-11-16T09:01:42+00:00",
    "machine": {"system": "Linux x86_64", "cores": 2, "python": "3.11.7", "torch": "2.13.0+cpu"},
}


def missing(
    client: int, width: str = "int8", reason: str = "no answer within 60 s", attempt: int = 0
) -> dict[str, Any]:
    """A client that was lost, or whose update was refused."""
    return {"client": client, "width": width, "reason": reason, "attempt": attempt}


def write_run(
    folder: Path,
    *,
    method: str = "fedavg",
    seed: int = 0,
    clients: str = "int8:2, float32:2",
    rounds: int = 5,
    made: int | None = None,
    end: float = 0.9,
    lost: Mapping[int, Sequence[Mapping[str, Any]]] = {},
    refused: Mapping[int, Sequence[Mapping[str, Any]]] = {},
    samples: bool = False,
    session: Mapping[str, Any] = {},
    **settings: Any,
) -> Path:
    """Write a run whose Float32 clients come to the accuracy ``end``, all others to 5 % less, if all rounds are made.

    Seeds differ by 0.2 %, so that those of three runs have the middle one's as their mean.
    """
    folder.mkdir(parents=True)
    config = {"name": "quick", "version": "0.1.0", "seed": seed, "method": method, "clients": clients}
    config |= {"rounds": rounds, "uplink": "ternary", "data": "digits", "steps": 25, **settings}
    (folder / "config.toml").write_text(tomli_w.dumps(config), "utf-8")
    (folder / "provenance.json").write_text(json.dumps({"sessions": [{**SESSION, **session}]}), "utf-8")
    widths = list(map(str, parse_mix(clients)))
    done = rounds if made is None else made
    lines = [
        _line(number, widths, (end + 0.002 * (seed - 1)) * (0.3 + 0.7 * number / rounds), method == "local")
        | {"clients": {"asked": len(widths), "lost": lost.get(number, ()), "refused": refused.get(number, ())}}
        for number in range(1, done + 1)
    ]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    if done == rounds:
        (folder / "summary.json").write_text(json.dumps({"method": method, "weights_sha256": "0" * 64}), "utf-8")
    if samples:
        _write_samples(folder, widths, done, method == "prowd")
    return folder


def _line(number: int, widths: Sequence[str], accuracy: float, is_silent: bool) -> dict[str, Any]:
    kinds = sorted(set(widths))
    trained = {width: accuracy - 0.05 * (width != "float32") for width in kinds}
    size = {width: 100 if is_silent else SENT[width] for width in kinds}
    moved = {width: widths.count(width) * size[width] for width in kinds}
    return {
        "round": number,
        "accuracy": {"received": {width: 0.97 * value for width, value in trained.items()}, "trained": trained},
        "loss": {width: 1 - value for width, value in trained.items()},
        "bytes": {
            "up": moved,
            "down": {width: 2 * count for width, count in moved.items()},
            "clients": {client: [size[width], 2 * size[width]] for client, width in enumerate(widths)},
        },
        "notes": {},
        "seconds": 1.5,
    }


def _write_samples(folder: Path, widths: Sequence[str], last: int, has_blocks: bool) -> None:
    kept = Snapshots(folder / "snapshots", last=last, entries=64)
    noise = torch.Generator().manual_seed(1)
    model = {name: torch.randn(shape, generator=noise) / 3 for name, shape in WEIGHTS.items()}
    for round_ in (0, 1, last):
        blocks = [{name: values.sign() / 2 for name, values in model.items()}, model] if has_blocks and round_ else []
        kept.keep_server(round_, model, blocks, 0 if blocks else -1)
        for client, width in enumerate(widths if round_ else ()):
            shift = 0.05 * torch.randn((), generator=noise)
            own = {
                name: quantize((values + shift).clamp(-1, 1), Bitwidth.parse(width)) for name, values in model.items()
            }
            kept.keep_client(round_, client, own)
