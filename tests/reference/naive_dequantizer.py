"""Algorithm 2 transcribed naively: one module, one block, one output channel, one image at a time, in float64.

φ is the dictionary of its parameters (``Dequantizer.state()``). Of the package only the data types are used,
and torch gives gradients, convolutions and the random draws. These are, for each epoch: an order of the modules of each
net that teaches and each shape of kernels, in the order of the nets and of their layers, then an order of the batches;
and for each batch an order of the buffer, of which the first images are taken, then their noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.methods.prowd.dequantizer import DequantizerSettings, Ladder, Net
from prowd.nets import Conv, Flatten, Linear, MaxPool, WeightLayer
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Weights
from tests.reference.naive_modules import Kernel, places, read, write

__all__ = ["Fit", "Theta", "dequantize", "lifted", "losses"]

Theta = dict[str, Tensor]


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
            elif isinstance(layer, Linear):
                x = ready[layer.name] @ x
            if isinstance(layer, Conv | Linear) and layer.relu:
                x = torch.where(x > 0, x, 0.0)
        found.append(torch.exp(x) / torch.exp(x).sum())
    return found


# --- Algorithm 2 -----------------------------------------------------------------------------------------------------


def lifted(theta: Theta, net: Net, ladder: Ladder, settings: DequantizerSettings) -> Theta:
    """The weights of a net with all its modules quantized to the lowest width and taken up to its own by φ."""
    found = values(net.weights)
    for kernel, modules in places(net.architecture, settings.module).items():
        for place in modules:
            w = quantized(read(found, place, settings.module, kernel), ladder.widths[0])
            for i in range(ladder.widths.index(net.width)):
                w = block(theta, i, w, settings)
            write(found, place, w, kernel)
    return found


def losses(
    theta: Theta,
    net: Net,
    kernel: Kernel,
    rows: Sequence[int],
    images: Tensor,
    others: Theta,
    ladder: Ladder,
    settings: DequantizerSettings,
) -> tuple[Tensor, Tensor]:
    """Lines 5 and 6 for a batch of one net's modules of a shape, by their numbers; all others are as in ``others``."""
    j = ladder.widths.index(net.width)
    true, exchanged = values(net.weights), {name: tensor.clone() for name, tensor in others.items()}
    recon = torch.zeros((), dtype=torch.float64)
    for row in rows:
        place = places(net.architecture, settings.module)[kernel][row]
        w = read(true, place, settings.module, kernel).clamp(-1, 1)
        q = [quantized(w, width) for width in ladder.widths[:j]] + [w]
        climbing = q[0]
        for i in range(j):
            recon = recon + (q[i + 1] - block(theta, i, q[i], settings)).abs().mean() / len(rows)
            climbing = block(theta, i, climbing, settings)
        write(exchanged, place, climbing, kernel)
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
            batches: list[tuple[int, Kernel, list[int]]] = []
            for n, net in enumerate(teachers):
                for kernel, modules in places(net.architecture, size).items():
                    order = torch.randperm(len(modules), generator=random).tolist()
                    batches += [(n, kernel, order[at : at + batch]) for at in range(0, len(order), batch)]
            others = [lifted(self.theta, net, self.ladder, self.settings) for net in teachers]
            found = []
            for number in torch.randperm(len(batches), generator=random).tolist():
                chosen = torch.randperm(len(buffer), generator=random)[: self.settings.images]
                u = buffer[chosen]
                u = u + self.settings.noise * torch.randn(u.shape, generator=random)
                n, kernel, rows = batches[number]
                found.append(self.step(teachers[n], kernel, rows, u, others[n]))
            self.recon.append(sum(recon for recon, _ in found) / len(found))
            self.distill.append(sum(distill for _, distill in found) / len(found))

    def step(self, net: Net, kernel: Kernel, rows: list[int], images: Tensor, others: Theta) -> tuple[float, float]:
        """Lines 5 to 8. Blocks that the net did not pass stand still, their momentum with them."""
        theta = {name: tensor.clone().requires_grad_() for name, tensor in self.theta.items()}
        recon, distill = losses(theta, net, kernel, rows, images, others, self.ladder, self.settings)
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
    for kernel, modules in places(net.architecture, settings.module).items():
        for place in modules:
            w = read(found, place, settings.module, kernel)
            for j in range(ladder.widths.index(net.weights[place[0]].width), len(ladder.widths) - 1):
                w = block(theta, j, w, settings)
            write(found, place, w, kernel)
    return found
