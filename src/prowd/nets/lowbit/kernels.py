"""Which kernel an s-bit client computes with. All give the same integers, at different speeds and places."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor

from prowd.errors import ConfigError
from prowd.nets.architecture import Architecture, Conv, Flatten, Linear, MaxPool
from prowd.nets.lowbit.loss import CrossEntropy, cross_entropy
from prowd.nets.lowbit.simulated import SimulatedKernel
from prowd.nets.lowbit.stages import unsupported
from prowd.nets.lowbit.update import Draws
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Rate
from prowd.numbers.streams import Stream

__all__ = [
    "INT8_BITS",
    "Kernel",
    "KernelChoice",
    "check_kernel",
    "cross_entropy_of",
    "make_kernel",
    "why_not_c99",
    "why_not_int8",
]

KernelChoice = Literal["auto", "int8", "c99", "simulated"]
INT8_BITS = 8  # the widest codes that the int8 kernel takes
OLDEST_TORCH = (2, 6)  # before it, integer products on CPUs without VNNI could overflow in silence


class Kernel(Protocol):
    """The arithmetic of an s-bit network, and its weights."""

    name: str

    @property
    def codes(self) -> Sequence[Tensor]:
        """The weights q, layer by layer."""

    def forward(self, images: Tensor, *, record: bool = True) -> Tensor:
        """Compute the logit codes of a batch of images of bytes, keeping what ``learn`` needs."""

    def learn(self, error: Tensor, rate: Rate, draws: Draws, additions: Sequence[Tensor | None]) -> None:
        """Update the weights by the integer error of the logits that ``forward`` gave."""


def make_kernel(choice: KernelChoice, architecture: Architecture, width: Bitwidth, codes: Sequence[Tensor]) -> Kernel:
    """Make the kernel that is asked for. ``auto`` is the fastest available, and so is ``int8`` above 8 bits."""
    device = codes[0].device
    check_kernel(choice, device, architecture)
    if choice in ("auto", "int8") and width.bits <= INT8_BITS and not why_not_int8(device, architecture):
        from prowd.nets.lowbit.int8 import Int8Kernel

        return Int8Kernel(architecture, width, codes)
    if choice != "simulated" and not why_not_c99(device, architecture):
        from prowd.nets.lowbit.c99 import C99Kernel

        return C99Kernel(architecture, width, codes)
    return SimulatedKernel(architecture, width, codes)


def cross_entropy_of(kernel: Kernel) -> CrossEntropy:
    """What computes the cross-entropy next to a kernel: C, but for the simulated one. The integers are the same."""
    if isinstance(kernel, SimulatedKernel) or why_not_c99(kernel.codes[0].device):
        return cross_entropy
    from prowd.nets.lowbit import c99

    return c99.cross_entropy


def check_kernel(choice: KernelChoice, device: torch.device, architecture: Architecture) -> None:
    """Refuse a kernel that is asked for and not available."""
    asked = {"int8": why_not_int8, "c99": why_not_c99}
    reason = asked[choice](device, architecture) if choice in asked else None
    if reason:
        accepted = "auto", *(name for name, why_not in asked.items() if not why_not(device, architecture)), "simulated"
        raise ConfigError(f"kernel: {choice!r} is not available: {reason}; accepted: {', '.join(accepted)}")


def why_not_c99(device: torch.device, architecture: Architecture | None = None) -> str | None:
    """Why the c99 kernel is not available here, or None."""
    if device.type != "cpu":
        return f"it runs on the CPU, not on {device.type}"
    try:
        from prowd.nets.lowbit.c99 import why_not
    except ImportError as error:
        return f"prowd was installed without its compiled part, which needs a C compiler ({error})"
    return why_not(architecture) if architecture else None


def why_not_int8(device: torch.device, architecture: Architecture | None = None) -> str | None:
    """Why the int8 kernel is not available here, or None."""
    if device.type != "cpu":
        return f"it runs on the CPU, not on {device.type}"
    return _why_not_here() or (unsupported(architecture) if architecture else None)


@functools.cache
def _why_not_here() -> str | None:
    """Why this machine can't run the int8 kernel. It must first agree with the simulated one on a small network."""
    version = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if version < OLDEST_TORCH:
        return f"torch {torch.__version__} is older than {'.'.join(map(str, OLDEST_TORCH))}"
    try:
        from prowd.nets.lowbit.int8 import Int8Kernel, instruction_sets
    except ImportError as error:
        return f"prowd was installed without its compiled part, which needs a C compiler on x86-64 or AArch64 ({error})"
    found = instruction_sets()
    if not found:
        return "this CPU has neither AVX512-VNNI nor AVX2"
    return None if _agrees(Int8Kernel) else f"its sums are wrong on this CPU ({found[0]}); please report it"


def _agrees(kernel: Callable[[Architecture, Bitwidth, Sequence[Tensor]], Kernel]) -> bool:
    """Compare one step on a network with all that the kernel is made of."""
    layers = (
        Conv("a", 3, 20),
        Conv("b", 20, 40, stride=(2, 2)),
        MaxPool(),
        Flatten(),
        Linear("c", 160, 10, relu=False),
    )
    architecture, width = Architecture(layers, (3, 8, 8)), Bitwidth(INT8_BITS)
    random = torch.Generator().manual_seed(0)
    codes = [
        torch.randint(-width.max_code, width.max_code + 1, layer.shape, generator=random).to(torch.int16)
        for layer in architecture.weight_layers
    ]
    images = torch.randint(256, (6, 3, 8, 8), generator=random, dtype=torch.uint8)
    error = torch.randint(-(2**30), 2**30, (6, 10), generator=random)
    outcomes: list[list[Tensor]] = []
    one: Kernel
    for one in (SimulatedKernel(architecture, width, codes), kernel(architecture, width, codes)):
        logits = one.forward(images)
        one.learn(error, Rate.nearest(8.0), Draws(Stream.of(0, "agreement"), 0), [None] * len(codes))
        outcomes.append([logits, *one.codes])
    return all(torch.equal(one, other) for one, other in zip(*outcomes, strict=True))
