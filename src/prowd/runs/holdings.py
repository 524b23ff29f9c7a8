"""Who holds what: the examples of each class that every simulated client trains on, written down for the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from prowd.data import Dataset, Partition
from prowd.device.scene import ClientSpec

__all__ = ["FILE", "Holding", "Holdings", "holdings_of", "read_holdings"]

FILE = "holdings.json"
Count = Annotated[int, Field(ge=0, lt=2**63)]


class Holding(BaseModel):
    """One client: its number and width, the person it is if it is one, and its examples of each class."""

    model_config = ConfigDict(frozen=True)

    client: Count
    width: str
    person: Count | None = None
    examples: tuple[Count, ...]
    own: Count = 0
    """Examples that it holds out for itself."""


class Holdings(BaseModel):
    """All clients, and the test set by class; ``test_people`` are those whom no client has seen."""

    model_config = ConfigDict(frozen=True)

    classes: Annotated[tuple[str, ...], Field(min_length=1)]
    clients: Annotated[tuple[Holding, ...], Field(min_length=1)]
    test: tuple[Count, ...]
    test_people: tuple[Count, ...] = ()

    @model_validator(mode="after")
    def _same_classes(self) -> Self:
        counts = [self.test, *(one.examples for one in self.clients)]
        if any(len(found) != len(self.classes) for found in counts):
            raise ValueError("not a number for every class")
        return self

    def encode(self) -> bytes:
        """As JSON."""
        return (json.dumps(self.model_dump(mode="json")) + "\n").encode()


def holdings_of(dataset: Dataset, partition: Partition, clients: Sequence[ClientSpec], *, by_person: bool) -> Holdings:
    """Count what everybody holds."""

    def counts(rows: Tensor) -> tuple[int, ...]:
        return tuple(dataset.y_train[rows].bincount(minlength=dataset.classes).tolist())

    seen = () if dataset.test_client is None else tuple(dict.fromkeys(sorted(dataset.test_client.tolist())))
    return Holdings(
        classes=dataset.class_names or tuple(map(str, range(dataset.classes))),
        clients=tuple(
            Holding(
                client=client.id,
                width=str(client.width),
                person=dataset.people[client.id] if by_person else None,
                examples=counts(rows),
                own=len(own),
            )
            for client, rows, own in zip(clients, partition.clients, partition.own, strict=True)
        ),
        test=tuple(dataset.y_test.bincount(minlength=dataset.classes).tolist()),
        test_people=seen,
    )


def read_holdings(path: Path) -> Holdings | None:
    """What a run directory says of who holds what; None where it says nothing that can be read."""
    try:
        return Holdings.model_validate_json((path / FILE).read_bytes())
    except (OSError, ValidationError):
        return None
