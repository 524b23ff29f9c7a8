"""What a run came to: the last measured accuracies, the bytes that crossed, and the hash of the weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from prowd.config.schema import RunConfig
from prowd.device.scene import Scene
from prowd.methods import find_method

__all__ = ["mean_over_clients", "summarise", "weighted_mean"]


def summarise(config: RunConfig, scene: Scene, lines: Sequence[dict[str, Any]], weights_sha256: str) -> dict[str, Any]:
    """Sum up the lines of rounds.jsonl."""
    received, trained = (_latest(scene, lines, when) for when in ("received", "trained"))
    return {
        "name": config.name,
        "version": config.version,
        "method": find_method(config.method).name,
        "seed": config.seed,
        "clients": config.clients,
        "rounds": len(lines),
        "accuracy": {"received": received, "trained": trained},
        "average_accuracy": {
            "received": mean_over_clients(scene, received),
            "trained": mean_over_clients(scene, trained),
        },
        "bytes": {way: _totals(line["bytes"][way] for line in lines) for way in ("up", "down")},
        "clients_lost": sum(len(line["clients"]["lost"]) for line in lines),
        "clients_refused": sum(len(line["clients"]["refused"]) for line in lines),
        "weights_sha256": weights_sha256,
        "seconds": round(sum(line["seconds"] for line in lines), 3),
    }


def _latest(scene: Scene, lines: Sequence[dict[str, Any]], when: str) -> dict[str, float]:
    """The last accuracy that was measured for each width: not every round measures, or has clients of, every width."""
    latest: dict[str, float] = {}
    for line in lines:
        latest |= line["accuracy"][when]
    widths = [str(width) for width in sorted({client.width for client in scene.clients})]
    return {width: latest[width] for width in widths if width in latest}


def mean_over_clients(scene: Scene, accuracy: dict[str, float]) -> float | None:
    """Mean accuracy of all clients whose width was measured, each counted once."""
    return weighted_mean(Counter(str(client.width) for client in scene.clients), accuracy)


def weighted_mean(counts: Mapping[str, int], accuracy: Mapping[str, float]) -> float | None:
    """Mean of the widths' accuracies, each counted by its clients."""
    total = sum(counts[width] for width in accuracy)
    return sum(counts[width] * value for width, value in accuracy.items()) / total if total else None


def _totals(rounds: Any) -> dict[str, int]:
    totals: dict[str, int] = {}
    for sizes in rounds:
        for width, size in sizes.items():
            totals[width] = totals.get(width, 0) + size
    return totals
