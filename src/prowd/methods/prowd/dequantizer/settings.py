"""What φ is made of, and how it is fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Lt

from prowd.errors import ConfigError
from prowd.numbers.bits import Bitwidth

__all__ = ["DequantizerSettings", "Ladder"]


@dataclass(frozen=True)
class Ladder:
    """Π = π_0 < … < π_k: the widths between which φ has one block each (Section 4.2)."""

    widths: tuple[Bitwidth, ...]

    def __post_init__(self) -> None:
        ascending = all(low < high for low, high in zip(self.widths, self.widths[1:], strict=False))
        if len(self.widths) < 2 or not ascending:
            raise ConfigError(f"ladder: {str(self)!r}; accepted: ascending widths, as in int2, int8, float32")

    @classmethod
    def parse(cls, text: str) -> Ladder:
        """Read ``int2, int4, int8, int16, float32``, the ladder of Table 1."""
        return cls(tuple(Bitwidth.parse(part) for part in text.split(",")))

    @property
    def blocks(self) -> int:
        """k, the number of blocks."""
        return len(self.widths) - 1

    def entry(self, width: Bitwidth) -> int:
        """Block at which weights of a width enter; the top of the ladder is past the last block."""
        if width not in self.widths:
            raise ConfigError(f"ladder: {str(self)!r} has no rung for {width}; accepted: one with every client width")
        return self.widths.index(width)

    def __str__(self) -> str:
        return ", ".join(map(str, self.widths))


@dataclass(frozen=True)
class DequantizerSettings:
    """The progressive weight dequantizer and its training (Section 4.2, Appendix C, Algorithm 2)."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    module: Annotated[int, Ge(4)] = 16
    """Channels of a weight module, a square (paper: 64)."""
    growth: Annotated[int, Ge(1)] = 8
    """Channels that each convolution of a dense block adds (32 at full size)."""
    depth: Annotated[int, Ge(1)] = 5
    """Convolutions of a dense block."""
    tau: Annotated[float, Gt(0)] = 0.1
    form: Literal["residual", "printed"] = "residual"
    """residual: w + τ·(ρρ(w) − w), the identity at identity ρ; printed: w + τ·ρρ(w), which is then 1.1·w."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """adam learns at the scale of the digits what the paper's sgd (lr 0.01) does not: see experiments/dequantizer."""
    lr: Annotated[float, Gt(0)] = 0.001
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Momentum of either optimizer (Adam's β₁); it starts afresh with every fit."""
    batch: Annotated[int, Ge(1)] = 4
    """Modules of a step, all of one network (paper: 16)."""
    epochs: Annotated[int, Ge(1)] = 2
    """Passes over the round's weights (paper: 5)."""
    steps: Annotated[int, Ge(0)] = 0
    """Most steps of a round's fit, which then ends in the middle of an epoch; 0: no limit."""
    lam: Annotated[float, Ge(0)] = 1.0
    """λ, the weight of the distillation loss."""
    noise: Annotated[float, Ge(0)] = 0.1
    """Standard deviation of the Gaussian noise on the buffer's images u."""
    images: Annotated[int, Ge(1)] = 16
    """Images u of a step."""
