"""The batches and the images of an integer client, varied as bytes and made codes of, in Python integers only."""

from collections.abc import Sequence

from tests.reference.integer_layers import Image, Plane
from tests.reference.integer_numbers import Key, below, clip, divide_half_even, round_shift, word

DEGREES = 15  # of the largest rotation
PER_DEGREE = 4  # angles that are told apart


# --- batches ----------------------------------------------------------------------------------------------------------


def permutation(key: Key, epoch: int, count: int) -> list[int]:
    """Fisher and Yates, from the last place to the first."""
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        other = below(word(key, epoch, 0, last), last + 1)
        order[last], order[other] = order[other], order[last]
    return order


def batches(key: Key, count: int, batch: int, steps: int) -> list[list[int]]:
    """Rows of full batches; epochs follow one another without a gap."""
    batch = min(batch, count)
    epochs = -(-steps * batch // count)
    stream = [row for epoch in range(epochs) for row in permutation(key, epoch, count)]
    return [stream[step * batch : (step + 1) * batch] for step in range(steps)]


# --- images -----------------------------------------------------------------------------------------------------------


def image_code(u: int, s: int) -> int:
    """The s-bit code of an image byte."""
    return clip(divide_half_even((2 * u - 255) << (s - 1), 255), s)


def sensor_code(c: int, s: int) -> int:
    """The s-bit code of an int8 code."""
    return clip(round_shift(c, 8 - s), s)


def augment(image: Image, operations: Sequence[str], words: Sequence[int], turn: tuple[int, int]) -> Image:
    """Shift, mirror and turn an image of bytes; what comes in from outside is 0.

    ``words`` are those of (step, 0, image of the batch); ``turn`` is (cosine, sine) of the angle with 15 fraction bits.
    """
    height, width = len(image[0]), len(image[0][0])
    reach = (height // 8, width // 8) if "crop" in operations else (0, 0)
    down, right = (below(words[i], 2 * reach[i] + 1) - reach[i] for i in (0, 1))
    side = -1 if "flip" in operations and words[2] < 2**31 else 1
    cosine, sine = turn if "rotate" in operations else (1 << 15, 0)

    def pixel(plane: Plane, y: int, x: int) -> int:
        return plane[y][x] if 0 <= y < height and 0 <= x < width else 0

    def sample(plane: Plane, y: int, x: int) -> int:
        u, v = side * (2 * x - width + 1), 2 * y - height + 1  # half pixels from the centre
        across = cosine * u - sine * v + ((2 * right + width - 1) << 15)  # pixels, with 16 fraction bits
        along = sine * u + cosine * v + ((2 * down + height - 1) << 15)
        x0, y0, fx, fy = across >> 16, along >> 16, (across >> 8) % 256, (along >> 8) % 256
        top = (256 - fx) * pixel(plane, y0, x0) + fx * pixel(plane, y0, x0 + 1)
        bottom = (256 - fx) * pixel(plane, y0 + 1, x0) + fx * pixel(plane, y0 + 1, x0 + 1)
        return ((256 - fy) * top + fy * bottom + (1 << 15)) >> 16

    return [[[sample(plane, y, x) for x in range(width)] for y in range(height)] for plane in image]


def angle(random: int) -> int:
    """The angle of a rotation, in quarters of a degree."""
    most = DEGREES * PER_DEGREE
    return below(random, 2 * most + 1) - most


def turned(turns: Sequence[tuple[int, int]], quarters: int) -> tuple[int, int]:
    """Cosine and sine of an angle of either sign."""
    if not turns:
        return 1 << 15, 0
    cosine, sine = turns[abs(quarters)]
    return cosine, sine if quarters >= 0 else -sine
