"""Random crop, flip and rotation of a batch of bytes (Section 5 of the paper), all images at once, in integers."""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.errors import ConfigError
from prowd.numbers.streams import Stream, below

__all__ = ["OPERATIONS", "augment"]

OPERATIONS = ("crop", "flip", "rotate")
ANGLES = 60  # quarters of a degree, either way
TURN_BITS = 15  # fraction bits of sines and cosines
PLACE_BITS = 16  # of the place of a pixel
BLEND_BITS = 8  # of the share of a neighbour
SINES = tuple(round(math.sin(math.radians(n / 4)) * 2**TURN_BITS) for n in range(ANGLES + 1))
COSINES = tuple(round(math.cos(math.radians(n / 4)) * 2**TURN_BITS) for n in range(ANGLES + 1))


def augment(images: Tensor, operations: Collection[str], stream: Stream, step: int) -> Tensor:
    """Vary a batch (N, C, H, W) of uint8 or int8; what comes in from outside an image is 0.

    Crop: shifted by up to an eighth of the size either way (4 pixels at 32). Flip: mirrored, one image in two.
    Rotate: by up to 15° either way. Without rotation the result is the same pixels moved; with it, one bilinear
    resampling in fixed point does everything. Image n of local step t has the four words of block (t, 0, n).
    """
    if unknown := [operation for operation in operations if operation not in OPERATIONS]:
        raise ConfigError(f"augment: {unknown[0]!r} is unknown; accepted: {', '.join(OPERATIONS)}")
    if not operations:
        return images
    count, _, height, width = images.shape
    words = stream.blocks(step, 0, count, images.device)
    reach = (height // 8, width // 8) if "crop" in operations else (0, 0)
    down, right = (below(words[:, i], 2 * reach[i] + 1) - reach[i] for i in (0, 1))
    mirrored = words[:, 2] < (2**31 if "flip" in operations else 0)
    if "rotate" in operations:
        return _resampled(images, down, right, mirrored, below(words[:, 3], 2 * ANGLES + 1) - ANGLES)
    return _moved(images, down, right, mirrored, reach)


def _moved(images: Tensor, down: Tensor, right: Tensor, mirrored: Tensor, reach: tuple[int, int]) -> Tensor:
    """Pixel (y, x) of image n is pixel (y + down_n, ±x + right_n) of the original: a gather."""
    count, channels, height, width = images.shape
    padded = F.pad(images, (reach[1], reach[1], reach[0], reach[0]))
    x = torch.arange(width, device=images.device)
    rows = torch.arange(height, device=images.device) + (down + reach[0])[:, None]
    columns = torch.where(mirrored[:, None], x.flip(0), x) + (right + reach[1])[:, None]
    places = (rows[:, :, None] * padded.shape[3] + columns[:, None, :]).view(count, 1, -1)
    return padded.flatten(2).gather(2, places.expand(-1, channels, -1)).view_as(images)


def _resampled(images: Tensor, down: Tensor, right: Tensor, mirrored: Tensor, angle: Tensor) -> Tensor:
    """Move as ``_moved`` does, turned about the centre by an angle in quarters of a degree."""
    height, width = images.shape[2:]
    device = images.device
    cosine = torch.tensor(COSINES, device=device)[angle.abs()][:, None, None]
    sine = (torch.tensor(SINES, device=device)[angle.abs()] * angle.sign())[:, None, None]
    side = torch.where(mirrored, -1, 1)[:, None, None]
    u = side * (2 * torch.arange(width, device=device) - width + 1)  # half pixels from the centre
    v = (2 * torch.arange(height, device=device) - height + 1)[:, None]
    across = cosine * u - sine * v + ((2 * right + width - 1) << TURN_BITS)[:, None, None]
    along = sine * u + cosine * v + ((2 * down + height - 1) << TURN_BITS)[:, None, None]
    x, y = across >> PLACE_BITS, along >> PLACE_BITS
    part = PLACE_BITS - BLEND_BITS
    one = 1 << BLEND_BITS
    fx, fy = across >> part & one - 1, along >> part & one - 1
    total = torch.full(images.shape, 1 << (2 * BLEND_BITS - 1), dtype=torch.int64, device=device)
    for dy, weight_y in ((0, one - fy), (1, fy)):
        for dx, weight_x in ((0, one - fx), (1, fx)):
            total += _pixels(images, y + dy, x + dx) * (weight_y * weight_x)[:, None]
    return (total >> 2 * BLEND_BITS).to(images.dtype)


def _pixels(images: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """The pixels at places (N, H, W) of every channel; 0 outside."""
    count, channels, height, width = images.shape
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    places = (y.clamp(0, height - 1) * width + x.clamp(0, width - 1)).view(count, 1, -1)
    found = images.flatten(2).gather(2, places.expand(-1, channels, -1)).view_as(images)
    return found.long() * inside[:, None]
