"""What networks receive: bytes of images (uint8) or codes of sensors (int8), as integer codes or as floats."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from prowd.numbers.bits import Bitwidth

__all__ = ["code_table", "input_codes", "to_unit"]

BYTE = 255
ACCEPTED = "accepted: uint8 images, or int8 codes"


def input_codes(values: Tensor, width: Bitwidth) -> Tensor:
    """The int16 codes of uint8 images, or of int8 sensor codes."""
    table = code_table(width, values.dtype).to(values.device)
    return table[values.view(torch.uint8).long()]


def to_unit(values: Tensor) -> Tensor:
    """The same as float32 in [−1, 1]: black, 0 of uint8, is −1."""
    if values.dtype == torch.uint8:
        return values.to(torch.float32).div_(127.5).sub_(1.0)
    if values.dtype == torch.int8:
        return values.to(torch.float32).div_(128.0)
    raise TypeError(f"inputs of {values.dtype}; {ACCEPTED}")


@functools.cache
def code_table(width: Bitwidth, dtype: torch.dtype) -> Tensor:
    """The int16 code of every byte, read as ``dtype``.

    uint8: u stands for u/127.5 − 1, so its code is round_half_even((2u − 255)·S / 255), clipped to the width.
    int8: c stands for c/128, so its code is round_half_even(c·S / 128), clipped.
    """
    bytes_ = np.arange(BYTE + 1)
    if dtype == torch.uint8:
        numerators, denominator = (2 * bytes_ - BYTE) * width.steps, BYTE
    elif dtype == torch.int8:
        numerators, denominator = bytes_.astype(np.uint8).view(np.int8).astype(np.int64) * width.steps, 128
    else:
        raise TypeError(f"inputs of {dtype}; {ACCEPTED}")
    whole, rest = np.divmod(numerators, denominator)
    up = (2 * rest > denominator) | ((2 * rest == denominator) & (whole % 2 == 1))
    return torch.from_numpy((whole + up).clip(-width.max_code, width.max_code).astype(np.int16))
