"""Random crop, flip and rotation of a batch (Section 5 of the paper), all images at once."""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.errors import ConfigError

__all__ = ["OPERATIONS", "augment"]

OPERATIONS = ("crop", "flip", "rotate")
MAX_DEGREES = 15.0
BLACK = -1.0


def augment(images: Tensor, operations: Collection[str], random: torch.Generator) -> Tensor:
    """Vary a float32 batch (N, C, H, W) within [−1, 1]; what comes in from outside an image is black.

    Crop: shifted by up to an eighth of the size either way (4 pixels at 32). Flip: mirrored, one image in two.
    Rotate: by up to 15° either way. Without rotation the result is the same pixels moved; with it, one bilinear
    resampling does everything.
    """
    if unknown := [operation for operation in operations if operation not in OPERATIONS]:
        raise ConfigError(f"augment: {unknown[0]!r} is unknown; accepted: {', '.join(OPERATIONS)}")
    if not operations:
        return images
    count, _, height, width = images.shape
    uniform = torch.rand(4, count, generator=random, device=random.device).to(images.device)
    reach = (height // 8, width // 8) if "crop" in operations else (0, 0)
    down, right = _whole(uniform[0], reach[0]), _whole(uniform[1], reach[1])
    mirrored = uniform[2] < (0.5 if "flip" in operations else 0.0)
    if "rotate" in operations:
        return _resampled(images, down, right, mirrored, (2 * uniform[3] - 1) * math.radians(MAX_DEGREES))
    return _moved(images, down, right, mirrored, reach)


def _whole(uniform: Tensor, reach: int) -> Tensor:
    """Turn [0, 1) into whole numbers from −reach to reach; the clamp is for a product that rounds up to the end."""
    return (uniform * (2 * reach + 1)).to(torch.int64).clamp(max=2 * reach) - reach


def _moved(images: Tensor, down: Tensor, right: Tensor, mirrored: Tensor, reach: tuple[int, int]) -> Tensor:
    """Pixel (y, x) of image n is pixel (y + down_n, ±x + right_n) of the original: a gather, exact."""
    count, channels, height, width = images.shape
    padded = F.pad(images, (reach[1], reach[1], reach[0], reach[0]), value=BLACK)
    x = torch.arange(width, device=images.device)
    rows = torch.arange(height, device=images.device) + (down + reach[0])[:, None]
    columns = torch.where(mirrored[:, None], x.flip(0), x) + (right + reach[1])[:, None]
    places = (rows[:, :, None] * padded.shape[3] + columns[:, None, :]).view(count, 1, -1)
    return padded.flatten(2).gather(2, places.expand(-1, channels, -1)).view_as(images)


def _resampled(images: Tensor, down: Tensor, right: Tensor, mirrored: Tensor, angle: Tensor) -> Tensor:
    """Move as ``_moved`` does, turned by ``angle`` about the centre; coordinates run from −1 to 1 over the image."""
    height, width = images.shape[2:]
    cosine, sine, side = angle.cos(), angle.sin(), torch.where(mirrored, -1.0, 1.0)
    across = torch.stack([cosine * side, -sine * (height / width), 2 * right / width], 1)
    along = torch.stack([sine * side * (width / height), cosine, 2 * down / height], 1)
    grid = F.affine_grid(torch.stack([across, along], 1), list(images.shape), align_corners=False)
    lit = F.grid_sample(images - BLACK, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return lit.add_(BLACK).clamp_(-1.0, 1.0)
