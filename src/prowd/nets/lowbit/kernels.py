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
from prowd.nets.lowbit.simulated import SimulatedKernel
from prowd.nets.lowbit.stages import unsupported
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Rate

__all__ = ["INT8_BITS", "Kernel", "KernelChoice", "check_kernel", "make_kernel", "why_not_int8"]

KernelChoice = Literal["auto", "int8", "simulated"]
INT8_BITS = 8  # the widest codes that the int8 kernel takes
OLDEST_TORCH = (2, 6)  # before it, integer products on CPUs without VNNI could overflow in silence


class Kernel(Protocol):
    """The arithmetic of an s-bit network, and its weights."""

    name: str

    @property
    def codes(self) -> Sequence[Tensor]:
        """The weights q, layer by layer."""

    def forward(self, images: Tensor, *, record: bool = True) -> Tensor:
        """Compute the logit codes of a batch of images in [−1, 1], keeping what ``learn`` needs."""

    def learn(self, error: Tensor, rate: Rate, random: torch.Generator, additions: Sequence[Tensor | None]) -> None:
        """Update the weights by the error of the logits that ``forward`` gave."""


def make_kernel(choice: KernelChoice, architecture: Architecture, width: Bitwidth, codes: Sequence[Tensor]) -> Kernel:
    """Make the kernel that is asked for; ``auto`` is int8 where it is available. Wider codes are simulated."""
    device = codes[0].device
    check_kernel(choice, device, architecture)
    if choice == "simulated" or width.bits > INT8_BITS or why_not_int8(device, architecture):
        return SimulatedKernel(architecture, width, codes)
    from prowd.nets.lowbit.int8 import Int8Kernel

    return Int8Kernel(architecture, width, codes)


def check_kernel(choice: KernelChoice, device: torch.device, architecture: Architecture) -> None:
    """Refuse a kernel that is asked for and not available."""
    reason = why_not_int8(device, architecture) if choice == "int8" else None
    if reason:
        raise ConfigError(f"kernel: 'int8' is not available: {reason}; accepted: auto, simulated")


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
        return f"prowd was installed without its compiled part, which needs a C compiler on x86-64 ({error})"
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
    images, error = torch.rand(6, 3, 8, 8, generator=random) * 2 - 1, torch.randn(6, 10, generator=random)
    outcomes: list[list[Tensor]] = []
    one: Kernel
    for one in (SimulatedKernel(architecture, width, codes), kernel(architecture, width, codes)):
        logits = one.forward(images)
        one.learn(error, Rate.nearest(8.0), torch.Generator().manual_seed(1), [None] * len(codes))
        outcomes.append([logits, *one.codes])
    return all(torch.equal(one, other) for one, other in zip(*outcomes, strict=True))
