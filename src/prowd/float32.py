"""A Float32 client's network: the same architecture under weight normalization (Appendix B).

w = g·v/‖v‖ per output channel. v lives in the weight space shared by all widths, where weights have the scale of the
ternary ones; the gains g bring them to the scale the network computes with, starting from g = ‖v‖/α.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from prowd.bits import FLOAT32
from prowd.models.architecture import Architecture, Conv, Flatten, MaxPool, gain_name, weight_name
from prowd.quantize import QTensor, Weights

__all__ = ["FloatModel", "FloatSettings", "initial_gains"]


@dataclass(frozen=True)
class FloatSettings:
    """How Float32 clients train (SGD with momentum, reset each round)."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    lr: Annotated[float, Gt(0)] = 0.03
    gain_lr: Annotated[float, Ge(0)] = 0.02
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    clip: Annotated[float, Gt(0)] = 2.0
    """Largest l2 norm of the whole gradient."""
    update_exponent: Literal[0, 1, 2] = 2
    """A step of v in layer l is scaled by α_l to this power; at 2, lr is the rate of the effective weight v/α."""
    gains: Literal["average", "local"] = "average"
    """Whether the gains are averaged among Float32 clients or stay on each device."""


def initial_gains(architecture: Architecture, vectors: dict[str, Tensor]) -> dict[str, Tensor]:
    """g = ‖v‖/α: the float network starts as the scaled twin of the quantized one."""
    gains: dict[str, Tensor] = {}
    for layer, alpha in zip(architecture.weight_layers, architecture.alphas, strict=True):
        gains[gain_name(layer)] = torch.linalg.vector_norm(vectors[weight_name(layer)].flatten(1), dim=1) / alpha
    return gains


class FloatModel:
    """Weight-normalized network, trained by momentum SGD."""

    def __init__(
        self, architecture: Architecture, weights: Weights, settings: FloatSettings, device: torch.device
    ) -> None:
        self.architecture, self.settings = architecture, settings
        self.names = [weight_name(layer) for layer in architecture.weight_layers]
        self.gain_names = [gain_name(layer) for layer in architecture.weight_layers]
        vectors = {name: weights[name].value() for name in self.names}
        fresh = initial_gains(architecture, vectors)
        gains = [weights[name].value() if name in weights else fresh[name] for name in self.gain_names]
        tensors = [tensor.clone().to(device).requires_grad_() for tensor in (*vectors.values(), *gains)]
        self.vectors, self.gains = tensors[: len(gains)], tensors[len(gains) :]
        rates = [settings.lr * alpha**settings.update_exponent for alpha in architecture.alphas]
        groups = [{"params": [vector], "lr": rate} for vector, rate in zip(self.vectors, rates, strict=True)]
        groups.append({"params": self.gains, "lr": settings.gain_lr})
        self.optimizer = torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum)

    def step(self, images: Tensor, labels: Tensor) -> Tensor:
        """One step of SGD on a batch of images in [−1, 1]; returns the loss."""
        loss = F.cross_entropy(self._forward(images), labels)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_([*self.vectors, *self.gains], self.settings.clip)
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """Logits of a batch of images."""
        return self._forward(images)

    def weights(self) -> dict[str, QTensor]:
        """The shared weights v and the gains g."""
        named = zip((*self.names, *self.gain_names), (*self.vectors, *self.gains), strict=True)
        return {name: QTensor(parameter.detach().cpu(), FLOAT32) for name, parameter in named}

    def _forward(self, images: Tensor) -> Tensor:
        weights = zip(self.vectors, self.gains, strict=True)
        x = images.contiguous(memory_format=torch.channels_last)
        for layer in self.architecture.layers:
            if isinstance(layer, MaxPool):
                x = F.max_pool2d(x, layer.kernel, layer.stride)
            elif isinstance(layer, Flatten):
                x = x.flatten(1)
            else:
                weight = normalised(*next(weights))
                if isinstance(layer, Conv):
                    x = F.conv2d(x, weight, None, layer.stride, layer.padding)
                else:
                    x = F.linear(x, weight)
                x = F.relu(x, inplace=True) if layer.relu else x
        return x


def normalised(vector: Tensor, gain: Tensor) -> Tensor:
    """w = g·v/‖v‖, per output channel; a zero v gives a zero w."""
    norm: Tensor = torch.linalg.vector_norm(vector.flatten(1), dim=1).clamp_min(torch.finfo(torch.float32).tiny)
    return vector * (gain / norm).reshape([-1] + [1] * (vector.dim() - 1))
