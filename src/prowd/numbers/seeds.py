"""The only source of randomness: one independent stream for each (seed, path) key.

A stream is named by what it is for (``generator(seed, "augment", round, client)``), never by when it is asked for, so
a run draws the same numbers with 1 worker or 8, straight through or killed and resumed.

PyTorch's CPU generator uses 32 bits of its seed. Among the ten thousand streams of a long run two may therefore
coincide (a chance of about one in a hundred), say the batches of one client and the rounding of another in some other
round; nothing here relies on their independence.
"""

from __future__ import annotations

import hashlib
import operator

import torch

__all__ = ["generator", "stream_bits", "stream_seed"]


def stream_bits(seed: int, *path: str | int) -> int:
    """Derive the 64 bits that tell a stream from all others.

    Parts are typed and length-prefixed, so that ("a", "bc") and ("ab", "c"), or 1 and "1", are different streams.
    """
    digest = hashlib.sha256()
    for part in (seed, *path):
        text = f"str:{part}".encode() if isinstance(part, str) else f"int:{operator.index(part)}".encode()
        digest.update(len(text).to_bytes(4, "little") + text)
    return int.from_bytes(digest.digest()[:8], "little")


def stream_seed(seed: int, *path: str | int) -> int:
    """The 63-bit seed of a stream for PyTorch's generator."""
    return stream_bits(seed, *path) >> 1


def generator(seed: int, *path: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return the random generator of the stream ``path`` of a run seeded with ``seed``."""
    return torch.Generator(device=device).manual_seed(stream_seed(seed, *path))
