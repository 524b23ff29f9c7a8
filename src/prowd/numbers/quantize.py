"""Quantizers as integer codes (Section 3.2, Appendix B): every formula of the number formats, once.

A code c of width s stands for the value c / S with S = 2^(s−1); codes are the truth and floats are a view of them.
Codes held in float tensors are exact while they stay below 2^24 (float32) or 2^53 (float64).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from prowd.numbers.bits import FLOAT32, INT2, Bitwidth

__all__ = [
    "QTensor",
    "Rate",
    "Weights",
    "clip_codes",
    "corrected_steps",
    "encode",
    "largest_magnitude",
    "quantize",
    "shift_exponent",
    "stochastic_steps",
    "ternarize",
    "ternary",
]

RATE_BITS = 8  # of the mantissa of a learning rate
RANDOM_BITS = 24  # of a random word decide a stochastic rounding
BEYOND = 2**17  # more steps than there are codes
LARGEST_SHIFT = 63  # of an int64


@dataclass(frozen=True)
class QTensor:
    """Integer codes of one width and a scale: value = scale · code / S. At Float32 the codes are the values."""

    codes: Tensor
    width: Bitwidth
    scale: float = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return tuple(self.codes.shape)

    def value(self) -> Tensor:
        """Return the float32 view; exact for every width at scale 1."""
        codes = self.codes.to(torch.float32)
        step = self.scale if self.width.is_float else self.scale / self.width.steps
        return codes if step == 1.0 else codes * step


Weights = Mapping[str, QTensor]
"""Named tensors as they cross the wire."""


def clip_codes(codes: Tensor, width: Bitwidth) -> Tensor:
    """clip_s on codes: to ±(S−1)."""
    return codes.clamp(-width.max_code, width.max_code)


def encode(values: Tensor, width: Bitwidth) -> Tensor:
    """Codes of Q_s(x) = clip_s(round(S·x)/S), round half to even, in the dtype of ``values``; S·x is exact."""
    return clip_codes(torch.round(values * width.steps), width)


def quantize(values: Tensor, width: Bitwidth) -> QTensor:
    """Q_s of Section 3.2; Float32 is the identity."""
    if width.is_float:
        return QTensor(values.to(torch.float32), width)
    return QTensor(encode(values, width).to(torch.int16), width)


def ternary(codes: Tensor, width: Bitwidth) -> Tensor:
    """Codes in {−1, 0, 1} of Q_Int2(q) for s-bit codes q: round_half_even(2c/S), clipped. Keeps a float dtype."""
    return clip_codes(torch.round(codes * (2.0 / width.steps)), INT2)


def ternarize(tensor: QTensor) -> QTensor:
    """Q_Int2(q), the uplink of Table 1; Float32 stays as it is."""
    if tensor.width == FLOAT32:
        return tensor
    return QTensor(ternary(tensor.codes.to(torch.float32), tensor.width).to(torch.int16), INT2)


def shift_exponent(maximum: int) -> int:
    """log2 of Shift(x) = 2^round(log2 x), the power of two nearest in ratio to an integer x; Shift(0) is 1.

    With 2^b ≤ x < 2^(b+1) it is b + 1 exactly when x² > 2^(2b+1), which x² never equals.
    """
    if maximum == 0:
        return 0
    below = maximum.bit_length() - 1
    return below + (maximum * maximum > 1 << (2 * below + 1))


def largest_magnitude(codes: Tensor) -> int:
    """The largest |x| of integers in a tensor of any type."""
    return int(codes.abs().amax()) if codes.numel() else 0


@dataclass(frozen=True)
class Rate:
    """A learning rate as an integer device holds it: mantissa · 2^exponent, the mantissa odd.

    η in least-significant steps, its mantissa of at most 8 bits: multiplying by it is a small product and a shift.
    """

    mantissa: int
    exponent: int

    @classmethod
    def nearest(cls, eta: float) -> Rate:
        """Nearest representable rate, within one part in 256; powers of two are exact."""
        if not (math.isfinite(eta) and eta > 0):
            raise ValueError(f"a learning rate must be positive and finite, not {eta}")
        return cls.ratio(*eta.as_integer_ratio())

    @classmethod
    def ratio(cls, a: int, b: int) -> Rate:
        """The nearest to a / b, both positive, in integers; of two that are as near, the one with an even last bit."""
        exponent = a.bit_length() - b.bit_length() - RATE_BITS
        exponent += a << max(0, -exponent) >= (b << max(0, exponent)) << RATE_BITS
        a, b = a << max(0, -exponent), b << max(0, exponent)
        mantissa, rest = divmod(a, b)
        mantissa += 2 * rest > b or (2 * rest == b and mantissa % 2 == 1)
        twos = (mantissa & -mantissa).bit_length() - 1
        return cls(mantissa >> twos, exponent + twos)

    @classmethod
    def exactly(cls, value: float) -> Rate:
        """A positive float as it is, with a mantissa of up to 53 bits."""
        numerator, denominator = value.as_integer_ratio()
        twos = (numerator & -numerator).bit_length() - 1
        return cls(numerator >> twos, twos - denominator.bit_length() + 1)

    @property
    def value(self) -> float:
        """The rate as a float, exactly."""
        return math.ldexp(self.mantissa, self.exponent)


def stochastic_steps(gradient: Tensor, rate: Rate, words: Tensor) -> Tensor:
    """Signed code steps of Q_stoch_s(η·g / Shift(max|g|)): sign·(floor|x| + Bernoulli(frac|x|)), as int64.

    ``gradient`` holds integers below 2^54, so that the product with the rate fits int64. A step rounds up when frac|x|
    exceeds r/2^24, r being the upper 24 bits of its random word; an integer x is never rounded. Steps that are larger
    than any code are cut to 2^17 or more.
    """
    down = shift_exponent(largest_magnitude(gradient)) - rate.exponent  # |x| = product / 2^down
    product = gradient.to(torch.int64).abs() * rate.mantissa
    if down <= 0:
        size = product.clamp(max=BEYOND) << min(-down, BEYOND.bit_length() - 1)
    else:
        whole = min(down, LARGEST_SHIFT)
        rest = product & ((1 << whole) - 1)
        chance = words >> (32 - RANDOM_BITS)
        if down <= RANDOM_BITS:
            up = rest << (RANDOM_BITS - down) > chance
        else:
            up = (rest > 0) & (rest - 1 >> min(down - RANDOM_BITS, LARGEST_SHIFT) >= chance)
        size = (product >> whole) + up
    return torch.where(gradient < 0, -size, size)


def corrected_steps(gradient: Tensor, rate: Rate, words: Tensor, addition: Tensor) -> Tensor:
    """The same where an ``addition`` joins the gradient after its normalisation by Shift: in float64, not integers."""
    factor = math.ldexp(rate.mantissa, rate.exponent - shift_exponent(largest_magnitude(gradient)))
    steps = gradient.double() * factor + rate.value * addition.double()
    size = steps.abs()
    whole = size.floor()
    return torch.copysign(whole + (size - whole > (words >> (32 - RANDOM_BITS)) * 2.0**-RANDOM_BITS), steps)
