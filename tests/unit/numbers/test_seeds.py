"""Random streams: independent by key, and the same for ever."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from prowd.numbers.seeds import generator, stream_seed

GOLDEN = [
    ((0,), 2964823517770466700, [12907165, 6423519, 2993633, 5994607]),
    ((0, "a"), 1437467836845067137, [2955619, 10728249, 11994974, 7264804]),
    ((0, "a", 1), 4382430953665520992, [2612203, 9578190, 11539526, 16435724]),
    ((0, "a", "1"), 8494620995653652563, [12760717, 500016, 11998202, 13913290]),
    ((1, "augment", 3, 7), 2241006918765922787, [8352907, 13863754, 4302245, 7681090]),
    ((-1, "é", 0), 7214944296965354022, [7699176, 16741553, 8676173, 1226193]),
    ((2**40, "init"), 5481041152264251020, [4649120, 12093316, 14599922, 3583068]),
]


@pytest.mark.parametrize(("key", "seed", "numbers"), GOLDEN)
def test_streams_never_change(key: tuple[int, ...], seed: int, numbers: list[int]) -> None:
    """A change here changes every result ever published with a seed."""
    assert stream_seed(*key) == seed
    uniform = torch.rand(4, generator=generator(*key))
    assert (uniform * 2**24).tolist() == numbers


def test_keys_are_typed_and_framed() -> None:
    texts = [(), ("",), ("", ""), ("a", "bc"), ("ab", "c"), ("abc",), ("a:b",), ("a", ":b"), ("int:1",)]
    numbers: list[tuple[str | int, ...]] = [(1,), ("1",), (1, 1), (11,), (1, ""), ("", 1), (-1,), ("-1",)]
    keys = [*texts, *numbers]
    assert len({stream_seed(0, *key) for key in keys}) == len(keys)
    assert len({stream_seed(seed, *key) for seed in (0, 1) for key in keys}) == 2 * len(keys)
    assert stream_seed(0, "a", 1) != stream_seed(1, "a", 0)


def test_seeds_fit_in_63_bits() -> None:
    seeds = [stream_seed(seed, "x") for seed in range(1000)]
    assert min(seeds) >= 0
    assert 2**62 < max(seeds) < 2**63


def test_a_stream_starts_anew_whenever_it_is_asked_for() -> None:
    first, other, again = generator(5, "a"), generator(5, "b"), generator(5, "a")
    numbers = torch.rand(10, generator=first)
    assert not torch.equal(torch.rand(10, generator=other), numbers)
    assert torch.equal(torch.rand(10, generator=again), numbers)


def test_the_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    torch.rand(10, generator=generator(1, "x"))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_device() -> None:
    assert generator(1, device="cpu").device == torch.device("cpu")


def test_numpy_integers_name_the_same_stream() -> None:
    assert stream_seed(0, "x", int(np.int64(7))) == stream_seed(0, "x", np.int64(7))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        stream_seed(0, 1.5)  # type: ignore[arg-type]
