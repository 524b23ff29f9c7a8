"""The progressive weight dequantizer φ: one block of two affine couplings for each step of the ladder (Appendix C)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prowd.errors import RunError
from prowd.methods.prowd.dequantizer.modules import by_kernel, eligible, join, side, split
from prowd.methods.prowd.dequantizer.settings import DequantizerSettings, Ladder
from prowd.nets.architecture import Architecture
from prowd.numbers.quantize import Weights
from prowd.numbers.seeds import generator

__all__ = ["Block", "Coupling", "DenseBlock", "Dequantizer", "dequantize", "dequantize_in_stages"]

SLOPE = 0.2
FIRST_SCALE = 0.1
"""The last convolution of a dense block starts at this fraction of the usual size, so that ρ starts near identity."""
MAX_EXPONENT = 0.8


class DenseBlock(nn.Module):
    """Convolutions 3×3 that each read everything before them; LeakyReLU between, the last one linear."""

    def __init__(self, inputs: int, outputs: int, growth: int, depth: int, random: torch.Generator) -> None:
        super().__init__()
        self.kernels, self.biases = nn.ParameterList(), nn.ParameterList()
        for index in range(depth):
            last = index == depth - 1
            fan_in = 9 * (inputs + index * growth)
            deviation = math.sqrt(2 / (1 + SLOPE**2) / fan_in) * (FIRST_SCALE if last else 1.0)
            shape = (outputs if last else growth, fan_in // 9, 3, 3)
            self.kernels.append(nn.Parameter(torch.randn(shape, generator=random) * deviation))
            self.biases.append(nn.Parameter(torch.zeros(shape[0])))

    def forward(self, x: Tensor) -> Tensor:
        """Image to image, of the same height and width."""
        *hidden, last = zip(self.kernels, self.biases, strict=True)
        for kernel, bias in hidden:
            x = torch.cat([x, F.leaky_relu(F.conv2d(x, kernel, bias, padding=1), SLOPE)], 1)
        return F.conv2d(x, *last, padding=1)


class Coupling(nn.Module):
    """ρ: w₁' = w₁ + α(w₂), w₂' = w₂⊙exp(β(w₁')) + γ(w₁') on two halves of the channels, the exponent within ±0.8."""

    def __init__(self, channels: int, growth: int, depth: int, random: torch.Generator) -> None:
        super().__init__()
        self.first = channels // 2
        second = channels - self.first
        self.alpha = DenseBlock(second, self.first, growth, depth, random)
        self.beta = DenseBlock(self.first, second, growth, depth, random)
        self.gamma = DenseBlock(self.first, second, growth, depth, random)

    def forward(self, w: Tensor) -> Tensor:
        """Apply the coupling to modules [n, channels, 3k, 3k]."""
        w1, w2 = w[:, : self.first], w[:, self.first :]
        w1 = w1 + self.alpha(w2)
        exponent = MAX_EXPONENT * (2 * torch.sigmoid(self.beta(w1)) - 1)
        return torch.cat([w1, w2 * torch.exp(exponent) + self.gamma(w1)], 1)


class Block(nn.Module):
    """φ_j, from π_j to π_{j+1}. The two ρ of Appendix C are two layers, each with its own parameters."""

    def __init__(
        self,
        channels: int,
        growth: int,
        depth: int,
        tau: float,
        form: Literal["residual", "printed"],
        random: torch.Generator,
    ) -> None:
        super().__init__()
        self.tau, self.form = tau, form
        self.inner = Coupling(channels, growth, depth, random)
        self.outer = Coupling(channels, growth, depth, random)

    def forward(self, w: Tensor) -> Tensor:
        """w + τ·(ρ(ρ(w)) − w), or as printed w + τ·ρ(ρ(w))."""
        refined: Tensor = self.outer(self.inner(w))
        return w + self.tau * (refined - w if self.form == "residual" else refined)


class Dequantizer(nn.Module):
    """φ: blocks φ_0 … φ_{k−1} that take weight modules from the foot of the ladder to its top."""

    def __init__(self, ladder: Ladder, settings: DequantizerSettings, seed: int) -> None:
        super().__init__()
        side(settings.module)
        self.ladder, self.settings = ladder, settings
        self.blocks = nn.ModuleList(
            Block(
                settings.module,
                settings.growth,
                settings.depth,
                settings.tau,
                settings.form,
                generator(seed, "phi", "init", block),
            )
            for block in range(ladder.blocks)
        )

    def forward(self, modules: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """Take modules of width π_start to width π_stop (default: the top)."""
        for block in self.blocks[start:stop]:
            modules = block(modules)
        return modules

    def state(self) -> dict[str, Tensor]:
        """The parameters as plain tensors on the CPU, copied."""
        return {name: parameter.detach().cpu().clone() for name, parameter in self.named_parameters()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take the parameters of ``state``, no more and no fewer."""
        own = {name: tuple(parameter.shape) for name, parameter in self.named_parameters()}
        if own != {name: tuple(tensor.shape) for name, tensor in state.items()}:
            raise RunError(f"dequantizer: the parameters are of another φ; accepted: those of ladder {self.ladder}")
        self.load_state_dict(dict(state))


@torch.no_grad()
def dequantize(phi: Dequantizer, architecture: Architecture, weights: Weights) -> dict[str, Tensor]:
    """ŵ of a client's weights as they arrived: each eligible tensor enters φ at its own width and goes to the top.

    Weights at the top of the ladder (Float32 in Table 1), layers without modules and gains pass untouched.
    """
    values = {name: tensor.value() for name, tensor in weights.items()}
    for names in _lifted(phi, architecture, weights):
        *_, modules = _stages(phi, weights, names)
        values.update(split(modules, {name: weights[name].shape for name in names}))
    return values


@torch.no_grad()
def dequantize_in_stages(phi: Dequantizer, architecture: Architecture, weights: Weights) -> list[dict[str, Tensor]]:
    """The last convolution that ``dequantize`` would lift, or the last layer: as it came, and after each block."""
    groups = _lifted(phi, architecture, weights)
    shown = [names for names in groups if len(weights[names[0]].shape) == 4] or groups
    if not shown:
        return []
    names = max(shown, key=lambda names: list(architecture.shapes).index(names[-1]))
    shapes = {name: weights[name].shape for name in names}
    return [{names[-1]: split(modules, shapes)[names[-1]]} for modules in _stages(phi, weights, names)]


def _lifted(phi: Dequantizer, architecture: Architecture, weights: Weights) -> list[list[str]]:
    """Names of the tensors that pass at least one block; together those that can pass at once."""
    names = [name for name in eligible(architecture, phi.settings.module) if name in weights]
    passing = [name for name in names if phi.ladder.entry(weights[name].width) < phi.ladder.blocks]
    widths = dict.fromkeys(weights[name].width for name in passing)
    alike = [[name for name in passing if weights[name].width == width] for width in widths]
    return [group for names in alike for group in by_kernel(architecture.shapes, names).values()]


def _stages(phi: Dequantizer, weights: Weights, names: list[str]) -> Iterator[Tensor]:
    """The modules of tensors of one width, with kernels of one shape: as they came, and after each block."""
    device = next(phi.parameters()).device
    modules = join([weights[name].value() for name in names], phi.settings.module).to(device)
    yield modules.cpu()
    for block in phi.blocks[phi.ladder.entry(weights[names[0]].width) :]:
        modules = block(modules)
        yield modules.cpu()
