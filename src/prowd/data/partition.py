"""Who holds which training examples: the server's small buffer first, then the clients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from prowd.errors import ConfigError
from prowd.numbers.seeds import generator

__all__ = ["Partition", "partition"]

MAX_TRIES = 100


@dataclass(frozen=True)
class Partition:
    """Ascending int64 indices into the training set: of each client, and of the server's buffer U; all disjoint."""

    clients: tuple[Tensor, ...]
    buffer: Tensor


def partition(
    labels: Tensor,
    classes: int,
    clients: int,
    *,
    scheme: Literal["iid", "dirichlet"],
    alpha: float,
    per_client: int | None,
    buffer: int,
    seed: int,
) -> Partition:
    """Split the training set over the clients, evenly in every class or by Dirichlet(alpha) proportions.

    ``per_client`` is what every client holds under ``iid`` and the most a client may hold under ``dirichlet``.
    """
    left = len(labels) - buffer
    _check(len(labels), clients, scheme=scheme, alpha=alpha, per_client=per_client, buffer=buffer)
    pools = [_shuffled((labels == label).nonzero()[:, 0], seed, label) for label in range(classes)]
    quotas = _stratified([len(pool) for pool in pools], buffer)
    held_back = torch.cat([pool[:quota] for pool, quota in zip(pools, quotas, strict=True)])
    pools = [pool[quota:] for pool, quota in zip(pools, quotas, strict=True)]
    if scheme == "iid":
        shares = _deal(pools, clients, left if per_client is None else clients * per_client)
    else:
        shares = _dirichlet(pools, clients, alpha, seed)
        shares = [_capped(share, per_client, seed, client) for client, share in enumerate(shares)]
    return Partition(tuple(share.sort().values for share in shares), held_back.sort().values)


def _check(examples: int, clients: int, *, scheme: str, alpha: float, per_client: int | None, buffer: int) -> None:
    left = examples - buffer
    if scheme not in ("iid", "dirichlet"):
        raise ConfigError(f"partition: {scheme!r} is unknown; accepted: iid, dirichlet")
    if not 1 <= clients <= examples:
        raise ConfigError(f"clients: {clients} clients cannot share {examples} examples; accepted: 1 to {examples}")
    if not 0 <= buffer <= examples - clients:
        raise ConfigError(f"buffer: {buffer} of {examples} examples; accepted: 0 to {examples - clients}, one a client")
    if scheme == "dirichlet" and not (math.isfinite(alpha) and alpha > 0):
        raise ConfigError(f"alpha: {alpha} is no Dirichlet concentration; accepted: finite numbers above 0")
    most = left // clients if scheme == "iid" else left - clients + 1
    if per_client is not None and not 1 <= per_client <= most:
        raise ConfigError(f"per_client: {per_client} of {left} examples; accepted: 1 to {most} for {clients} clients")


def _shuffled(indices: Tensor, seed: int, label: int) -> Tensor:
    return indices[torch.randperm(len(indices), generator=generator(seed, "partition", "shuffle", label))]


def _stratified(counts: list[int], wanted: int) -> list[int]:
    """Share ``wanted`` out over classes in proportion to their size, the odd ones to the largest remainders."""
    total = sum(counts)
    quotas = [wanted * count // total for count in counts]
    by_remainder = sorted(range(len(counts)), key=lambda label: -(wanted * counts[label] % total))
    for label in by_remainder[: wanted - sum(quotas)]:
        quotas[label] += 1
    return quotas


def _deal(pools: list[Tensor], clients: int, wanted: int) -> list[Tensor]:
    """Deal class after class round the clients like cards: counts differ by at most 1, in a class and in total."""
    quotas = _stratified([len(pool) for pool in pools], wanted)
    deck = torch.cat([pool[:quota] for pool, quota in zip(pools, quotas, strict=True)])
    return [deck[client::clients] for client in range(clients)]


def _dirichlet(pools: list[Tensor], clients: int, alpha: float, seed: int) -> list[Tensor]:
    """Cut every class by its own proportions; draw again while a client comes away empty."""
    sizes = torch.tensor([len(pool) for pool in pools], dtype=torch.float64)[:, None]
    for attempt in range(MAX_TRIES):
        proportions = _proportions(len(pools), clients, alpha, generator(seed, "partition", "dirichlet", attempt))
        ends = (proportions.cumsum(1) * sizes).round().to(torch.int64)
        counts = ends.diff(dim=1, prepend=torch.zeros_like(ends[:, :1])).sum(0)
        if int(counts.min()) > 0:
            parts = [pool.tensor_split(row[:-1]) for pool, row in zip(pools, ends.tolist(), strict=True)]
            return [torch.cat(share) for share in zip(*parts, strict=True)]
    found = f"{alpha} leaves one of {clients} clients without examples in {MAX_TRIES} draws"
    raise ConfigError(f"alpha: {found}; accepted: a larger alpha, or fewer clients")


def _proportions(classes: int, clients: int, alpha: float, random: torch.Generator) -> Tensor:
    """One Dirichlet draw a class, in float64, as normalised gammas.

    Gamma(a) is Gamma(a + 1)·U^(1/a), taken in logarithms: for a small alpha all gammas of a row would underflow to 0.
    """
    shape = torch.full((classes, clients), alpha + 1.0, dtype=torch.float64)
    gammas = torch._standard_gamma(shape, generator=random)  # what torch.distributions uses, which takes no generator
    uniform = 1.0 - torch.rand(shape.shape, generator=random, dtype=torch.float64)
    return (gammas.log() + uniform.log() / alpha).softmax(1)


def _capped(share: Tensor, most: int | None, seed: int, client: int) -> Tensor:
    if most is None or len(share) <= most:
        return share
    return share[torch.randperm(len(share), generator=generator(seed, "partition", "cap", client))[:most]]
