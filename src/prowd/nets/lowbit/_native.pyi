"""The compiled part (native/module.c). Buffers are contiguous; strides are bytes between images, rows and columns."""

from typing import Any

from numpy.typing import NDArray

Buffer = NDArray[Any]
Triple = tuple[int, int, int]
Four = tuple[int, int, int, int]
Weights = tuple[int, int, int, int, int]

def kernels() -> list[tuple[str, int, int]]: ...
def forward(
    kernel: int, x: Buffer, strides: Triple, positions: Triple, rows: int, apart: int, row_bytes: int, run: int,
    weights: Buffer, start: Buffer, outputs: int, codes: Buffer, offset: int, code_strides: Triple,
    passes: Buffer | None, shift: int, largest: int, relu: bool, room: Buffer | None,
    pool: bool, /,
) -> None: ...  # fmt: skip
def backward(
    kernel: int, x: Buffer, strides: Triple, positions: Triple, rows: int, apart: int, row_bytes: int, run: int,
    weights: Buffer, start: Buffer, outputs: int, errors: Buffer, passes: Buffer, /,
) -> int: ...  # fmt: skip
def gradient(
    kernel: int, a: Buffer, a_strides: Triple, a_block: int, e: Buffer, offset: int, e_strides: Triple, e_block: int,
    positions: Triple, window: tuple[int, int], tap_strides: tuple[int, int], inputs: int, outputs: int, largest: int,
    g: Buffer, /,
) -> None: ...  # fmt: skip
def load_images(
    images: Buffer, channels: int, steps: int, codes: Buffer, offset: int, strides: Triple, positions: Triple, /
) -> None: ...
def pool(
    codes: Buffer, passes: Buffer | None, strides: Triple, window: Four, out: Buffer, offset: int, out_strides: Triple,
    shape: Four, out_passes: Buffer | None, winners: Buffer | None, /,
) -> None: ...  # fmt: skip
def spread(
    errors: Buffer, up: int, largest: int, winners: Buffer | None, window: Four, out: Buffer, offset: int,
    strides: Triple, shape: Four, /,
) -> None: ...  # fmt: skip
def interleave(
    from_: Buffer, images: int, pixels: int, channels: int, padded: int, how: int, to: Buffer, /
) -> None: ...
def pack(
    kernel: int, codes: Buffer, weights: Weights, limit: int, offset: int, flat: bool, pairs: bool, ternary: Buffer,
    forward: Buffer, forward_start: Buffer, backward: Buffer | None, backward_start: Buffer | None, /,
) -> None: ...  # fmt: skip
def join_gradient(g: Buffer, rows: int, inputs: int, padded: int, parts: bool, /) -> int: ...
def update(
    codes: Buffer, weights: Weights, g: Buffer, gradient_inputs: int, factor: tuple[int, int], uniform: Buffer,
    largest: int, /,
) -> None: ...  # fmt: skip
