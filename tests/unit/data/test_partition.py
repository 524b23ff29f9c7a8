from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from prowd.data import Partition, partition
from prowd.data.partition import _drawn
from prowd.errors import ConfigError
from prowd.numbers.seeds import generator

BALANCED = torch.arange(200) % 4


def split(labels: Tensor = BALANCED, clients: int = 5, **changes: Any) -> Partition:
    settings: dict[str, Any] = {"scheme": "iid", "alpha": 1.0, "per_client": None, "buffer": 0, "seed": 0}
    return partition(labels, int(labels.max()) + 1, clients, **{**settings, **changes})


def histograms(labels: Tensor, shares: Iterable[Tensor]) -> Tensor:
    classes = int(labels.max()) + 1
    return torch.stack([labels[share].bincount(minlength=classes) for share in shares])


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, int, int, int]:
    """Labels in any order and balance, clients, buffer and seed that fit together."""
    counts = draw(st.lists(st.integers(1, 40), min_size=2, max_size=6))
    labels = torch.cat([torch.full((count,), label) for label, count in enumerate(counts)])
    seed = draw(st.integers(0, 2**32))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    clients = draw(st.integers(1, min(12, len(labels))))
    return labels, clients, draw(st.integers(0, len(labels) - clients)), seed


def check_indices(labels: Tensor, part: Partition, *, complete: bool) -> None:
    everything = torch.cat([*part.clients, part.buffer])
    assert everything.dtype == torch.int64
    assert len(set(everything.tolist())) == len(everything), "disjoint"
    assert not complete or len(everything) == len(labels)
    assert all(torch.equal(share, share.sort().values) for share in (*part.clients, part.buffer))


def same(one: Partition, other: Partition) -> bool:
    pairs = zip((*one.clients, one.buffer), (*other.clients, other.buffer), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@given(cases())
@settings(deadline=None, max_examples=60)
def test_iid_is_complete_disjoint_and_even(case: tuple[Tensor, int, int, int]) -> None:
    labels, clients, buffer, seed = case
    part = split(labels, clients, buffer=buffer, seed=seed)
    check_indices(labels, part, complete=True)
    assert len(part.buffer) == buffer
    held = histograms(labels, part.clients)
    assert (held.max(0).values - held.min(0).values).max() <= 1
    assert held.sum(1).max() - held.sum(1).min() <= 1
    exact = labels.bincount() * buffer / len(labels)
    assert (histograms(labels, (part.buffer,))[0] - exact).abs().max() < 1, "the buffer is stratified"
    assert same(part, split(labels, clients, buffer=buffer, seed=seed))


@given(cases(), st.data())
@settings(deadline=None, max_examples=60)
def test_capped_iid_gives_every_client_just_as_many(case: tuple[Tensor, int, int, int], data: st.DataObject) -> None:
    labels, clients, buffer, seed = case
    per_client = data.draw(st.integers(1, (len(labels) - buffer) // clients))
    part = split(labels, clients, buffer=buffer, seed=seed, per_client=per_client)
    check_indices(labels, part, complete=False)
    assert {len(share) for share in part.clients} == {per_client}
    held = histograms(labels, part.clients)
    assert (held.max(0).values - held.min(0).values).max() <= 1
    left = labels.bincount() - histograms(labels, (part.buffer,))[0]
    assert (held.sum(0) - left * (clients * per_client) / left.sum()).abs().max() < 1, "stratified over all clients"


@given(cases(), st.sampled_from([1e-6, 0.05, 0.5, 5.0, 1e6]), st.none() | st.integers(1, 9))
@settings(deadline=None, max_examples=25)
def test_dirichlet_is_complete_disjoint_and_leaves_nobody_empty(
    case: tuple[Tensor, int, int, int], alpha: float, per_client: int | None
) -> None:
    labels, clients, buffer, seed = case
    options: dict[str, Any] = {"scheme": "dirichlet", "alpha": alpha, "buffer": buffer, "seed": seed}
    assume(per_client is None or per_client <= len(labels) - buffer - clients + 1)
    part = split(labels, clients, per_client=per_client, **options)
    check_indices(labels, part, complete=per_client is None)
    assert len(part.buffer) == buffer
    assert min(len(share) for share in part.clients) >= 1
    assert same(part, split(labels, clients, per_client=per_client, **options))
    if per_client is not None:
        whole = split(labels, clients, **options)
        for capped, full in zip(part.clients, whole.clients, strict=True):
            assert len(capped) == min(len(full), per_client)
            assert torch.isin(capped, full).all()


def test_dirichlet_spread_follows_alpha() -> None:
    """The variance of a Dirichlet proportion over K clients is (K−1) / (K²·(K·alpha + 1))."""
    labels = torch.arange(40_000) % 40
    for alpha in (0.1, 1.0, 10.0):
        held = histograms(labels, split(labels, 10, scheme="dirichlet", alpha=alpha).clients) / 1000
        assert torch.allclose(held.sum(0), torch.ones(40))
        assert float(held.var(correction=0)) == pytest.approx(9 / (100 * (10 * alpha + 1)), rel=0.2)


def test_tiny_alpha_gives_whole_classes_and_no_nan() -> None:
    labels = torch.arange(1200) % 12
    held = histograms(labels, split(labels, 2, scheme="dirichlet", alpha=1e-6).clients)
    assert set(held.flatten().tolist()) == {0, 100}


@pytest.mark.parametrize("alpha", [1e-6, 0.01, 0.1])
def test_many_clients_are_a_draw_mended_only_where_it_leaves_somebody_empty(alpha: float) -> None:
    """At 2,000 clients and alpha 0.1 a draw leaves about one in twenty empty, and drawing again does not help."""
    labels = torch.arange(40_000) % 10
    sizes = torch.full((10, 1), 4000.0, dtype=torch.float64)
    drawn = _drawn(sizes, 2000, alpha, generator(0, "partition", "dirichlet", 0)).T
    held = histograms(labels, split(labels, 2000, scheme="dirichlet", alpha=alpha).clients)
    poor = drawn.sum(1) == 0
    assert int(poor.sum()) > 0
    assert (held[poor].sum(1) == 1).all(), "who had nothing has one example"
    assert ((held - drawn)[~poor] <= 0).all(), "and nobody else has more than was drawn"
    moved = (drawn - held)[~poor].sum(1)
    assert int(moved.sum()) == int(poor.sum())
    gave = held[~poor].sum(1)[moved > 0]
    assert int(held.sum(1).max()) - int(gave.min()) <= 1, "those who had most gave, and evenly"


def test_ten_thousand_clients_hold_everything_and_nobody_nothing() -> None:
    labels = torch.arange(50_000) % 10
    part = split(labels, 10_000, scheme="dirichlet", alpha=0.1, buffer=500)
    check_indices(labels, part, complete=True)
    held = histograms(labels, part.clients)
    assert held.sum(1).min() == 1
    assert float((held > 0).sum(1).double().mean()) < 2.5, "clients know few classes, as alpha says"


def test_as_many_clients_as_examples_hold_one_each() -> None:
    part = split(clients=190, scheme="dirichlet", alpha=0.1, buffer=10)
    assert [len(share) for share in part.clients] == [1] * 190


def test_what_a_redraw_can_give_is_not_mended() -> None:
    """The first stands as drawn, the second is the fourth draw: sizes from when nothing was mended."""
    sizes = [len(share) for share in split(scheme="dirichlet", alpha=0.1, seed=1).clients]
    assert sizes == [35, 57, 12, 17, 79]
    sizes = [len(share) for share in split(clients=12, scheme="dirichlet", alpha=0.2, seed=1).clients]
    assert sizes == [26, 17, 3, 28, 2, 7, 43, 7, 39, 1, 14, 13]


def test_seeds_and_buffers_change_the_split() -> None:
    assert not same(split(seed=0), split(seed=1))
    assert not same(split(scheme="dirichlet", seed=0), split(scheme="dirichlet", seed=1))
    assert not torch.equal(split(buffer=8, seed=0).buffer, split(buffer=8, seed=1).buffer)


def test_any_number_of_threads_gives_the_same_split() -> None:
    labels = torch.arange(30_000) % 10
    threads = torch.get_num_threads()
    try:
        parts = []
        for count in (1, 2):
            torch.set_num_threads(count)
            parts.append(split(labels, 200, scheme="dirichlet", alpha=1.0))
    finally:
        torch.set_num_threads(threads)
    assert same(*parts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": 0}, "clients: 0 .*accepted: 1 to 200"),
        ({"clients": 201}, "clients: 201 clients cannot share 200 examples; accepted: 1 to 200"),
        ({"buffer": -1}, "buffer: -1 .*accepted: 0 to 195"),
        ({"buffer": 196}, "buffer: 196 of 200 .*accepted: 0 to 195"),
        ({"per_client": 0}, "per_client: 0 .*accepted: 1 to 40"),
        ({"per_client": 41}, "per_client: 41 .*accepted: 1 to 40"),
        ({"per_client": 31, "buffer": 50}, "per_client: 31 .*150 examples; accepted: 1 to 30"),
        ({"per_client": 197, "scheme": "dirichlet"}, "per_client: 197 .*accepted: 1 to 196"),
        ({"scheme": "dirichlet", "alpha": 0.0}, "alpha: 0.0 .*accepted: finite numbers above 0"),
        ({"scheme": "dirichlet", "alpha": float("nan")}, "alpha: nan .*accepted"),
        ({"scheme": "dirichlet", "clients": 201}, "clients: 201 clients cannot share 200 examples; accepted: 1 to 200"),
        ({"scheme": "dirichlet", "clients": 190, "buffer": 11}, "buffer: 11 of 200 examples; accepted: 0 to 10"),
        ({"scheme": "sorted"}, "partition: 'sorted' .*accepted: iid, dirichlet"),
    ],
)
def test_refusals_name_field_value_and_what_is_accepted(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        split(**changes)


def test_by_person_everybody_holds_their_own() -> None:
    holders = torch.arange(200) // 40 * 2
    people = [8, 0, 4, 2, 6]
    part = split(scheme="natural", holders=holders, people=people, buffer=10)
    check_indices(BALANCED, part, complete=True)
    assert [set(holders[rows].tolist()) for rows in part.clients] == [{person} for person in people]


def test_by_person_classes_may_be_missing_and_a_cap_holds() -> None:
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 2, 2, 2])
    part = split(labels, 2, scheme="natural", holders=torch.tensor([3, 3, 3, 3, 7, 7, 7, 7, 7]), people=[3, 7])
    assert histograms(labels, part.clients).tolist() == [[2, 2, 0], [0, 0, 5]]
    capped = split(labels, 2, scheme="natural", holders=torch.arange(9) // 4, people=[0, 1], per_client=3)
    assert [len(rows) for rows in capped.clients] == [3, 3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, r"^partition: 'natural' of data that does not say of whom it is; accepted: an array client"),
        ({"holders": BALANCED, "people": [0, 1, 2, 3]}, r"^clients: 5 clients for the 4 people .*; accepted: 4 with"),
        (
            {"holders": torch.tensor([1] + [2] * 199), "people": [1, 2, 3, 4, 5], "buffer": 190},
            r"^buffer: it takes all examples of person",
        ),
    ],
)
def test_by_person_what_is_impossible_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        split(scheme="natural", **changes)


@given(cases(), st.sampled_from([0.1, 0.2, 0.5, 0.9]))
@settings(deadline=None, max_examples=60)
def test_a_client_sets_the_last_of_each_class_aside(case: tuple[Tensor, int, int, int], share: float) -> None:
    labels, clients, buffer, seed = case
    whole = split(labels, clients, buffer=buffer, seed=seed)
    part = split(labels, clients, buffer=buffer, seed=seed, own_test=share)
    check_indices(labels, part, complete=False)
    assert torch.equal(part.buffer, whole.buffer)
    for held, kept, own in zip(whole.clients, part.clients, part.own, strict=True):
        assert torch.equal(own, own.sort().values)
        for label in torch.unique(labels[held]):
            had, trains, tests = (rows[labels[rows] == label].tolist() for rows in (held, kept, own))
            assert len(trains) >= 1
            last = round(share * len(had))
            assert tests == (had[len(had) - last :] if last and last + 1 < len(had) else [])
            assert trains == (had[: len(had) - len(tests) - 1] if tests else had), "one between them is in neither"


def test_by_default_nothing_is_set_aside() -> None:
    assert [len(rows) for rows in split().own] == [0] * 5
