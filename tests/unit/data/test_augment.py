from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor

from prowd.data import OPERATIONS, augment
from prowd.errors import ConfigError

MODULE = sys.modules[augment.__module__]


def batch(count: int = 40, height: int = 32, width: int = 32) -> Tensor:
    return torch.rand(count, 3, height, width, generator=torch.Generator().manual_seed(5)) * 2 - 1


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def move(image: Tensor, down: int, right: int, mirrored: bool) -> Tensor:
    """Slowly, pixel by pixel, with black outside."""
    _, height, width = image.shape
    moved = torch.full_like(image, -1.0)
    for y in range(height):
        for x in range(width):
            row, column = y + down, (width - 1 - x if mirrored else x) + right
            if 0 <= row < height and 0 <= column < width:
                moved[:, y, x] = image[:, row, column]
    return moved


def which_move(image: Tensor, result: Tensor, reach: tuple[int, int], flips: list[bool]) -> tuple[int, int, bool]:
    candidates = [
        (down, right, mirrored)
        for down in range(-reach[0], reach[0] + 1)
        for right in range(-reach[1], reach[1] + 1)
        for mirrored in flips
        if torch.equal(move(image, down, right, mirrored), result)
    ]
    assert len(candidates) == 1, "each result is exactly one of the admitted moves"
    return candidates[0]


@pytest.mark.parametrize(
    ("operations", "size", "reach", "flips"),
    [
        (("crop",), (8, 8), (1, 1), [False]),
        (("flip",), (8, 8), (0, 0), [False, True]),
        (("crop", "flip"), (8, 8), (1, 1), [False, True]),
        (("flip", "crop"), (7, 16), (0, 2), [False, True]),
    ],
)
def test_crop_and_flip_move_pixels_exactly(
    operations: tuple[str, ...], size: tuple[int, int], reach: tuple[int, int], flips: list[bool]
) -> None:
    images = batch(40, *size)
    results = augment(images, operations, seeded())
    moves = {which_move(image, result, reach, flips) for image, result in zip(images, results, strict=True)}
    assert {mirrored for _, _, mirrored in moves} == set(flips)
    assert {down for down, _, _ in moves} == set(range(-reach[0], reach[0] + 1))
    assert {right for _, right, _ in moves} == set(range(-reach[1], reach[1] + 1))


def test_crop_reaches_four_pixels_at_32_evenly() -> None:
    marked = torch.full((9000, 1, 32, 32), -1.0)
    marked[:, :, 16, 16] = 1.0
    places = augment(marked, ("crop",), seeded()).flatten(1).argmax(1)
    for axis in (places // 32, places % 32):
        counts = axis.bincount(minlength=32)
        assert counts.nonzero()[:, 0].tolist() == list(range(12, 21))
        assert (counts[12:21] - 1000).abs().max() < 150


def test_no_operation_returns_the_input() -> None:
    images = batch()
    assert augment(images, (), seeded()) is images


def test_unturned_resampling_is_the_same_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "MAX_DEGREES", 0.0)
    for size in ((32, 32), (16, 24)):
        images = batch(20, *size)
        moved = augment(images, ("crop", "flip"), seeded())
        assert torch.allclose(augment(images, OPERATIONS, seeded()), moved, atol=1e-4)


@pytest.mark.parametrize("size", [(33, 33), (25, 49)])
def test_rotation_turns_by_the_angle_in_pixels(monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]) -> None:
    """A bright disc goes round a circle about the centre, whatever the aspect, by at most the given angle."""
    height, width = size
    y, x = torch.meshgrid(torch.arange(height) - height // 2, torch.arange(width) - width // 2, indexing="ij")
    disc = (1.0 - 0.25 * ((x - 8) ** 2 + y**2)).clamp(min=0.0) * 2 - 1
    results = augment(disc.expand(400, 1, -1, -1).contiguous(), ("rotate",), seeded()) + 1
    mass = results.sum((1, 2, 3))
    across, along = (results[:, 0] * x).sum((1, 2)) / mass, (results[:, 0] * y).sum((1, 2)) / mass
    assert torch.allclose(torch.hypot(across, along), torch.tensor(8.0), atol=0.1)
    degrees = torch.rad2deg(torch.atan2(along, across))
    assert 14.0 < float(degrees.max()) < 15.5
    assert -15.5 < float(degrees.min()) < -14.0
    assert abs(float(degrees.mean())) < 1.5


def test_outside_is_black_and_results_stay_in_range() -> None:
    white = torch.ones(64, 3, 32, 32)
    for operations in (("rotate",), ("crop",), OPERATIONS):
        result = augment(white, operations, seeded())
        assert (float(result.min()), float(result.max())) == (-1.0, 1.0)
        assert result.dtype == torch.float32
    black = torch.full((64, 3, 32, 32), -1.0)
    assert torch.equal(augment(black, OPERATIONS, seeded()), black)


@pytest.mark.parametrize("operations", [("crop", "flip"), OPERATIONS])
def test_the_generator_decides_alone(operations: tuple[str, ...]) -> None:
    images, threads = batch(256), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        first = augment(images, operations, seeded(3))
        torch.set_num_threads(2)
        assert torch.equal(augment(images, frozenset(operations), seeded(3)), first)
    finally:
        torch.set_num_threads(threads)
    assert not torch.equal(augment(images, operations, seeded(4)), first)


def test_the_input_is_left_alone() -> None:
    images = batch()
    before = images.clone()
    augment(images, OPERATIONS, seeded())
    augment(images, ("crop",), seeded())
    assert torch.equal(images, before)


def test_unknown_operations_are_refused() -> None:
    with pytest.raises(ConfigError, match="augment: 'blur' is unknown; accepted: crop, flip, rotate"):
        augment(batch(), ("crop", "blur"), seeded())
