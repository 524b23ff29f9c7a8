"""The layers of an integer client, one image at a time, in Python integers only.

An image is a list of planes, a plane a list of rows. A linear layer is a convolution whose window is the whole image.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.reference.integer_numbers import round_shift

Plane = list[list[int]]
Image = list[Plane]


def flat(tensor: Any) -> list[int]:
    """The numbers of nested lists."""
    return [n for part in tensor for n in flat(part)] if isinstance(tensor, list) else [tensor]


def mapped(function: Any, *tensors: Any) -> Any:
    """A function of the numbers of nested lists."""
    if not isinstance(tensors[0], list):
        return function(*tensors)
    return [mapped(function, *parts) for parts in zip(*tensors, strict=True)]


@dataclass(frozen=True)
class Window:
    """A convolution from planes of ``image`` pixels to planes of ``positions``."""

    inputs: int
    outputs: int
    image: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    groups: int = 1

    def channels(self, output: int) -> range:
        """The inputs that an output sees: those of its group."""
        each = self.inputs // self.groups
        group = output // (self.outputs // self.groups)
        return range(group * each, (group + 1) * each)

    @property
    def positions(self) -> tuple[int, int]:
        """Rows and columns of what it gives."""
        high, wide = ((self.image[i] + 2 * self.padding[i] - self.kernel[i]) // self.stride[i] + 1 for i in (0, 1))
        return high, wide

    def places(self) -> list[tuple[int, int, int, int, int]]:
        """All (row, column, tap, row below, column below) that meet, but for the padding."""
        found = []
        for y in range(self.positions[0]):
            for x in range(self.positions[1]):
                for tap in range(self.kernel[0] * self.kernel[1]):
                    v = y * self.stride[0] - self.padding[0] + tap // self.kernel[1]
                    u = x * self.stride[1] - self.padding[1] + tap % self.kernel[1]
                    if 0 <= v < self.image[0] and 0 <= u < self.image[1]:
                        found.append((y, x, tap, v, u))
        return found

    def at(self, output: int, channel: int, tap: int) -> int:
        """The place of a weight, for a channel that the output sees."""
        each = self.inputs // self.groups
        return (output * each + channel % each) * self.kernel[0] * self.kernel[1] + tap


def window_of(layer: Any, image: Image) -> Window:
    """What a weight layer does to an image."""
    size = len(image[0]), len(image[0][0])
    if layer.kind == "linear":
        return Window(len(image), layer.outputs, size, size, (1, 1), (0, 0))
    return Window(layer.inputs, layer.outputs, size, layer.kernel, layer.stride, layer.padding, layer.groups)


def zeros(planes: int, size: tuple[int, int]) -> Image:
    """An image of zeros."""
    return [[[0] * size[1] for _ in range(size[0])] for _ in range(planes)]


def weighted_sum(window: Window, t: Sequence[int], a: Image) -> Image:
    """n = Σ t·a for every output."""
    n = zeros(window.outputs, window.positions)
    for y, x, tap, v, u in window.places():
        for o in range(window.outputs):
            n[o][y][x] += sum(t[window.at(o, c, tap)] * a[c][v][u] for c in window.channels(o))
    return n


def error_below(window: Window, t: Sequence[int], e: Image) -> Image:
    """Σ t·e for every input."""
    n = zeros(window.inputs, window.image)
    for y, x, tap, v, u in window.places():
        for o in range(window.outputs):
            for c in window.channels(o):
                n[c][v][u] += t[window.at(o, c, tap)] * e[o][y][x]
    return n


def add_gradient(window: Window, e: Image, a: Image, g: list[int]) -> None:
    """Add Σ e·a of one image to the gradient of every weight."""
    for y, x, tap, v, u in window.places():
        for o in range(window.outputs):
            for c in window.channels(o):
                g[window.at(o, c, tap)] += e[o][y][x] * a[c][v][u]


def winners(layer: Any, plane: Plane) -> list[tuple[int, int, int, int]]:
    """For each (row, column) of a pooling the (row, column) below that wins: the first maximum, row by row."""
    high, wide = ((size - layer.kernel[i]) // layer.stride[i] + 1 for i, size in enumerate((len(plane), len(plane[0]))))
    found = []
    for y in range(high):
        for x in range(wide):
            v, u = best = y * layer.stride[0], x * layer.stride[1]
            for down in range(layer.kernel[0]):
                for across in range(layer.kernel[1]):
                    if plane[v + down][u + across] > plane[best[0]][best[1]]:
                        best = v + down, u + across
            found.append((y, x, *best))
    return found


def max_pool(layer: Any, image: Image) -> Image:
    """The maximum of each window."""
    pooled = []
    for plane in image:
        places = winners(layer, plane)
        rows: Plane = [[] for _ in range(places[-1][0] + 1)]
        for y, _, v, u in places:
            rows[y].append(plane[v][u])
        pooled.append(rows)
    return pooled


def max_pool_error(layer: Any, n: Image, image: Image) -> Image:
    """Each output's error goes to the input that won; windows may overlap, so errors add up."""
    spread = zeros(len(image), (len(image[0]), len(image[0][0])))
    for channel, plane in enumerate(image):
        for y, x, v, u in winners(layer, plane):
            spread[channel][v][u] += n[channel][y][x]
    return spread


def windows(layer: Any, size: tuple[int, int]) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """For each (row, column) of an average pooling the places below that it is the average of."""
    high, wide = ((size[i] - layer.kernel[i]) // layer.stride[i] + 1 for i in (0, 1))
    found = []
    for y in range(high):
        for x in range(wide):
            v, u = y * layer.stride[0], x * layer.stride[1]
            found.append((y, x, [(v + i, u + j) for i in range(layer.kernel[0]) for j in range(layer.kernel[1])]))
    return found


def average_pool(layer: Any, image: Image) -> Image:
    """round_half_even(Σ / 2^k) of the 2^k codes of each window."""
    k = (layer.kernel[0] * layer.kernel[1]).bit_length() - 1
    pooled = []
    for plane in image:
        places = windows(layer, (len(plane), len(plane[0])))
        rows: Plane = [[] for _ in range(places[-1][0] + 1)]
        for y, _, window in places:
            rows[y].append(round_shift(sum(plane[v][u] for v, u in window), k))
        pooled.append(rows)
    return pooled


def average_pool_error(layer: Any, n: Image, size: tuple[int, int]) -> Image:
    """Each output's error goes to every place of its window; the 2^-k is left to the scale of the error."""
    spread = zeros(len(n), size)
    for channel, plane in enumerate(n):
        for y, x, window in windows(layer, size):
            for v, u in window:
                spread[channel][v][u] += plane[y][x]
    return spread
