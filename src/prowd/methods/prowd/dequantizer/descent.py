"""SGD and Adam as torch.optim has them, to the bit: importing those takes longer than many fits of φ."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from prowd.methods.prowd.dequantizer.settings import DequantizerSettings

__all__ = ["Descent"]

BETA2, EPSILON = 0.999, 1e-8


class Descent:
    """Takes steps along gradients; a parameter without one rests, and so do its momentum and its count of steps."""

    def __init__(self, parameters: Iterable[nn.Parameter], settings: DequantizerSettings) -> None:
        self.parameters, self.settings = list(parameters), settings
        self.first, self.second = ([torch.zeros_like(one) for one in self.parameters] for _ in range(2))
        self.taken = [0] * len(self.parameters)

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient, and forget the gradient."""
        move = self._sgd if self.settings.optimizer == "sgd" else self._adam
        for number, parameter in enumerate(self.parameters):
            if parameter.grad is not None:
                self.taken[number] += 1
                move(number, parameter, parameter.grad)
                parameter.grad = None

    def _sgd(self, number: int, parameter: Tensor, grad: Tensor) -> None:
        """v ← m·v + g, w ← w − lr·v."""
        velocity = self.first[number].mul_(self.settings.momentum).add_(grad)
        parameter.add_(velocity, alpha=-self.settings.lr)

    def _adam(self, number: int, parameter: Tensor, grad: Tensor) -> None:
        """Kingma & Ba, 2015, Algorithm 1."""
        beta1, taken = self.settings.momentum, self.taken[number]
        first = self.first[number].lerp_(grad, 1 - beta1)
        second = self.second[number].mul_(BETA2).addcmul_(grad, grad, value=1 - BETA2)
        length = self.settings.lr / (1 - beta1**taken)
        root = (second.sqrt() / (1 - BETA2**taken) ** 0.5).add_(EPSILON)
        parameter.addcdiv_(first, root, value=-length)
