"""The examples of a device as it holds them: a card, in a file, in flash, or as a device sees its own memory."""

from __future__ import annotations

import struct
import zlib

import torch

from prowd.device.training import Examples

__all__ = ["ANY_CLIENT", "card_bytes"]

ANY_CLIENT = 2**32 - 1
_CARD = struct.Struct("<4sB3xQIIII")


def card_bytes(network: int, client: int, examples: Examples) -> bytes:
    """Some examples as a card.

    "PRWC" 1 0 0 0 | network u64 | client u32 | examples u32 | bytes of an image u32 | crc u32 | images | labels u8
    """
    images = examples.images.contiguous().view(torch.uint8).numpy().tobytes()
    data = images + examples.labels.to(torch.uint8).numpy().tobytes()
    count = len(examples)
    return _CARD.pack(b"PRWC", 1, network, client, count, len(images) // max(1, count), zlib.crc32(data)) + data
