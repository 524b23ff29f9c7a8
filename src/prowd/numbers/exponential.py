"""e^(−x) as a table of integers: the softmax of a device that has no floats.

For a difference d of two logit codes, e^(−d·2^k) = L[d mod 256] · H[d ÷ 256]: two tables of 256 entries serve codes of
16 bits. Entries have 30 fraction bits. They are computed in decimal arithmetic, which every machine rounds alike.
"""

from __future__ import annotations

import functools
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext

import torch
from torch import Tensor

__all__ = ["ENTRIES", "ONE_BITS", "exponential_tables"]

ONE_BITS = 30
ENTRIES = 256
DIGITS = 60


@functools.cache
def exponential_tables(exponent: int) -> tuple[Tensor, Tensor]:
    """L and H for the power of two 2^exponent that multiplies a difference of codes."""
    return _table(exponent), _table(exponent + ENTRIES.bit_length() - 1)


def _table(exponent: int) -> Tensor:
    with localcontext(Context(prec=DIGITS)):
        unit = Decimal(2) ** exponent
        values = [(-unit * n).exp() * 2**ONE_BITS for n in range(ENTRIES)]
        return torch.tensor([int(value.to_integral_value(ROUND_HALF_EVEN)) for value in values])
