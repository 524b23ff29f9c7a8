"""The compiled part of the c99 kernel. Buffers are contiguous; what does not fit is a ValueError that names it."""

from typing import Any

from numpy.typing import NDArray

class Net:
    """A network of s bits with the memory for so many images; ``weights`` are updated in place."""

    def __new__(
        cls,
        bits: int,
        layers: tuple[tuple[int, ...], ...],
        weights: tuple[NDArray[Any], ...],
        images: int,
        training: bool,
    ) -> Net: ...
    def forward(self, images: NDArray[Any], table: NDArray[Any], n: int, logits: NDArray[Any], /) -> None: ...
    def learn(self, errors: NDArray[Any], mantissa: int, exponent: int, key0: int, key1: int, step: int, /) -> None: ...
    def gradients(self, errors: NDArray[Any], out: NDArray[Any], /) -> None: ...

def cross_entropy(
    low: NDArray[Any],
    high: NDArray[Any],
    exponent: int,
    logits: NDArray[Any],
    labels: NDArray[Any],
    images: int,
    classes: int,
    errors: NDArray[Any],
    /,
) -> int: ...
def permutation(key0: int, key1: int, epoch: int, order: NDArray[Any], /) -> None: ...
def augment(
    image: NDArray[Any],
    channels: int,
    rows: int,
    columns: int,
    operations: int,
    turns: NDArray[Any],
    is_signed: bool,
    key0: int,
    key1: int,
    step: int,
    number: int,
    varied: NDArray[Any],
    /,
) -> None: ...
