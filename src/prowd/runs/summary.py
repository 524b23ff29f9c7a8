"""The summary of a run: the last measured accuracies, the bytes that crossed, and the hash of the weights."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from prowd.config.schema import RunConfig
from prowd.device.scene import Scene
from prowd.federation.report import RoundReport, totals
from prowd.methods import find_method

__all__ = ["in_detail", "latest", "summarise", "weighted_mean"]


def summarise(config: RunConfig, scene: Scene, lines: Sequence[RoundReport], weights_sha256: str) -> dict[str, Any]:
    """Sum up the lines of rounds.jsonl."""
    counts = Counter(client.width for client in scene.clients)
    mix = {str(width): counts[width] for width in sorted(counts)}
    accuracy = {
        when: {width: found[width] for width in mix if width in found}
        for when, found in ((when, latest(lines, when)) for when in ("received", "trained", "server"))
    }
    return {
        "name": config.name,
        "version": config.version,
        "method": find_method(config.method).name,
        "seed": config.seed,
        "clients": config.clients,
        "rounds": len(lines),
        "accuracy": accuracy,
        "average_accuracy": {when: weighted_mean(mix, found) for when, found in accuracy.items()},
        **json.loads(json.dumps(in_detail(lines))),
        "bytes": {way: totals(getattr(line.traffic, way) for line in lines) for way in ("up", "down")},
        "clients_lost": sum(len(line.clients.lost) for line in lines),
        "clients_refused": sum(len(line.clients.refused) for line in lines),
        "clients_limited": sum(len(line.clients.limited) for line in lines),
        "weights_sha256": weights_sha256,
        "seconds": round(sum(line.seconds for line in lines), 3),
    }


def latest(lines: Sequence[RoundReport], when: str) -> dict[str, float]:
    """The last accuracy that was measured for each width: not every round measures, or has clients of, every width."""
    found: dict[str, float] = {}
    for line in lines:
        found |= getattr(line.accuracy, when)
    return found


def in_detail(lines: Sequence[RoundReport]) -> dict[str, Any]:
    """The last of every kind of measurement by client, class and person, where there is any."""
    found: dict[str, Any] = {}
    for line in lines:
        accuracy = line.accuracy
        kinds = {key: getattr(accuracy, key) for key in ("clients", "own", "classes", "people", "confusion")}
        for key, values in {**kinds, "balanced": accuracy.balanced}.items():
            if values:
                found[key] = found.get(key, {}) | values
    return {"measured": found} if found else {}


def weighted_mean(counts: Mapping[str, int], accuracy: Mapping[str, float]) -> float | None:
    """Mean of the widths' accuracies, each counted by its clients."""
    total = sum(counts[width] for width in accuracy)
    return sum(counts[width] * value for width, value in accuracy.items()) / total if total else None
