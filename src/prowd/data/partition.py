"""Who holds which training examples: the server's small buffer first, then the clients."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from prowd.data.shares import Shares
from prowd.errors import ConfigError
from prowd.numbers.seeds import generator

__all__ = ["SCHEMES", "Partition", "hold_out", "partition"]

MAX_TRIES = 100
HOPEFUL = 50  # where one draw leaves more clients than that empty, no other leaves none
Scheme = Literal["iid", "dirichlet", "natural"]
SCHEMES = ("iid", "dirichlet", "natural")


@dataclass(frozen=True)
class Partition:
    """Ascending int64 indices into the training set: of each client, and of the server's buffer U; all disjoint.

    ``own`` are those that each client holds but does not train on: its own test examples.
    """

    clients: Shares
    buffer: Tensor
    own: Shares


def partition(
    labels: Tensor,
    classes: int,
    clients: int,
    *,
    scheme: Scheme,
    alpha: float,
    per_client: int | None,
    buffer: int,
    seed: int,
    holders: Tensor | None = None,
    people: Sequence[int] = (),
    own_test: float = 0.0,
) -> Partition:
    """Split the training set over the clients: evenly in every class, by Dirichlet(alpha) proportions, or as it is.

    ``per_client`` is what every client holds under ``iid``, otherwise the most a client may hold. Under ``natural``
    client n holds the examples of the n-th of ``people``, as ``holders`` has the person of each example. Of what a
    client holds it sets a share ``own_test`` aside.
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
        by_person = scheme == "natural"
        shares = _natural(pools, clients, holders, people) if by_person else _dirichlet(pools, clients, alpha, seed)
        shares = shares if per_client is None else _capped(shares, per_client, seed)
    shares = shares.ascending()
    if own_test:
        kept, own = (
            Shares.of(side) for side in zip(*(hold_out(rows, labels, own_test) for rows in shares), strict=True)
        )
    else:
        kept, own = shares, shares.kept(torch.zeros(len(shares.rows), dtype=torch.bool))
    return Partition(kept, held_back.sort().values, own)


def hold_out(rows: Tensor, labels: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Part ascending rows into those that a client trains on and its own test examples: of each class the last ones.

    Windows of a recording overlap, so these are the end of the recordings, and one example between the two parts is
    in neither. A class of which nothing would be left to train on is not parted.
    """
    if not share:
        return rows, rows[:0]
    kept, aside = [], []
    for label in torch.unique(labels[rows]).tolist():
        found = rows[labels[rows] == label]
        last = round(share * len(found))
        last = last if last + 1 < len(found) else 0
        kept.append(found[: len(found) - last - 1] if last else found)
        aside.append(found[len(found) - last :])
    return torch.cat(kept).sort().values, torch.cat(aside).sort().values


def _check(examples: int, clients: int, *, scheme: str, alpha: float, per_client: int | None, buffer: int) -> None:
    left = examples - buffer
    if scheme not in SCHEMES:
        raise ConfigError(f"partition: {scheme!r} is unknown; accepted: {', '.join(SCHEMES)}")
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


def _deal(pools: list[Tensor], clients: int, wanted: int) -> Shares:
    """Deal class after class round the clients like cards: counts differ by at most 1, in a class and in total."""
    quotas = _stratified([len(pool) for pool in pools], wanted)
    deck = torch.cat([pool[:quota] for pool, quota in zip(pools, quotas, strict=True)])
    return Shares.dealt(deck, torch.arange(len(deck)) % clients, clients)


def _dirichlet(pools: list[Tensor], clients: int, alpha: float, seed: int) -> Shares:
    """Cut every class by its own proportions; draw again while a client comes away empty.

    Where clients are many or alpha is small somebody always does: then the first draw stands, and is mended.
    """
    sizes = torch.tensor([len(pool) for pool in pools], dtype=torch.float64)[:, None]
    first = counts = _drawn(sizes, clients, alpha, generator(seed, "partition", "dirichlet", 0))
    for attempt in range(1, MAX_TRIES):
        if not 0 < _empty(counts) <= HOPEFUL:
            break
        counts = _drawn(sizes, clients, alpha, generator(seed, "partition", "dirichlet", attempt))
    counts = _mended(first) if _empty(counts) else counts
    everybody = torch.arange(clients).expand_as(counts)
    return Shares.dealt(torch.cat(pools), everybody.flatten().repeat_interleave(counts.flatten()), clients)


def _drawn(sizes: Tensor, clients: int, alpha: float, random: torch.Generator) -> Tensor:
    """How many examples of each class (rows) each client (columns) gets in one draw; a row adds up to its class."""
    ends = (_proportions(len(sizes), clients, alpha, random).cumsum(1) * sizes).round().to(torch.int64)
    return ends.diff(dim=1, prepend=torch.zeros_like(ends[:, :1]))


def _empty(counts: Tensor) -> int:
    return int((counts.sum(0) == 0).sum())


def _mended(counts: Tensor) -> Tensor:
    """Whoever has nothing gets one example of whoever has the most by then, from its largest class; the rest stays."""
    held, mended = counts.sum(0).tolist(), counts.clone()
    richest = [(-count, client) for client, count in enumerate(held) if count]
    heapq.heapify(richest)
    for poor in [client for client, count in enumerate(held) if not count]:
        most, rich = richest[0]
        label = int(mended[:, rich].argmax())
        mended[label, rich] -= 1
        mended[label, poor] += 1
        heapq.heapreplace(richest, (most + 1, rich))
    return mended


def _natural(pools: list[Tensor], clients: int, holders: Tensor | None, people: Sequence[int]) -> Shares:
    """Everybody's own examples; which classes these are is as it is."""
    if holders is None:
        raise ConfigError(
            "partition: 'natural' of data that does not say of whom it is; accepted: an array client in it"
        )
    if clients != len(people):
        found = f"{clients} clients for the {len(people)} people whose data is used"
        raise ConfigError(f"clients: {found}; accepted: {len(people)} with partition natural")
    rows, places = torch.cat(pools), {person: client for client, person in enumerate(people)}
    whose = torch.tensor([places.get(person, -1) for person in holders[rows].tolist()], dtype=torch.int64)
    shares = Shares.dealt(rows[whose >= 0], whose[whose >= 0], clients)
    if empty := (shares.sizes == 0).nonzero().flatten().tolist():
        raise ConfigError(f"buffer: it takes all examples of person {people[empty[0]]}; accepted: a smaller one")
    return shares


def _proportions(classes: int, clients: int, alpha: float, random: torch.Generator) -> Tensor:
    """One Dirichlet draw a class, in float64, as normalised gammas.

    Gamma(a) is Gamma(a + 1)·U^(1/a), taken in logarithms: for a small alpha all gammas of a row would underflow to 0.
    """
    shape = torch.full((classes, clients), alpha + 1.0, dtype=torch.float64)
    gammas = torch._standard_gamma(shape, generator=random)  # what torch.distributions uses, which takes no generator
    uniform = 1.0 - torch.rand(shape.shape, generator=random, dtype=torch.float64)
    return (gammas.log() + uniform.log() / alpha).softmax(1)


def _capped(shares: Shares, most: int, seed: int) -> Shares:
    """At most so many rows for everybody, drawn from those that they have."""
    kept, sizes = torch.ones(len(shares.rows), dtype=torch.bool), shares.sizes
    starts = shares.ends - sizes
    for client in (sizes > most).nonzero().flatten().tolist():
        size, start = int(sizes[client]), int(starts[client])
        order = torch.randperm(size, generator=generator(seed, "partition", "cap", client))
        kept[start + order[most:]] = False
    return shares.kept(kept)
