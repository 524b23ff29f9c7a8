"""A network as the ``int8`` kernel sees it: convolutions with a pooling between some of them.

A linear layer is a convolution whose window is the whole image, so a network is a row of stages of one kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from prowd.nets.architecture import Architecture, Conv, Flatten, Layer, MaxPool, Pair

__all__ = ["CHANNELS", "INT32", "OFFSET", "Stage", "plan", "unsupported"]

CHANNELS = 16  # channels are padded to a multiple of this; those of the images to a multiple of 4
OFFSET = 128  # a signed code lies in a byte as 128 + code
BYTE = 255
INT32 = 2**31 - 1
PAIRED_POSITIONS = 64  # positions of images that are paired together, at least


@dataclass(frozen=True)
class Stage:
    """One weight layer, with the pooling before it."""

    index: int
    outputs: int
    inputs: int
    image: Pair
    """Rows and columns of what it receives."""
    positions: Pair
    """Rows and columns of what it gives."""
    kernel: Pair
    stride: Pair
    padding: Pair
    flat: bool
    """Whether its window is the whole image."""
    relu: bool
    signed: bool
    """Whether it receives codes of both signs."""
    shift: int
    """log2 of 2α."""
    pool: MaxPool | None
    """The pooling between the layer before and this one."""

    @property
    def padded_inputs(self) -> int:
        """Input channels as they lie in memory."""
        return _up(self.inputs, CHANNELS if self.index else 4)

    @property
    def padded_outputs(self) -> int:
        """Output channels as they lie in memory."""
        return _up(self.outputs, CHANNELS)

    @property
    def taps(self) -> int:
        """Places of the window."""
        return math.prod(self.kernel)

    @property
    def weights(self) -> tuple[int, int, int, int, int]:
        """The shape of the weights, as the native functions take it."""
        return self.outputs, self.inputs, self.taps, self.padded_outputs, self.padded_inputs

    @property
    def window(self) -> tuple[int, int, int, int]:
        """Size and steps of the pooling window before the layer; of one place where there is none."""
        return (*self.pool.kernel, *self.pool.stride) if self.pool else (1, 1, 1, 1)

    @property
    def paired(self) -> bool:
        """Whether its outputs can be computed two columns at a time, with four products in place of six."""
        return (
            not (self.flat or self.signed)
            and self.kernel[1] == 3
            and self.stride == (1, 1)
            and self.positions[1] % 2 == 0
        )

    def pools(self, pool: MaxPool | None) -> bool:
        """Whether it can give the largest values of a pooling's windows at once, in a pass that nothing follows."""
        return self.paired and self.positions[0] % 2 == 0 and pool is not None and pool.kernel == pool.stride == (2, 2)

    def pairing_room(self, images: int) -> int:
        """Bytes in which the inputs of some images are paired: few enough to stay in the caches."""
        (rows, columns), together = self.positions, -(-PAIRED_POSITIONS // math.prod(self.positions))
        return min(images, together) * (rows + self.kernel[0] - 1) * (columns // 2) * 4 * self.padded_inputs

    def gradient_inputs(self, lanes: int) -> int:
        """Input channels of the weight gradient: signed codes come in two parts, and a block may be one vector."""
        both = 2 * self.padded_inputs
        if not self.signed:
            return self.padded_inputs
        return both if both == lanes else _up(both, CHANNELS)


def unsupported(architecture: Architecture) -> str | None:
    """Why the kernel can't run a network, or None."""
    shape: tuple[int, ...] = architecture.input_shape
    last: Layer | None = None
    for layer in architecture.layers:
        shape = layer.output(shape)
        if isinstance(layer, MaxPool):
            if any(kernel > stride for kernel, stride in zip(layer.kernel, layer.stride, strict=True)):
                return f"a pooling whose windows overlap ({layer})"
            if math.prod(layer.kernel) > BYTE:
                return f"a pooling window of more than {BYTE} places ({layer})"
            if not isinstance(last, Conv):
                return f"a pooling that does not follow a convolution ({layer})"
        elif not isinstance(layer, Flatten):
            if isinstance(layer, Conv) and any(p >= k for p, k in zip(layer.padding, layer.kernel, strict=True)):
                return f"a padding as large as the kernel ({layer})"
            terms = max(math.prod(layer.shape[1:]), layer.shape[0] * math.prod(layer.shape[2:]))
            if 2 * BYTE * terms > INT32 or 4 * (OFFSET - 1) ** 2 * math.prod(shape[1:]) > INT32:
                return f"sums that int32 can't hold ({layer})"
        last = layer
    return None


def plan(architecture: Architecture) -> list[Stage]:
    """Describe a network as stages."""
    stages: list[Stage] = []
    shape: tuple[int, ...] = architecture.input_shape
    held: tuple[int, ...] = shape  # as it lies in memory: never flattened
    pool: MaxPool | None = None
    signed = True
    alphas = iter(architecture.alphas)
    for layer in architecture.layers:
        shape = layer.output(shape)
        if isinstance(layer, MaxPool):
            pool, held = layer, shape
            continue
        if isinstance(layer, Flatten):
            continue
        given = shape if isinstance(layer, Conv) else (layer.outputs, 1, 1)
        stages.append(
            Stage(
                index=len(stages),
                outputs=layer.outputs,
                inputs=held[0],
                image=(held[1], held[2]),
                positions=(given[1], given[2]),
                kernel=layer.kernel if isinstance(layer, Conv) else (held[1], held[2]),
                stride=layer.stride if isinstance(layer, Conv) else (1, 1),
                padding=layer.padding if isinstance(layer, Conv) else (0, 0),
                flat=not isinstance(layer, Conv),
                relu=layer.relu,
                signed=signed,
                shift=int(math.log2(2 * next(alphas))),
                pool=pool,
            )
        )
        held, pool, signed = given, None, not layer.relu
    return stages


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
