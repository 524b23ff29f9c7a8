"""A network as a client for microcontrollers sees it: convolutions in a row, some with a pooling after them."""

from __future__ import annotations

from dataclasses import dataclass

from prowd.errors import ConfigError
from prowd.nets.architecture import (
    Architecture,
    Conv,
    Flatten,
    Layer,
    Linear,
    MaxPool,
    Pair,
    Shape,
    WeightLayer,
    alpha_exponent,
    fan_in,
)
from prowd.numbers.bits import Bitwidth

__all__ = ["Stage", "stages_of"]

ACCEPTED = "accepted: convolutions and linear layers in a row, with or without a max pooling after each"
MOST_POOL = (8, 16)  # rows and columns of a window, whose winner is written down in 7 bits
MOST_WEIGHTS = 2**24  # of a layer
INT32 = 2**31 - 1
MOST_ERROR = 2**30
NO_POOL = MaxPool((1, 1), (1, 1))


@dataclass(frozen=True)
class Stage:
    """A weight layer and the pooling after it: the fields of ``prowd_stage`` up to ``relu``, in their order."""

    inputs: int
    rows: int
    columns: int
    outputs: int
    conv_rows: int
    conv_columns: int
    out_rows: int
    out_columns: int
    kernel_rows: int
    kernel_columns: int
    stride_rows: int
    stride_columns: int
    pad_rows: int
    pad_columns: int
    groups: int
    pool_rows: int
    pool_columns: int
    step_rows: int
    step_columns: int
    shift: int
    relu: int

    @property
    def each(self) -> int:
        """Weights of an output."""
        return self.inputs // self.groups * self.kernel_rows * self.kernel_columns

    @property
    def weights(self) -> int:
        """Weights of the layer."""
        return self.outputs * self.each

    @property
    def received(self) -> int:
        """Numbers that it receives of an image."""
        return self.inputs * self.rows * self.columns

    @property
    def given(self) -> int:
        """Numbers that it gives."""
        return self.outputs * self.out_rows * self.out_columns

    @property
    def is_flat(self) -> bool:
        """Whether it sees a single pixel."""
        return (self.rows, self.columns, self.kernel_rows, self.kernel_columns) == (1, 1, 1, 1)


def stages_of(architecture: Architecture, width: Bitwidth) -> tuple[Stage, ...]:
    """The stages of a network, or a ConfigError that names the layer that a microcontroller does not compute."""
    found: list[Stage] = []
    open_layer: tuple[WeightLayer, Shape, Shape] | None = None
    for layer, received, given in zip(architecture.layers, architecture.received, architecture.given, strict=True):
        if isinstance(layer, Conv | Linear):
            if open_layer:
                found.append(_stage(*open_layer, NO_POOL))
            open_layer = layer, received, given
        elif isinstance(layer, MaxPool) and open_layer:
            found.append(_stage(*open_layer, layer))
            open_layer = None
        elif not isinstance(layer, Flatten):
            raise _refused(layer, "it is none of these, or follows none")
    if open_layer:
        found.append(_stage(*open_layer, NO_POOL))
    for stage, layer in zip(found, architecture.weight_layers, strict=True):
        _check_sums(stage, layer, width)
    return tuple(found)


def _stage(layer: WeightLayer, received: Shape, given: Shape, pool: MaxPool) -> Stage:
    """A layer and its pooling; what has a single column is turned, so that its numbers lie side by side in a row."""
    scale = alpha_exponent(fan_in(layer)) + 1, int(layer.relu)
    if isinstance(layer, Linear):
        return Stage(layer.inputs, 1, 1, layer.outputs, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, *scale)
    pairs = [(received[1], received[2]), (given[1], given[2]), layer.kernel, layer.stride, layer.padding]
    pairs += [pool.kernel, pool.stride]
    if received[2] == 1 and layer.kernel[1] == 1 and layer.padding[1] == 0 and pool.kernel[1] == 1:
        pairs = [(1, rows) for rows, _ in pairs]
        pairs[4] = (0, layer.padding[0])
    image, after, kernel, stride, padding, window, step = pairs
    if any(size > most for size, most in zip(window, MOST_POOL, strict=True)):
        raise _refused(
            pool, f"its window has {window[0]}x{window[1]} places, up to {MOST_POOL[0]}x{MOST_POOL[1]} can be"
        )
    if any(size > far for size, far in zip(window, step, strict=True)):
        raise _refused(pool, "its windows overlap")
    out = _pooled(after, window, step)
    sizes = (*kernel, *stride, *padding, layer.groups, *window, *step)
    return Stage(received[0], *image, given[0], *after, *out, *sizes, *scale)


def _pooled(image: Pair, window: Pair, step: Pair) -> Pair:
    rows, columns = ((n - k) // s + 1 for n, k, s in zip(image, window, step, strict=True))
    return rows, columns


def _check_sums(stage: Stage, layer: WeightLayer, width: Bitwidth) -> None:
    """See that 32 bits hold its sums and what rounding adds to them, and those of its errors."""
    back = stage.kernel_rows * stage.kernel_columns * stage.outputs // stage.groups
    if stage.each * width.max_code + (1 << stage.shift) > INT32 or back * width.max_code > MOST_ERROR:
        raise _refused(layer, f"32 bits do not hold its sums at {width}")
    if stage.weights > MOST_WEIGHTS:
        raise _refused(layer, f"{stage.weights} weights, up to {MOST_WEIGHTS} can be")


def _refused(layer: Layer, reason: str) -> ConfigError:
    return ConfigError(f"model: {layer}: {reason}; {ACCEPTED}")
