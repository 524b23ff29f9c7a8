from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prowd.data.shares import Shares

HANDS = st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=6)


@given(HANDS)
def test_everybody_has_what_they_were_given(hands: list[list[int]]) -> None:
    shares = Shares.of(torch.tensor(hand, dtype=torch.int64) for hand in hands)
    assert len(shares) == len(hands)
    assert [share.tolist() for share in shares] == hands
    assert [shares[holder].tolist() for holder in range(len(hands))] == hands
    assert shares.sizes.tolist() == [len(hand) for hand in hands]
    assert [share.tolist() for share in shares.ascending()] == [sorted(hand) for hand in hands]
    again = Shares.dealt(shares.rows, shares.holders, len(hands))
    assert [share.tolist() for share in again] == hands
    odd = shares.kept(shares.rows % 2 == 1)
    assert [share.tolist() for share in odd] == [[row for row in hand if row % 2] for hand in hands]


def test_rows_are_dealt_in_their_order_and_who_gets_none_is_there() -> None:
    shares = Shares.dealt(torch.tensor([7, 3, 5, 1]), torch.tensor([2, 0, 2, 0]), 4)
    assert [share.tolist() for share in shares] == [[3, 1], [], [7, 5], []]


@pytest.mark.parametrize("holder", [-1, 3])
def test_nobody_else_is_asked_for(holder: int) -> None:
    with pytest.raises(IndexError, match=f"holder {holder} of 3"):
        Shares.of([torch.arange(2)] * 3)[holder]
