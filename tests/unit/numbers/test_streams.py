"""Random words: the published answers, the oracle's, and what is made of them."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prowd.numbers.seeds import stream_bits
from prowd.numbers.streams import Stream, below, permutation
from tests.reference import integer_numbers as oracle
from tests.reference.integer_images import permutation as oracle_permutation

WORDS = st.integers(0, 2**32 - 1)
ONES = 2**32 - 1
KNOWN = [  # kat_vectors of Random123: counter, key, answer
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN, ids=["zeros", "ones", "pi"])
def test_published_answers(counter: tuple[int, ...], key: tuple[int, int], answer: tuple[int, ...]) -> None:
    assert tuple(oracle.philox(counter, key)) == answer


def test_the_first_published_answer_is_the_first_block() -> None:
    """The others have counters that no stream has: its fourth word is 0."""
    assert Stream((0, 0)).blocks(0, 0, 1).tolist() == [list(KNOWN[0][2])]


@settings(deadline=None)
@given(WORDS, WORDS, WORDS, WORDS, st.integers(0, 70))
def test_words_are_the_oracle_s(k0: int, k1: int, step: int, layer: int, count: int) -> None:
    words = Stream((k0, k1)).words(step, layer, count)
    assert words.dtype == torch.int64
    assert words.tolist() == [oracle.word((k0, k1), step, layer, index) for index in range(count)]


def test_a_word_depends_on_its_place_only() -> None:
    stream = Stream.of(3, "rounding", 1, 2)
    many = stream.words(4, 5, 1001)
    for count in (1, 2, 3, 4, 5, 999):
        assert torch.equal(stream.words(4, 5, count), many[:count])
    assert torch.equal(stream.blocks(4, 5, 250).flatten(), many[:1000])
    others = [stream.words(5, 5, 1001), stream.words(4, 6, 1001), Stream.of(3, "rounding", 1, 3).words(4, 5, 1001)]
    assert all(int((other == many).sum()) < 3 for other in others)


@given(st.integers(-(2**70), 2**70), st.lists(st.one_of(st.text(max_size=9), st.integers(-9, 2**64))))
def test_keys_are_the_oracle_s(seed: int, path: list[str | int]) -> None:
    assert Stream.of(seed, *path).key == oracle.stream_key(seed, *path)
    low, high = Stream.of(seed, *path).key
    assert low + (high << 32) == stream_bits(seed, *path)


def test_all_bits_of_a_key_count() -> None:
    """PyTorch's generator uses 32 bits of a seed; a stream uses 64."""
    first = Stream((1, 2)).words(0, 0, 64)
    for bit in range(32):
        assert not torch.equal(Stream((1 ^ 1 << bit, 2)).words(0, 0, 64), first)
        assert not torch.equal(Stream((1, 2 ^ 1 << bit)).words(0, 0, 64), first)


@given(st.lists(WORDS, min_size=1), st.integers(1, 2**31))
def test_below_is_the_oracle_s_and_in_range(words: list[int], bound: int) -> None:
    found = below(torch.tensor(words), bound).tolist()
    assert found == [oracle.below(word, bound) for word in words]
    assert all(0 <= number < bound for number in found)


@pytest.mark.parametrize(("word", "bound", "number"), [(0, 2**31, 0), (ONES, 2**31, 2**31 - 1), (ONES, 1, 0)])
def test_below_reaches_both_ends(word: int, bound: int, number: int) -> None:
    assert below(torch.tensor([word]), bound).tolist() == [number]


def test_below_is_even() -> None:
    counts = Counter(below(Stream.of(1, "even").words(0, 0, 70_000), 7).tolist())
    assert sorted(counts) == list(range(7))
    assert max(abs(count - 10_000) for count in counts.values()) < 500  # five deviations of 93


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.integers(0, 5), st.integers(1, 60))
def test_permutations_are_the_oracle_s(seed: int, epoch: int, count: int) -> None:
    order = permutation(Stream.of(seed, "batches"), epoch, count).tolist()
    assert order == oracle_permutation(oracle.stream_key(seed, "batches"), epoch, count)
    assert sorted(order) == list(range(count))


def test_permutations_are_even() -> None:
    """Each of the six orders of three things, and each thing at each of twenty places."""
    stream = Stream.of(2, "orders")
    counts = Counter(tuple(permutation(stream, epoch, 3).tolist()) for epoch in range(6000))
    assert len(counts) == 6
    assert max(abs(count - 1000) for count in counts.values()) < 150
    places = torch.stack([permutation(stream, epoch, 20) for epoch in range(4000)])
    for place in range(20):
        assert int((places[:, place].bincount(minlength=20) - 200).abs().max()) < 75


def test_nothing_and_one_thing_have_an_order() -> None:
    assert permutation(Stream.of(0), 0, 1).tolist() == [0]
    assert permutation(Stream.of(0), 0, 0).tolist() == []
    assert Stream.of(0).words(0, 0, 0).shape == (0,)
