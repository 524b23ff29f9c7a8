"""A received network, laid out for the fit of φ: its modules at every width, and its float function f."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.methods.prowd.dequantizer.modules import by_kernel, eligible, join, split
from prowd.methods.prowd.dequantizer.settings import Ladder
from prowd.nets.architecture import Architecture, gain_name, weight_name
from prowd.nets.float32 import forward, initial_gains, normalised
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Weights, quantize

__all__ = ["Group", "Net", "Source"]


@dataclass(frozen=True)
class Net:
    """A client's network as the server received it: (w, π_j) of Algorithm 2, and the gains of a Float32 client."""

    architecture: Architecture
    width: Bitwidth
    weights: Weights


@dataclass(frozen=True)
class Group:
    """The modules of a net's layers with kernels of one shape, which are images of one size."""

    shapes: Mapping[str, tuple[int, ...]]
    """The layers, in order, by the names of their weights."""
    rungs: tuple[Tensor, ...]
    """q_0 … q_j, each [n, size, k·h, k·w]; q_j is w itself, floats clipped to ±1."""

    def __len__(self) -> int:
        return len(self.rungs[0])

    def tensors(self, modules: Tensor) -> dict[str, Tensor]:
        """The weights that modules make up."""
        return split(modules, self.shapes)


class Source:
    """Modules of a net and of its quantized forms, and the network f(u; ·) in which they can be exchanged."""

    @torch.no_grad()
    def __init__(self, net: Net, ladder: Ladder, size: int, device: torch.device) -> None:
        self.architecture, layers = net.architecture, net.architecture.weight_layers
        self.entry = ladder.entry(net.width)
        values = {name: tensor.value().detach().to(device) for name, tensor in net.weights.items()}
        gains = {**initial_gains(net.architecture, values), **values}
        self.gains = {gain_name(layer): gains[gain_name(layer)] for layer in layers} if net.width.is_float else {}
        self.effective = [self._effective(index, values[weight_name(layer)]) for index, layer in enumerate(layers)]
        lower = ladder.widths[: self.entry]
        kernels = by_kernel(net.architecture.shapes, eligible(net.architecture, size))
        self.groups = {
            kernel: _group({name: values[name] for name in names}, lower, size) for kernel, names in kernels.items()
        }

    def predict(self, images: Tensor, exchanged: Mapping[str, Tensor] | None = None) -> Tensor:
        """softmax f(u; w), or that of the network with other weights in some layers.

        f computes in floats with g·v/‖v‖ at Float32 and with v/α at integer widths. A Float32 client that keeps its
        gains to itself gets g = ‖v‖/α.
        """
        others = exchanged or {}
        weights = [
            self._effective(index, others[weight_name(layer)]) if weight_name(layer) in others else true
            for index, (layer, true) in enumerate(zip(self.architecture.weight_layers, self.effective, strict=True))
        ]
        return F.softmax(forward(self.architecture, weights, images), 1)

    def _effective(self, index: int, vector: Tensor) -> Tensor:
        gain = self.gains.get(gain_name(self.architecture.weight_layers[index]))
        return vector / self.architecture.alphas[index] if gain is None else normalised(vector, gain)


def _group(values: Mapping[str, Tensor], lower: tuple[Bitwidth, ...], size: int) -> Group:
    truth = join(values.values(), size)
    rungs = [quantize(truth, width).value() for width in lower]
    return Group({name: tuple(value.shape) for name, value in values.items()}, (*rungs, truth.clamp(-1, 1)))
