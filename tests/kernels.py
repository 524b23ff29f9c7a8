"""Whether this machine has the compiled kernels, and layers of them. Wrong sums are no reason to skip a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from prowd.nets.architecture import Architecture
from prowd.nets.lowbit.kernels import why_not_c99
from prowd.numbers.bits import Bitwidth

if TYPE_CHECKING:
    from prowd.nets.lowbit._native import Layer

__all__ = ["as_bytes", "make_layer", "memory", "missing", "missing_core", "needs_c99", "needs_int8", "random_codes"]

FACTS: dict[str, Any] = {
    "images": 2, "largest": 127, "inputs": 3, "outputs": 5, "image": (4, 6), "kernel": (3, 3), "stride": (1, 1),
    "padding": (1, 1), "pool": (1, 1, 1, 1), "shift": 2, "flat": False, "relu": True, "signed": False, "first": False,
    "training": True, "following": None,
}  # fmt: skip


def as_bytes(codes: NDArray[np.int64], s: int) -> Tensor:
    """int8 images with these codes of s bits. Above 8 bits their lower s − 8 must be zeros, as bytes have no more."""
    found = codes << (8 - s) if s <= 8 else codes >> (s - 8)
    assert np.array_equal(found >> (8 - s) if s <= 8 else found << (s - 8), codes), "codes that no byte stands for"
    return torch.from_numpy(found).to(torch.int8)


def random_codes(architecture: Architecture, bits: int, seed: int = 0) -> list[Tensor]:
    """Weights of a width."""
    random, top = torch.Generator().manual_seed(seed), Bitwidth(bits).max_code
    shapes = architecture.shapes.values()
    return [torch.randint(-top, top + 1, shape, generator=random).to(torch.int16) for shape in shapes]


def missing_core() -> str | None:
    """Why tests of the c99 kernel can't be run here, or None."""
    return why_not_c99(torch.device("cpu"))


def missing() -> str | None:
    """Why tests of the int8 kernel can't be run here, or None."""
    try:
        from prowd.nets.lowbit import _native
    except ImportError:
        return "prowd was installed without its compiled part"
    return None if _native.kernels() else "this CPU has neither AVX2 nor NEON"


def make_layer(instructions: str | None = None, codes: object = None, **changes: object) -> Layer:
    """A small layer of the fastest instructions whose windows are paired, with other facts where they are given."""
    from prowd.nets.lowbit import _native

    facts = {**FACTS, **changes}
    if codes is None:
        codes = np.zeros((facts["outputs"], facts["inputs"], *facts["kernel"]), np.int16)
    made: Any = _native.Layer
    return made(instructions or _native.kernels()[0], codes, **facts)  # type: ignore[no-any-return]


def memory(layer: Layer, name: str) -> NDArray[Any]:
    """A part of a layer's memory, to read or to write."""
    view = layer.memory(name)
    assert view is not None, f"the layer has no {name}"
    return np.asarray(view)


needs_c99 = pytest.mark.skipif(missing_core() is not None, reason=str(missing_core()))
needs_int8 = pytest.mark.skipif(missing() is not None, reason=str(missing()))
