"""Random words, each named by what it is for: Philox4x32-10 (Salmon et al., SC 2011), a function and not a state.

A word depends on the key of its stream, a step, a layer and an index, never on when or where it is asked for. So it is
the same with any kernel, in any order, on any thread, processor or microcontroller. All arithmetic is on integers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from prowd.numbers.seeds import stream_bits

__all__ = ["Stream", "below", "permutation"]

WORD = 32
MASK = 2**WORD - 1
ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85


@dataclass(frozen=True)
class Stream:
    """The random words of one purpose, as in ``Stream.of(seed, "rounding", round, client)``."""

    key: tuple[int, int]

    @classmethod
    def of(cls, seed: int, *path: str | int) -> Stream:
        """The stream of a run's seed and a path of parts."""
        bits = stream_bits(seed, *path)
        return cls((bits & MASK, bits >> WORD))

    def words(self, step: int, layer: int, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Words 0 to count − 1 of a step and a layer, as int64 from 0 to 2^32 − 1."""
        return self.blocks(step, layer, -(-count // 4), device).reshape(-1)[:count]

    def blocks(self, step: int, layer: int, count: int, device: torch.device | str = "cpu") -> Tensor:
        """The same words, four at a time: (count, 4)."""
        words = torch.zeros(4, count, dtype=torch.int64, device=device)
        words[0], words[1] = step, layer
        torch.arange(count, out=words[2])
        a, b, c, d = words
        k0, k1 = self.key
        for _ in range(ROUNDS):
            one, two = a * MULTIPLIERS[0], c * MULTIPLIERS[1]  # modulo 2^64, as int64 wraps
            a, b = (two >> WORD & MASK) ^ b ^ k0, two & MASK
            c, d = (one >> WORD & MASK) ^ d ^ k1, one & MASK
            k0, k1 = k0 + WEYL[0] & MASK, k1 + WEYL[1] & MASK
        return torch.stack([a, b, c, d], 1)


def below(words: Tensor, bound: int | Tensor) -> Tensor:
    """Whole numbers from 0 to bound − 1, for a bound of at most 2^31."""
    return words * bound >> WORD


def permutation(stream: Stream, epoch: int, count: int) -> Tensor:
    """An order of ``count`` things (Fisher and Yates, from the last place to the first)."""
    others = below(stream.words(epoch, 0, count), torch.arange(1, count + 1)).tolist()
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        other = others[last]
        order[last], order[other] = order[other], order[last]
    return torch.tensor(order, dtype=torch.int64)
