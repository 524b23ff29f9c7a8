"""A received network, laid out for the fit of φ: its modules at every width, and its float function f."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.methods.prowd.dequantizer.modules import assemble, cut, eligible, side
from prowd.methods.prowd.dequantizer.settings import Ladder
from prowd.nets.architecture import Architecture, gain_name, weight_name
from prowd.nets.float32 import forward, initial_gains, normalised
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Weights, quantize

__all__ = ["Net", "Source"]


@dataclass(frozen=True)
class Net:
    """A client's network as the server received it: (w, π_j) of Algorithm 2, and the gains of a Float32 client."""

    architecture: Architecture
    width: Bitwidth
    weights: Weights


class Source:
    """Modules of a net and of its quantized forms, and the network f(u; ·) in which any of them can be exchanged."""

    @torch.no_grad()
    def __init__(self, net: Net, ladder: Ladder, size: int, device: torch.device) -> None:
        self.architecture, layers = net.architecture, net.architecture.weight_layers
        self.entry = ladder.entry(net.width)
        values = {name: tensor.value().detach().to(device) for name, tensor in net.weights.items()}
        gains = {**initial_gains(net.architecture, values), **values}
        self.gains = {gain_name(layer): gains[gain_name(layer)] for layer in layers} if net.width.is_float else {}
        self.effective = [self._effective(index, values[weight_name(layer)]) for index, layer in enumerate(layers)]
        self.names = eligible(net.architecture, size)
        self.truth = self._modules(values, size, device)
        """The modules of w, [n, size, 3k, 3k]."""
        self.ends = list(accumulate(values[name].numel() // (9 * size**2) for name in self.names))
        self.rungs = [quantize(self.truth, width).value() for width in ladder.widths[: self.entry]]
        self.rungs.append(self.truth.clamp(-1, 1))
        """q_0 … q_j, each [n, size, 3k, 3k]; q_j is w itself, floats clipped to ±1."""

    def predict(self, images: Tensor, modules: Tensor | None = None) -> Tensor:
        """softmax f(u; w), or that of the network with all its modules exchanged (other layers keep their weights).

        f computes in floats with g·v/‖v‖ at Float32 and with v/α at integer widths. A Float32 client that keeps its
        gains to itself gets g = ‖v‖/α.
        """
        exchanged = self._tensors(modules) if modules is not None else {}
        weights = [
            self._effective(index, exchanged[weight_name(layer)]) if weight_name(layer) in exchanged else true
            for index, (layer, true) in enumerate(zip(self.architecture.weight_layers, self.effective, strict=True))
        ]
        return F.softmax(forward(self.architecture, weights, images), 1)

    def _modules(self, values: Mapping[str, Tensor], size: int, device: torch.device) -> Tensor:
        none = torch.empty(0, size, 3 * side(size), 3 * side(size), device=device)
        modules = torch.cat([none, *(cut(values[name].to(device), size) for name in self.names)])
        return modules.contiguous(memory_format=torch.channels_last)  # a third faster on a CPU

    def _tensors(self, modules: Tensor) -> Mapping[str, Tensor]:
        parts = zip(self.names, modules.tensor_split(self.ends[:-1]), strict=True)
        return {name: assemble(part, self.architecture.shapes[name]) for name, part in parts}

    def _effective(self, index: int, vector: Tensor) -> Tensor:
        gain = self.gains.get(gain_name(self.architecture.weight_layers[index]))
        return vector / self.architecture.alphas[index] if gain is None else normalised(vector, gain)
