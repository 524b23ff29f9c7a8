"""Run directories written by hand: every number in them is known, and nothing is trained."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tomli_w
import torch
from torch import Tensor

from prowd.numbers.bits import Bitwidth, parse_mix
from prowd.numbers.quantize import quantize
from prowd.runs.snapshots import Snapshots
from prowd.views.report import Report, make_report, page
from prowd.views.report.groups import Group, gather
from prowd.views.report.style import Drawing, styled

CLIENTS = "int8:2, float32:2"
SESSION: dict[str, Any] = {
    "version": "0.2.0",
    "commit": "0123456789abcdef0123456789abcdef01234567+",
    "command": "prowd run quick",
    "started": "2026-01-02T03:04:05+00:00",
    "machine": {"system": "Linux x86_64", "processor": "Abacus", "cores": 8, "python": "3.11.7", "torch": "2.13.0"},
    "round": 0,
}

Line = dict[str, Any]


def line(
    round_: int,
    trained: Mapping[str, float],
    *,
    received: Mapping[str, float] | None = None,
    up: Mapping[str, int] | None = None,
    down: Mapping[str, int] | None = None,
    clients: Mapping[int, tuple[int, int]] | None = None,
    asked: int = 4,
    lost: Iterable[Line] = (),
    refused: Iterable[Line] = (),
    **more: Any,
) -> Line:
    """A line of rounds.jsonl; ``clients`` are the bytes of each, up and down, which older versions did not write."""
    moved: dict[str, Any] = {"up": dict(up or {}), "down": dict(down or {})}
    if clients is not None:
        moved["clients"] = {str(client): list(pair) for client, pair in clients.items()}
    return {
        "round": round_,
        "accuracy": {"received": dict(trained if received is None else received), "trained": dict(trained)},
        "loss": dict.fromkeys(trained, 1.0),
        "bytes": moved,
        "clients": {"asked": asked, "lost": list(lost), "refused": list(refused)},
        "notes": {},
        "seconds": 0.5,
        **more,
    }


def absent(client: int, width: str = "int8", reason: str = "no reply", attempt: int = 0) -> Line:
    """A client whose work is missing."""
    return {"client": client, "width": width, "reason": reason} | ({"attempt": attempt} if attempt else {})


def lines(*averages: float, clients: str = CLIENTS, sent: int = 1000) -> list[Line]:
    """Rounds in which all widths have these accuracies, and every client sends and receives as many bytes."""
    widths = list(map(str, parse_mix(clients)))
    moved = {width: sent * widths.count(width) for width in widths}
    by_client = dict.fromkeys(range(len(widths)), (sent, sent))
    return [
        line(number, dict.fromkeys(moved, value), up=moved, down=moved, clients=by_client, asked=len(widths))
        for number, value in enumerate(averages, 1)
    ]


def write(
    path: Path,
    made: Sequence[Line] = (),
    /,
    *,
    finished: bool = True,
    sessions: Sequence[Line] = (SESSION,),
    **settings: Any,
) -> Path:
    """Write a run; settings of None are left out, as an older version would have."""
    path.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {"name": "hand", "version": "0.2.0", "seed": 0, "method": "fedavg", "options": {}}
    config |= {"clients": CLIENTS, "rounds": len(made), "uplink": "ternary", "data": "digits", **settings}
    config = {key: value for key, value in config.items() if value is not None}
    (path / "config.toml").write_text(tomli_w.dumps(config), "utf-8")
    (path / "rounds.jsonl").write_text("".join(json.dumps(one) + "\n" for one in made), "utf-8")
    if sessions:
        (path / "provenance.json").write_text(json.dumps({"sessions": list(sessions)}), "utf-8")
    if finished:
        name = str(config.get("method", "fedavg")).rpartition(":")[2].lower()
        summary = {"method": name, "rounds": len(made), "weights_sha256": "00"}
        (path / "summary.json").write_text(json.dumps(summary), "utf-8")
    return path


def write_plan(path: Path, baseline: str, failures: Mapping[str, str] | None = None) -> None:
    """Write a comparison.json beside the runs."""
    facts = {"runs": [], "baseline": baseline, "failures": dict(failures or {})}
    (path / "comparison.json").write_text(json.dumps(facts), "utf-8")


def keep_clients(path: Path, round_: int, weights: Mapping[int, tuple[str, Mapping[str, Tensor]]]) -> None:
    """Keep samples of clients' weights, each with its width."""
    kept = Snapshots(path / "snapshots")
    for client, (width, tensors) in weights.items():
        quantized = {name: quantize(values, Bitwidth.parse(width)) for name, values in tensors.items()}
        kept.keep_client(round_, client, quantized)


def keep_server(
    path: Path, round_: int, model: Mapping[str, Tensor], stages: Sequence[Mapping[str, Tensor]] = (), client: int = -1
) -> None:
    """Keep samples of the server's weights, and of a client's after each block of φ."""
    Snapshots(path / "snapshots").keep_server(round_, model, stages, client)


def spread(seed: int = 0, shape: Sequence[int] = (4, 2, 3, 3)) -> Tensor:
    """Weights between −1 and 1."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


@contextmanager
def unrendered() -> Iterator[None]:
    """Make figures in the report's style without their layout, which takes most of the time."""
    with styled(), patch.object(Drawing, "__post_init__", lambda _: None):
        yield


def quick_report(folders: Sequence[Path], out: Path) -> Report:
    """The page of a report with empty frames for its figures, which are made but not rendered."""
    with unrendered(), patch.object(page, "inline_svg", lambda *_: "<svg></svg>"):
        return make_report(folders, out, files=False)


def only_group(*folders: Path) -> Group:
    """The group of runs that belong together, without anything to be said of them."""
    (group,), problems = gather(folders)
    assert problems == []
    return group
