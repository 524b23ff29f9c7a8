"""Algorithm 2 transcribed naively: one module, one block, one output channel, one image at a time, in float64.

φ is the dictionary of its parameters (``Dequantizer.state()``). Of the package only the data types are used,
and torch gives gradients, convolutions and the random draws. These are, for each epoch: an order of the modules of each
net that teaches, in the order of the nets, then an order of the batches; and for each batch an order of the buffer, of
which the first images are taken, then their noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.methods.prowd.dequantizer import DequantizerSettings, Ladder, Net
from prowd.nets import Architecture, Conv, Flatten, Linear, MaxPool, WeightLayer
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Weights

__all__ = ["Fit", "Theta", "dequantize", "losses"]

Theta = dict[str, Tensor]
Place = tuple[str, int, int]
"""Name of a weight tensor, and the first output and input channel of a module in it."""


# --- φ (Appendix C) --------------------------------------------------------------------------------------------------


def dense(theta: Theta, name: str, x: Tensor) -> Tensor:
    """A DenseNet block: every convolution reads all before it, LeakyReLU 0.2 but after the last."""
    depth = sum(key.startswith(f"{name}.kernels.") for key in theta)
    features = [x]
    for layer in range(depth):
        y = F.conv2d(torch.cat(features), theta[f"{name}.kernels.{layer}"], theta[f"{name}.biases.{layer}"], padding=1)
        features.append(y if layer == depth - 1 else torch.where(y >= 0, y, 0.2 * y))
    return features[-1]


def coupling(theta: Theta, name: str, w: Tensor) -> Tensor:
    """ρ(w), split after half of the channels; the exponent is 0.8·(2·sigmoid − 1)."""
    d = len(w) // 2
    first = w[:d] + dense(theta, f"{name}.alpha", w[d:])
    exponent = 0.8 * (2 / (1 + torch.exp(-dense(theta, f"{name}.beta", first))) - 1)
    second = w[d:] * torch.exp(exponent) + dense(theta, f"{name}.gamma", first)
    return torch.cat([first, second])


def block(theta: Theta, j: int, w: Tensor, settings: DequantizerSettings) -> Tensor:
    """φ_j(w): from width π_j to π_{j+1}."""
    refined = coupling(theta, f"blocks.{j}.outer", coupling(theta, f"blocks.{j}.inner", w))
    if settings.form == "printed":
        return w + settings.tau * refined
    return w + settings.tau * (refined - w)


# --- The weight dataset (Appendix C) ---------------------------------------------------------------------------------


def places(architecture: Architecture, size: int) -> list[Place]:
    """Every module of a net: 3×3 convolutions into whole modules, but not the first layer with weights."""
    found: list[Place] = []
    weighty = [layer for layer in architecture.layers if isinstance(layer, Conv | Linear)]
    for layer in weighty[1:]:
        if isinstance(layer, Conv) and layer.kernel == (3, 3) and layer.inputs % size == layer.outputs % size == 0:
            for o in range(0, layer.outputs, size):
                found += [(f"{layer.name}.weight", o, i) for i in range(0, layer.inputs, size)]
    return found


def tile(kernel: int, size: int) -> tuple[slice, slice]:
    """Where one of the kernels of an output channel is in the picture of a module."""
    y, x = divmod(kernel, math.isqrt(size))
    return slice(3 * y, 3 * y + 3), slice(3 * x, 3 * x + 3)


def read(weights: Theta, place: Place, size: int) -> Tensor:
    """The module at a place: [size, 3k, 3k]."""
    name, o, i = place
    side = 3 * math.isqrt(size)
    module = torch.zeros(size, side, side, dtype=torch.float64)
    for channel in range(size):
        for kernel in range(size):
            module[channel][tile(kernel, size)] = weights[name][o + channel, i + kernel]
    return module


def write(weights: Theta, place: Place, module: Tensor) -> None:
    """Put a module in its place."""
    name, o, i = place
    for channel in range(len(module)):
        for kernel in range(len(module)):
            weights[name][o + channel, i + kernel] = module[channel][tile(kernel, len(module))]


def quantized(w: Tensor, width: Bitwidth) -> Tensor:
    """Q_s(x) = clip_s(round(S·x)/S), number by number; Python rounds half to even."""
    steps = 2 ** (width.bits - 1)
    codes = [max(1 - steps, min(steps - 1, round(steps * x))) for x in w.flatten().tolist()]
    return torch.tensor([code / steps for code in codes], dtype=torch.float64).reshape(w.shape)


# --- f, the network in floats ----------------------------------------------------------------------------------------


def values(weights: Weights) -> Theta:
    """Numbers that a client's tensors stand for."""
    return {name: tensor.value().double() for name, tensor in weights.items()}


def layer_scale(layer: WeightLayer) -> float:
    """α = max(1, 2^round(log2(0.75 / sqrt(3/fan_in))))."""
    fan_in = layer.inputs * (layer.kernel[0] * layer.kernel[1] if isinstance(layer, Conv) else 1)
    return max(1.0, 2.0 ** round(math.log2(0.75 / math.sqrt(3 / fan_in))))


def effective(net: Net, layer: WeightLayer, v: Tensor) -> Tensor:
    """v/α at integer widths, g·v/‖v‖ at Float32; a client that keeps its g is taken to have the first, ‖v‖/α."""
    if net.width.bits < 32:
        return v / layer_scale(layer)
    received, channels = values(net.weights), []
    for o in range(layer.outputs):
        first = received[f"{layer.name}.weight"][o].square().sum().sqrt() / layer_scale(layer)
        gain = received[f"{layer.name}.gain"][o] if f"{layer.name}.gain" in received else first
        channels.append(gain * v[o] / v[o].square().sum().sqrt())
    return torch.stack(channels)


def probabilities(net: Net, weights: Theta, images: Tensor) -> list[Tensor]:
    """softmax f(u; w) of each image."""
    layers = [layer for layer in net.architecture.layers if isinstance(layer, Conv | Linear)]
    ready = {layer.name: effective(net, layer, weights[f"{layer.name}.weight"]) for layer in layers}
    found = []
    for image in images.double():
        x = image
        for layer in net.architecture.layers:
            if isinstance(layer, MaxPool):
                x = F.max_pool2d(x, layer.kernel, layer.stride)
            elif isinstance(layer, Flatten):
                x = x.reshape(-1)
            elif isinstance(layer, Conv):
                x = F.conv2d(x, ready[layer.name], None, layer.stride, layer.padding)
            else:
                x = ready[layer.name] @ x
            if isinstance(layer, Conv | Linear) and layer.relu:
                x = torch.where(x > 0, x, 0.0)
        found.append(torch.exp(x) / torch.exp(x).sum())
    return found


# --- Algorithm 2 -----------------------------------------------------------------------------------------------------


def losses(
    theta: Theta, net: Net, rows: Sequence[int], images: Tensor, ladder: Ladder, settings: DequantizerSettings
) -> tuple[Tensor, Tensor]:
    """Lines 5 and 6 for a batch of one net's modules, by their numbers; all others keep their true weights."""
    j = ladder.widths.index(net.width)
    true, exchanged = values(net.weights), values(net.weights)
    recon = torch.zeros((), dtype=torch.float64)
    for row in rows:
        place = places(net.architecture, settings.module)[row]
        w = read(true, place, settings.module).clamp(-1, 1)
        q = [quantized(w, width) for width in ladder.widths[:j]] + [w]
        climbing = q[0]
        for i in range(j):
            recon = recon + (q[i + 1] - block(theta, i, q[i], settings)).abs().mean() / len(rows)
            climbing = block(theta, i, climbing, settings)
        write(exchanged, place, climbing)
    distill = torch.zeros((), dtype=torch.float64)
    for p, r in zip(probabilities(net, true, images), probabilities(net, exchanged, images), strict=True):
        distill = distill - (p * r).sum() / (p.square().sum() * r.square().sum()).sqrt() / len(images)
    return recon, distill


class Fit:
    """A fit of φ: its parameters, which end as those of the last step, and the mean losses of each epoch."""

    def __init__(self, theta: Theta, ladder: Ladder, settings: DequantizerSettings) -> None:
        self.theta = {name: tensor.double() for name, tensor in theta.items()}
        self.ladder, self.settings = ladder, settings
        self.steps = dict.fromkeys(theta, 0)
        self.first = {name: torch.zeros_like(tensor) for name, tensor in self.theta.items()}
        self.second = {name: torch.zeros_like(tensor) for name, tensor in self.theta.items()}
        self.recon: list[float] = []
        self.distill: list[float] = []

    def run(self, nets: Sequence[Net], buffer: Tensor, random: torch.Generator) -> None:
        """Go over the modules of all nets, epoch by epoch; nets of the lowest width teach nothing."""
        size, batch = self.settings.module, self.settings.batch
        teachers = [net for net in nets if net.width != self.ladder.widths[0]]
        for _ in range(self.settings.epochs):
            batches: list[tuple[Net, list[int]]] = []
            for net in teachers:
                order = torch.randperm(len(places(net.architecture, size)), generator=random).tolist()
                batches += [(net, order[at : at + batch]) for at in range(0, len(order), batch)]
            found = []
            for number in torch.randperm(len(batches), generator=random).tolist():
                chosen = torch.randperm(len(buffer), generator=random)[: self.settings.images]
                u = buffer[chosen]
                u = u + self.settings.noise * torch.randn(u.shape, generator=random)
                net, rows = batches[number]
                found.append(self.step(net, rows, u))
            self.recon.append(sum(recon for recon, _ in found) / len(found))
            self.distill.append(sum(distill for _, distill in found) / len(found))

    def step(self, net: Net, rows: list[int], images: Tensor) -> tuple[float, float]:
        """Lines 5 to 8. Blocks that the net did not pass stand still, their momentum with them."""
        theta = {name: tensor.clone().requires_grad_() for name, tensor in self.theta.items()}
        recon, distill = losses(theta, net, rows, images, self.ladder, self.settings)
        torch.autograd.backward(recon + self.settings.lam * distill)
        for name, parameter in theta.items():
            if parameter.grad is not None:
                self.steps[name] += 1
                self.theta[name] = self.theta[name] - self.settings.lr * self.direction(name, parameter.grad)
        return recon.item(), distill.item()

    def direction(self, name: str, gradient: Tensor) -> Tensor:
        """The step that SGD with momentum, or Adam, takes at a rate of 1."""
        beta, steps = self.settings.momentum, self.steps[name]
        if self.settings.optimizer == "sgd":
            self.first[name] = beta * self.first[name] + gradient
            return self.first[name]
        self.first[name] = beta * self.first[name] + (1 - beta) * gradient
        self.second[name] = 0.999 * self.second[name] + 0.001 * gradient.square()
        mean, square = self.first[name] / (1 - beta**steps), self.second[name] / (1 - 0.999**steps)
        return mean / (square.sqrt() + 1e-8)


def dequantize(theta: Theta, net: Net, ladder: Ladder, settings: DequantizerSettings) -> Theta:
    """ŵ = φ(w): every module from the width its tensor came in to the top of the ladder."""
    found = values(net.weights)
    for place in places(net.architecture, settings.module):
        w = read(found, place, settings.module)
        for j in range(ladder.widths.index(net.weights[place[0]].width), len(ladder.widths) - 1):
            w = block(theta, j, w, settings)
        write(found, place, w)
    return found
