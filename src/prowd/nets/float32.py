"""A Float32 client's network: the same architecture under weight normalization (Appendix B).

w = g·v/‖v‖ per output channel. v lives in the weight space shared by all widths, where weights have the scale of the
ternary ones; the gains g bring them to the scale the network computes with, starting from g = ‖v‖/α.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from prowd.nets.architecture import (
    IMAGES,
    Add,
    Architecture,
    AvgPool,
    Conv,
    Flatten,
    MaxPool,
    Take,
    gain_name,
    weight_name,
)
from prowd.nets.inputs import to_unit
from prowd.nets.lowbit.model import Correction
from prowd.numbers.bits import FLOAT32
from prowd.numbers.quantize import QTensor, Weights

__all__ = ["FloatModel", "FloatSettings", "forward", "initial_gains", "normalised"]


@dataclass(frozen=True)
class FloatSettings:
    """How Float32 clients train (SGD with momentum, reset each round)."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "allow_inf_nan": False}

    lr: Annotated[float, Gt(0), Le(65536)] = 0.03
    gain_lr: Annotated[float, Ge(0), Le(65536)] = 0.02
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    clip: Annotated[float, Gt(0), Le(1e9)] = 2.0
    """Largest l2 norm of the whole gradient."""
    update_exponent: Literal[0, 1, 2] = 2
    """A step of v in layer l is scaled by α_l to this power; at 2, lr is the rate of the effective weight v/α."""
    gains: Literal["average", "local"] = "average"
    """Whether the gains are averaged among Float32 clients or stay on each device."""

    def rates(self, architecture: Architecture) -> list[float]:
        """The learning rate of v in each layer."""
        return [self.lr * alpha**self.update_exponent for alpha in architecture.alphas]

    def reach(self, architecture: Architecture, steps: int, factor: float) -> dict[str, float]:
        """How far steps at ``factor`` times these rates can take each tensor: no gradient is longer than ``clip``,
        and momentum adds up to 1/(1 − momentum) of them.
        """
        far = steps * factor * self.clip / (1 - self.momentum)
        layers = architecture.weight_layers
        weights = {weight_name(layer): far * rate for layer, rate in zip(layers, self.rates(architecture), strict=True)}
        return weights | {gain_name(layer): far * self.gain_lr for layer in layers}


def initial_gains(architecture: Architecture, vectors: dict[str, Tensor]) -> dict[str, Tensor]:
    """g = ‖v‖/α: the float network starts as the scaled twin of the quantized one."""
    gains: dict[str, Tensor] = {}
    for layer, alpha in zip(architecture.weight_layers, architecture.alphas, strict=True):
        norms: Tensor = torch.linalg.vector_norm(vectors[weight_name(layer)].double().flatten(1), dim=1)
        gains[gain_name(layer)] = (norms / alpha).float()
    return gains


class FloatModel:
    """Weight-normalized network, trained by momentum SGD (by hand: importing torch.optim takes two seconds)."""

    def __init__(
        self,
        architecture: Architecture,
        weights: Weights,
        settings: FloatSettings,
        device: torch.device,
        factor: float = 1.0,
    ) -> None:
        self.architecture, self.settings = architecture, settings
        self.names = [weight_name(layer) for layer in architecture.weight_layers]
        self.gain_names = [gain_name(layer) for layer in architecture.weight_layers]
        vectors = {name: weights[name].value() for name in self.names}
        fresh = initial_gains(architecture, vectors)
        gains = [weights[name].value() if name in weights else fresh[name] for name in self.gain_names]
        tensors = [tensor.clone().to(device).requires_grad_() for tensor in (*vectors.values(), *gains)]
        self.vectors, self.gains = tensors[: len(gains)], tensors[len(gains) :]
        self.rates = [rate * factor for rate in settings.rates(architecture)]
        self.rates += [settings.gain_lr * factor] * len(gains)
        self.velocity = [torch.zeros_like(tensor) for tensor in tensors]
        self.total_loss, self.steps = torch.zeros((), device=device), 0

    def step(self, images: Tensor, labels: Tensor, correction: Correction | None = None) -> None:
        """One step of SGD on a batch of images of bytes.

        What a correction gives for the weights v is added to their gradients after these are clipped.
        """
        loss = F.cross_entropy(self._forward(images), labels)
        self.total_loss += loss.detach()
        self.steps += 1
        parameters = [*self.vectors, *self.gains]
        grads = torch.autograd.grad(loss, parameters)
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(grad) for grad in grads]))
        factor = (self.settings.clip / (norm + 1e-6)).clamp(max=1.0)  # as torch.nn.utils.clip_grad_norm_ does it
        with torch.no_grad():
            clipped = [grad * factor for grad in grads]
            for grad, addition in zip(clipped, correction(self.vectors) if correction else (), strict=False):
                grad.add_(addition)
            for parameter, velocity, grad, rate in zip(parameters, self.velocity, clipped, self.rates, strict=True):
                velocity.mul_(self.settings.momentum).add_(grad)
                parameter.sub_(velocity, alpha=rate)

    def loss(self) -> float:
        """The mean loss of the steps so far."""
        return float(self.total_loss) / self.steps

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """Logits of a batch of images of bytes."""
        return self._forward(images)

    def weights(self) -> dict[str, QTensor]:
        """The shared weights v and the gains g."""
        named = zip((*self.names, *self.gain_names), (*self.vectors, *self.gains), strict=True)
        return {name: QTensor(parameter.detach().clone().cpu(), FLOAT32) for name, parameter in named}

    def _forward(self, images: Tensor) -> Tensor:
        """Compute the logits, from a copy of the images in one layout.

        The strides of a tensor with one channel are ambiguous, and choose the convolution's algorithm: without the
        copy, the last bits of the result would depend on where the images came from.
        """
        copy = torch.empty_like(images, dtype=torch.float32, memory_format=torch.channels_last)
        copy.copy_(to_unit(images))
        return forward(self.architecture, map(normalised, self.vectors, self.gains), copy)


def forward(architecture: Architecture, weights: Iterable[Tensor], images: Tensor) -> Tensor:
    """Logits of the network that computes in floats with these weights, one tensor for each weight layer."""
    x, remaining = images, iter(weights)
    held = {IMAGES: images}  # outputs that are asked for again
    for number, layer in enumerate(architecture.layers):
        if isinstance(layer, MaxPool):
            x = F.max_pool2d(x, layer.kernel, layer.stride)
        elif isinstance(layer, AvgPool):
            x = F.avg_pool2d(x, layer.kernel, layer.stride)
        elif isinstance(layer, Flatten):
            x = x.flatten(1)
        elif isinstance(layer, Take):
            x = held[layer.source]
        else:
            if isinstance(layer, Add):
                x = x + held[layer.source]
            elif isinstance(layer, Conv):
                x = F.conv2d(x, next(remaining), None, layer.stride, layer.padding, groups=layer.groups)
            else:
                x = F.linear(x, next(remaining))
            x = F.relu(x, inplace=True) if layer.relu else x
        if number in architecture.held:
            held[number] = x
    return x


def normalised(vector: Tensor, gain: Tensor) -> Tensor:
    """w = g·v/‖v‖, per output channel; a zero v gives a zero w."""
    norm: Tensor = torch.linalg.vector_norm(vector.flatten(1), dim=1)
    zero = norm == 0
    norm, gain = torch.where(zero, 1.0, norm), torch.where(zero, 0.0, gain)
    return vector * (gain / norm).reshape([-1] + [1] * (vector.dim() - 1))
