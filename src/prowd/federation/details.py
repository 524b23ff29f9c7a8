"""What clients say of their models in detail, gathered for the report of a round.

It is the clients' word, so it is bounded: shares lie within 0 and 1, classes are those of the network, people are few.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from prowd.device.measures import MOST_CLASSES, name_of
from prowd.device.scene import ClientSpec
from prowd.errors import WireError

__all__ = ["check_metrics", "gather"]

Metrics = Mapping[str, float]
PERSON = re.compile(r"accuracy_person_(0|[1-9][0-9]{0,17})")
MOST_PEOPLE = 100
LARGEST = 2.0**60  # of any other figure: far beyond what is measured, and far below what sums can hold


def check_metrics(metrics: Metrics) -> None:
    """Refuse measurements that cannot be."""
    for name, value in metrics.items():
        least, most = 0.0 if name == "loss" else -LARGEST, LARGEST
        if name.startswith(("accuracy", "confusion")):
            least, most = 0.0, 1.0
        if not least <= value <= most:
            raise WireError(f"metric {name!r} is {value}; accepted: {least:g} to {most:g}")
    people = sum(PERSON.fullmatch(name) is not None for name in metrics)
    if people > MOST_PEOPLE:
        raise WireError(f"accuracies of {people} people; accepted: up to {MOST_PEOPLE}")


def gather(classes: int, present: Sequence[ClientSpec], metrics: Mapping[int, Metrics]) -> dict[str, Any]:
    """The details of a round, as ``Accuracy`` of the report has them: by client, and means over those of a width."""
    one_client = {
        key: {client.id: metrics[client.id][name] for client in present if name in metrics[client.id]}
        for key, name in (("clients", "accuracy_trained"), ("own", "accuracy_own"))
    }
    pairs = range(classes) if classes <= MOST_CLASSES else ()
    people = sorted({int(found[1]) for one in metrics.values() for name in one if (found := PERSON.fullmatch(name))})
    names: dict[str, dict[Any, str]] = {
        "classes": {label: name_of("accuracy_class", label) for label in range(classes)},
        "people": {person: name_of("accuracy_person", person) for person in people},
        "confusion": {f"{true}_{taken}": name_of("confusion", true, taken) for true in pairs for taken in pairs},
    }
    return one_client | {key: _by_width(wanted, present, metrics) for key, wanted in names.items()}


def _by_width(
    names: Mapping[Any, str], present: Iterable[ClientSpec], metrics: Mapping[int, Metrics]
) -> dict[str, dict[Any, float]]:
    """For each width the mean of each measurement over the clients that say something of the kind.

    A share that a client does not mention is 0, so every one of those clients counts; of the others it is the mean of
    those who have it.
    """
    found: dict[str, dict[Any, float]] = {}
    for width in dict.fromkeys(client.width for client in sorted(present, key=lambda one: (one.width, one.id))):
        said = [metrics[client.id] for client in present if client.width == width]
        said = [one for one in said if any(name in one for name in names.values())]
        means = {}
        for key, name in names.items():
            values = [one.get(name, 0.0) if name.startswith("confusion") else one.get(name) for one in said]
            known = [value for value in values if value is not None]
            if known and any(name in one for one in said):
                means[key] = fmean(known)
        if means:
            found[str(width)] = means
    return found
