"""Bitwidths: which numbers a device can hold, and how a federation's mix of them is written."""

from __future__ import annotations

import re
from dataclasses import dataclass

from prowd.errors import ConfigError

__all__ = ["FLOAT32", "INT2", "Bitwidth", "parse_mix"]

MIN_BITS, MAX_BITS, FLOAT_BITS = 2, 16, 32
ACCEPTED = f"int{MIN_BITS} to int{MAX_BITS}, or float32"
MAX_CLIENTS = 1_000_000


@dataclass(frozen=True, order=True)
class Bitwidth:
    """A number format: s-bit fixed point in (−1, 1) for s = 2..16, or Float32 (which counts as 32 bits)."""

    bits: int

    def __post_init__(self) -> None:
        if self.bits != FLOAT_BITS and not MIN_BITS <= self.bits <= MAX_BITS:
            raise ConfigError(f"bitwidth: {self.bits} bits is not supported; accepted: {ACCEPTED}")

    @classmethod
    def parse(cls, text: str) -> Bitwidth:
        """Read ``int8`` or ``float32``."""
        name = text.strip().lower()
        if name == "float32":
            return FLOAT32
        match = re.fullmatch(r"int([0-9]{1,2})", name)
        if match is None or not MIN_BITS <= int(match[1]) <= MAX_BITS:
            raise ConfigError(f"bitwidth: {text!r} is not a bitwidth; accepted: {ACCEPTED}")
        return cls(int(match[1]))

    @property
    def is_float(self) -> bool:
        """Whether numbers of this width are IEEE floats, not fixed-point codes."""
        return self.bits == FLOAT_BITS

    @property
    def steps(self) -> int:
        """S(s) = 2^(s−1): a code c stands for the value c / S."""
        if self.is_float:
            raise ValueError("float32 has no fixed-point step")
        return int(2 ** (self.bits - 1))

    @property
    def max_code(self) -> int:
        """Largest code, S − 1; codes are symmetric, −S is not used."""
        return self.steps - 1

    @property
    def levels(self) -> int:
        """How many values the width can hold: 2·(S−1) + 1."""
        return 2 * self.max_code + 1

    def __str__(self) -> str:
        return "float32" if self.is_float else f"int{self.bits}"


INT2 = Bitwidth(2)
FLOAT32 = Bitwidth(FLOAT_BITS)


def parse_mix(text: str) -> tuple[Bitwidth, ...]:
    """Read a client mix such as ``int8:5, float32:5``: the width of every client, in the order written."""
    widths: list[Bitwidth] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([A-Za-z0-9]+)\s*:\s*([0-9]+)\s*", part)
        if match is None:
            raise ConfigError(
                f"clients: {part.strip()!r} in {text!r} is not a group; accepted: WIDTH:COUNT, as in int8:5, float32:5"
            )
        try:
            width = Bitwidth.parse(match[1])
        except ConfigError as error:
            raise ConfigError(f"clients: {error}") from None
        count = int(match[2][:12])
        if not 1 <= count <= MAX_CLIENTS - len(widths):
            found = f"{part.strip()!r} in {text!r}"
            raise ConfigError(f"clients: {found}; accepted: 1 or more a group, {MAX_CLIENTS:,} in all")
        widths += [width] * count
    return tuple(widths)
