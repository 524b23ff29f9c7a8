"""Augmentation: exact moves, fixed-point rotation, and the oracle's images."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prowd.data import OPERATIONS, augment
from prowd.data.augment import ANGLES, COSINES, SINES
from prowd.errors import ConfigError
from prowd.numbers.streams import Stream
from tests.reference import integer_images as images_oracle
from tests.reference import integer_numbers as oracle

MODULE = sys.modules[augment.__module__]
TURNS = list(zip(COSINES, SINES, strict=True))
BYTES = [torch.uint8, torch.int8]


def batch(
    count: int = 40, height: int = 32, width: int = 32, dtype: torch.dtype = torch.uint8, seed: int = 5
) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, 3, height, width), generator=random, dtype=torch.uint8).view(dtype)


def stream(seed: int = 0) -> Stream:
    return Stream.of(seed, "augment", 1, 2)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.sampled_from(BYTES),
    st.tuples(st.integers(1, 3), st.integers(1, 17), st.integers(1, 17)),
    st.sets(st.sampled_from(OPERATIONS), min_size=1),
)
def test_images_are_the_oracle_s(
    seed: int, step: int, dtype: torch.dtype, shape: tuple[int, int, int], operations: set[str]
) -> None:
    random = torch.Generator().manual_seed(seed >> 1)
    images = torch.randint(256, (3, *shape), generator=random, dtype=torch.uint8).view(dtype)
    results = augment(images, operations, stream(seed), step)
    assert results.dtype == dtype
    key = oracle.stream_key(seed, "augment", 1, 2)
    for n, (image, result) in enumerate(zip(images.tolist(), results.tolist(), strict=True)):
        words = oracle.philox((step, 0, n, 0), key)
        turn = images_oracle.turned(TURNS, images_oracle.angle(words[3]))
        assert result == images_oracle.augment(image, sorted(operations), words, turn)


def move(image: Tensor, down: int, right: int, mirrored: bool) -> Tensor:
    """Slowly, pixel by pixel, with 0 outside."""
    _, height, width = image.shape
    moved = torch.zeros_like(image)
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


@pytest.mark.parametrize("dtype", BYTES)
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
    operations: tuple[str, ...],
    size: tuple[int, int],
    reach: tuple[int, int],
    flips: list[bool],
    dtype: torch.dtype,
) -> None:
    images = batch(40, *size, dtype=dtype)
    results = augment(images, operations, stream(), 0)
    moves = {which_move(image, result, reach, flips) for image, result in zip(images, results, strict=True)}
    assert {mirrored for _, _, mirrored in moves} == set(flips)
    assert {down for down, _, _ in moves} == set(range(-reach[0], reach[0] + 1))
    assert {right for _, right, _ in moves} == set(range(-reach[1], reach[1] + 1))


def test_crop_reaches_four_pixels_at_32_evenly() -> None:
    marked = torch.zeros((9000, 1, 32, 32), dtype=torch.uint8)
    marked[:, :, 16, 16] = 255
    places = augment(marked, ("crop",), stream(), 0).flatten(1).argmax(1)
    for axis in (places // 32, places % 32):
        counts = axis.bincount(minlength=32)
        assert counts.nonzero()[:, 0].tolist() == list(range(12, 21))
        assert (counts[12:21] - 1000).abs().max() < 150


def test_no_operation_returns_the_input() -> None:
    images = batch()
    assert augment(images, (), stream(), 0) is images


@pytest.mark.parametrize("dtype", BYTES)
def test_unturned_resampling_is_the_same_move(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr(MODULE, "ANGLES", 0)
    for size in ((32, 32), (16, 24), (9, 8)):
        images = batch(20, *size, dtype=dtype)
        assert torch.equal(augment(images, OPERATIONS, stream(), 3), augment(images, ("crop", "flip"), stream(), 3))


def test_sines_and_cosines_have_15_fraction_bits() -> None:
    assert len(SINES) == len(COSINES) == ANGLES + 1
    assert (COSINES[0], SINES[0]) == (2**15, 0)
    for quarters, (cosine, sine) in enumerate(TURNS):
        assert sine**2 + cosine**2 == pytest.approx(2**30, abs=2**16)
        assert math.degrees(math.atan2(sine, cosine)) == pytest.approx(quarters / 4, abs=0.002)
    assert (COSINES[-1], SINES[-1]) == (31651, 8481), "of 15 degrees"


@pytest.mark.parametrize("size", [(33, 33), (25, 49)])
def test_rotation_turns_by_the_angle_in_pixels(size: tuple[int, int]) -> None:
    """A bright disc goes round a circle about the centre, whatever the aspect, by at most the given angle."""
    height, width = size
    y, x = torch.meshgrid(torch.arange(height) - height // 2, torch.arange(width) - width // 2, indexing="ij")
    disc = ((1.0 - 0.25 * ((x - 8) ** 2 + y**2)).clamp(min=0.0) * 255).round().to(torch.uint8)
    results = augment(disc.expand(400, 1, -1, -1).contiguous(), ("rotate",), stream(), 0).double()
    mass = results.sum((1, 2, 3))
    across, along = (results[:, 0] * x).sum((1, 2)) / mass, (results[:, 0] * y).sum((1, 2)) / mass
    assert torch.allclose(torch.hypot(across, along), torch.tensor(8.0, dtype=torch.float64), atol=0.1)
    degrees = torch.rad2deg(torch.atan2(along, across))
    assert 14.0 < float(degrees.max()) < 15.5
    assert -15.5 < float(degrees.min()) < -14.0
    assert abs(float(degrees.mean())) < 1.5


@pytest.mark.parametrize(("dtype", "least", "most"), [(torch.uint8, 0, 255), (torch.int8, -128, 127)])
def test_outside_is_0_and_results_stay_in_range(dtype: torch.dtype, least: int, most: int) -> None:
    for value in (least, most):
        same = torch.full((64, 3, 32, 32), value, dtype=dtype)
        for operations in (("rotate",), ("crop",), OPERATIONS):
            result = augment(same, operations, stream(), 0)
            assert {int(result.min()), int(result.max())} == {0, value}
            assert result.dtype == dtype


@pytest.mark.parametrize("operations", [("crop", "flip"), OPERATIONS])
def test_stream_and_step_decide_alone(operations: tuple[str, ...]) -> None:
    images, threads = batch(256), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        first = augment(images, operations, stream(3), 7)
        torch.set_num_threads(2)
        assert torch.equal(augment(images, frozenset(operations), stream(3), 7), first)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(augment(images[:9], operations, stream(3), 7), first[:9]), "whatever else is in the batch"
    strided = images.to(memory_format=torch.channels_last)
    assert torch.equal(augment(strided, operations, stream(3), 7), first), "however it lies in memory"
    assert not torch.equal(augment(images, operations, stream(4), 7), first)
    assert not torch.equal(augment(images, operations, stream(3), 8), first)


def test_the_input_is_left_alone() -> None:
    images = batch()
    before = images.clone()
    augment(images, OPERATIONS, stream(), 0)
    augment(images, ("crop",), stream(), 0)
    assert torch.equal(images, before)


def test_unknown_operations_are_refused() -> None:
    with pytest.raises(ConfigError, match="augment: 'blur' is unknown; accepted: crop, flip, rotate"):
        augment(batch(), ("crop", "blur"), stream(), 0)
