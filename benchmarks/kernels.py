"""How fast clients of each width step and infer. Run with ``make bench`` or ``python -m benchmarks.kernels``.

VGG-7 at three sizes (by the channels of its three pairs of convolutions), batch 64, 32×32 images, one thread. Every
figure is a ratio of least times, taken in turn in the same run: how many steps of the other kind, or of Float32, an
Int8 client makes in the time of one. Clients are given images of bytes.

float32     a Float32 client's step: weight normalization, clipped gradients, momentum
plain       the same network in plain PyTorch: no weight normalization, no clipping; channels_last throughout, and its
            images are floats beforehand
tuned       the plain step with what else is known to help a float step on a CPU: fused SGD over all weights in one
            call, buffers for gradients reused. The best float step that we could write; the limits are held to the
            least of these three
simulated   the same integers computed in floats
c99         the same in the portable C of embedded/core, as the compiler makes vectors of it
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.nets import Architecture, build
from prowd.nets.architecture import init_limit, weight_name
from prowd.nets.float32 import FloatModel, FloatSettings, forward
from prowd.nets.inputs import to_unit
from prowd.nets.lowbit.kernels import KernelChoice, why_not_c99, why_not_int8
from prowd.nets.lowbit.model import LowBitModel, LowBitSettings
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.numbers.quantize import QTensor, quantize
from prowd.numbers.streams import Stream

SIZES = {0.125: "16-32-64", 0.25: "32-64-128", 0.5: "64-128-256"}
LIMITS = {0.125: 1.6, 0.25: 2.0, 0.5: 2.5}
INFERENCE_LIMIT = 3.0
C99_LIMIT = 1.0  # Float32 steps that a step of the c99 kernel may take
WIDTHS = (8, 12, 16)
FLOATS = ("float32", "plain", "tuned")
BATCH = 64
CPU = torch.device("cpu")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=6, help="turns in which each kind is measured (default 6)")
    parser.add_argument("--sizes", default="0.125,0.25,0.5", help="width multipliers of VGG-7 (default: all three)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    reason = why_not_int8(CPU) or why_not_c99(CPU)
    if reason:
        raise SystemExit(f"there are no integer kernels to measure here: {reason}")
    for size in map(float, arguments.sizes.split(",")):
        measure(size, arguments.repeats)


def measure(size: float, repeats: int) -> None:
    """Print the ratios of one size of network."""
    architecture = build("vgg7", (3, 32, 32), 10, size)
    random = torch.Generator().manual_seed(0)
    images = torch.randint(256, (BATCH, 3, 32, 32), generator=random, dtype=torch.uint8)
    labels = torch.randint(10, (BATCH,), generator=random)
    values = {
        weight_name(layer): (torch.rand(layer.shape, generator=random) * 2 - 1) * init_limit(layer)
        for layer in architecture.weight_layers
    }
    kinds: dict[str, tuple[int, KernelChoice]] = {
        "int8": (8, "int8"),
        "int4": (4, "int8"),
        **{f"c99 int{bits}": (bits, "c99") for bits in WIDTHS},
        **{f"simulated int{bits}": (bits, "simulated") for bits in WIDTHS},
    }
    low = {name: low_bit(architecture, values, *kind) for name, kind in kinds.items()}
    weights = {name: QTensor(value, FLOAT32) for name, value in values.items()}
    float32 = FloatModel(architecture, weights, FloatSettings(), CPU)
    plain, tuned = (Plain(architecture, list(values.values()), fused=fused) for fused in (False, True))
    models: dict[str, Stepper] = {"float32": float32, "plain": plain, "tuned": tuned, **low}
    given = {name: to_unit(images) if name in ("plain", "tuned") else images for name in models}
    steps = least({name: bind(model.step, given[name], labels) for name, model in models.items()}, repeats)
    inference = least({name: bind(model.logits, given[name]) for name, model in models.items()}, repeats)
    print(f"VGG-7 {SIZES.get(size, size)}: {architecture.parameters:,} weights, kernel {low['int8'].kernel.name}")
    show("step", steps, LIMITS.get(size))
    show("inference", inference, INFERENCE_LIMIT)
    for kernel, limit in (("c99", f" (limit {C99_LIMIT})"), ("simulated", "")):
        wide = ", ".join(f"int{bits} {steps[f'{kernel} int{bits}'] / steps['float32']:.2f}" for bits in WIDTHS)
        print(f"  {kernel} steps in Float32 steps: {wide}{limit}", flush=True)


def show(what: str, times: dict[str, float], limit: float | None) -> None:
    """Print how much longer than an Int8 client the others take, and how much faster than the best float c99 is."""
    best = min(times[name] for name in FLOATS)
    others = ", ".join(f"{name} {seconds / times['int8']:.2f}" for name, seconds in times.items() if name != "int8")
    print(f"  {what + ', in those of int8:':<29} {others}")
    print(f"  {'':<29} least float / int8 {best / times['int8']:.2f}" + (f" (limit {limit})" if limit else ""))
    portable = ", ".join(f"int{bits} {best / times[f'c99 int{bits}']:.2f}" for bits in WIDTHS)
    print(f"  {'':<29} least float / c99: {portable}")


def low_bit(architecture: Architecture, values: dict[str, Tensor], bits: int, kernel: KernelChoice) -> LowBitModel:
    """An s-bit client's network."""
    width = Bitwidth(bits)
    weights = {name: quantize(value, width) for name, value in values.items()}
    settings = LowBitSettings()
    return LowBitModel(
        architecture, width, weights, settings, Stream.of(0, "rounding"), settings.rate_at(width), kernel
    )


class Stepper(Protocol):
    """A network of any kind."""

    def step(self, images: Tensor, labels: Tensor) -> None:
        """Train on a batch."""

    def logits(self, images: Tensor) -> Tensor:
        """Infer a batch."""


class Plain:
    """The network as PyTorch users train it: SGD with momentum, no weight normalization."""

    def __init__(self, architecture: Architecture, values: Sequence[Tensor], *, fused: bool) -> None:
        self.architecture, self.fused = architecture, fused
        self.weights = [scaled(value, alpha) for value, alpha in zip(values, architecture.alphas, strict=True)]
        self.velocity = [torch.zeros_like(weight) for weight in self.weights]

    def step(self, images: Tensor, labels: Tensor) -> None:
        """One step of SGD on images of floats."""
        loss = F.cross_entropy(self._forward(images), labels)
        gradients = torch.autograd.grad(loss, self.weights)
        with torch.no_grad():
            if self.fused:
                torch._foreach_mul_(self.velocity, 0.9)
                torch._foreach_add_(self.velocity, gradients)
                torch._foreach_add_(self.weights, self.velocity, alpha=-0.01)
            else:
                for weight, velocity, gradient in zip(self.weights, self.velocity, gradients, strict=True):
                    velocity.mul_(0.9).add_(gradient)
                    weight.sub_(velocity, alpha=0.01)

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """Logits of a batch."""
        return self._forward(images)

    def _forward(self, images: Tensor) -> Tensor:
        return forward(self.architecture, self.weights, images.contiguous(memory_format=torch.channels_last))


def scaled(value: Tensor, alpha: float) -> Tensor:
    """A weight at the scale the network computes with, in the layout convolutions like best."""
    weight = value / alpha
    return (weight.contiguous(memory_format=torch.channels_last) if weight.dim() == 4 else weight).requires_grad_()


def bind(work: Callable[..., object], *arguments: Tensor) -> Callable[[], object]:
    """A call without arguments."""
    return lambda: work(*arguments)


def least(work: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Least seconds of each piece of work, taken in turn, so that a slow moment of the machine meets all of them.

    They are seconds of the CPU, not of the clock: when other processes take turns with this one, theirs are left out.
    In every turn a piece is done four times and the first is not timed: steps follow steps, and find their data in the
    caches.
    """
    times = dict.fromkeys(work, math.inf)
    for _ in range(repeats):
        for name, call in work.items():
            call()
            for _ in range(3):
                began = time.process_time()
                call()
                times[name] = min(times[name], time.process_time() - began)
    return times


if __name__ == "__main__":
    main()
