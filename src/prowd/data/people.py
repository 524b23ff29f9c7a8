"""People who are never seen in training: their examples are the test set, or the validation set."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from prowd.data.dataset import Dataset
from prowd.errors import ConfigError
from prowd.numbers.seeds import generator

__all__ = ["set_apart"]

RESERVED = 0.4  # of all people: for choosing settings, so that nobody on whom a setting was chosen is a test person
USUAL = 0.2  # of all people, where the data has no test examples of its own


def set_apart(dataset: Dataset, test: int | Literal["auto"], validation: int, seed: int) -> Dataset:
    """Put the examples of some people, drawn by the seed, in the place of the test set; the others are the clients.

    With ``validation`` so many people take the place of test people. They are drawn from two fifths of all, the same
    for every seed, of whom nobody ever is a test person. The seed also draws who of the others has which device.
    """
    count = validation or (_usual(dataset) if test == "auto" else test)
    key = "validation_clients" if validation else "test_clients"
    if dataset.client is None:
        if count:
            found = f"{count} of {dataset.name}, which does not say of whom it is"
            raise ConfigError(f"{key}: {found}; accepted: 0, or data with an array client")
        return dataset
    pool = _pool(dataset, validation=bool(validation))
    most = min(len(pool), len(dataset.people) - 1)
    least = 0 if len(dataset.y_test) else 1
    if not least <= count <= most:
        raise ConfigError(
            f"{key}: {count} of {len(dataset.people)} people; accepted for {dataset.name}: {least} to {most}"
        )
    return _part(dataset, dataset.client, pool, count, seed) if count else dataset


def _usual(dataset: Dataset) -> int:
    """How many test people there are unless somebody says so: none where the data brings a test set."""
    return 0 if len(dataset.y_test) else max(1, round(USUAL * len(dataset.people)))


def _pool(dataset: Dataset, *, validation: bool) -> Tensor:
    """Those who may be set apart: the reserved people, or all others."""
    people = torch.tensor(dataset.people)[torch.randperm(len(dataset.people), generator=generator(0, "people"))]
    reserved = round(RESERVED * len(people))
    return people[:reserved] if validation else people[reserved:]


def _part(dataset: Dataset, client: Tensor, pool: Tensor, count: int, seed: int) -> Dataset:
    aside = pool[torch.randperm(len(pool), generator=generator(seed, "people", "aside"))[:count]]
    people = torch.tensor(dataset.people)
    others = people[~torch.isin(people, aside)]
    order = torch.randperm(len(others), generator=generator(seed, "people", "devices"))
    out, x, y = torch.isin(client, aside), dataset.x_train, dataset.y_train
    return replace(
        dataset,
        x_train=x[~out],
        y_train=y[~out],
        client=client[~out],
        people=tuple(others[order].tolist()),
        x_test=x[out],
        y_test=y[out],
        test_client=client[out],
    )
