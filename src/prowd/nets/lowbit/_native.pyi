"""The compiled part (native/). Buffers are contiguous; what does not fit is a ValueError that names it."""

from typing import Any

from numpy.typing import NDArray

Pair = tuple[int, int]

OFFSET: int

def kernels() -> list[str]: ...

class Layer:
    """One weight layer and the memory for so many images; ``codes`` are its weights, int16, updated in place."""

    def __new__(
        cls, instructions: str, codes: NDArray[Any], *, images: int, largest: int, inputs: int, outputs: int,
        image: Pair, kernel: Pair, stride: Pair, padding: Pair, pool: tuple[int, int, int, int], shift: int,
        flat: bool, relu: bool, signed: bool, first: bool, training: bool, following: Layer | None,
    ) -> Layer: ...  # fmt: skip
    def load(self, images: NDArray[Any], table: NDArray[Any], n: int, /) -> None: ...
    def pack(self) -> None: ...
    def forward(self, n: int, record: bool, /) -> None: ...
    def gradient(self, start: int, n: int, /) -> int: ...
    def backward(self, n: int, /) -> int: ...
    def spread(self, n: int, up: int, before: Layer, /) -> None: ...
    def update(
        self, mantissa: int, exponent: int, size: int, key0: int, key1: int, step: int, number: int, /
    ) -> None: ...
    def memory(self, name: str, /) -> memoryview | None: ...
