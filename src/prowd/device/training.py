"""The one local training loop, and the measurement of what it made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from prowd.data import augment
from prowd.device.scene import Scene
from prowd.nets.float32 import FloatModel
from prowd.nets.lowbit.model import Correction, LowBitModel
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import QTensor, Weights
from prowd.numbers.streams import Stream, permutation
from prowd.wire import Task

__all__ = [
    "EVALUATION_BATCH",
    "Correction",
    "Examples",
    "Model",
    "accuracy",
    "batches",
    "build_model",
    "fit",
    "predicted",
]

EVALUATION_BATCH = 500


class Model(Protocol):
    """A network of some width that can be trained step by step."""

    def step(self, images: Tensor, labels: Tensor, correction: Correction | None = None) -> None:
        """Train on one batch of images of bytes, with what a method adds to the gradients."""

    def loss(self) -> float:
        """Return the mean loss of the steps so far."""

    def logits(self, images: Tensor) -> Tensor:
        """Return the logits of a batch."""

    def weights(self) -> dict[str, QTensor]:
        """Return the weights as they may travel."""


@dataclass(frozen=True)
class Examples:
    """Images (uint8, or int8 codes; NCHW), their labels and, where that is known, the person of each."""

    images: Tensor
    labels: Tensor
    people: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)


def build_model(scene: Scene, width: Bitwidth, weights: Weights, task: Task) -> Model:
    """Build the scene's architecture at a width, ready for the round of a task."""
    if width.is_float:
        return FloatModel(scene.architecture, weights, scene.local.float32, scene.device, task.work.rate.value)
    stream = Stream.of(task.seed, "rounding", task.round, task.client)
    return LowBitModel(
        scene.architecture, width, weights, scene.local.lowbit, stream, task.work.rate, scene.kernel, scene.device
    )


def fit(model: Model, examples: Examples, scene: Scene, task: Task, correction: Correction | None = None) -> float:
    """Train for the local steps of a task and return the mean loss."""
    images, labels = examples.images.to(scene.device), examples.labels.to(scene.device)
    where = task.round, task.client
    order, variations = Stream.of(task.seed, "batches", *where), Stream.of(task.seed, "augment", *where)
    rows = batches(len(labels), task.work.batch, task.work.steps, order)
    for step, chosen in enumerate(rows.to(scene.device)):
        model.step(augment(images[chosen], scene.local.augment, variations, step), labels[chosen], correction)
    return model.loss()


def batches(count: int, batch: int, steps: int, stream: Stream) -> Tensor:
    """Rows of ``steps`` full batches from a stream of reshuffled epochs; every example comes before any comes again."""
    batch = min(batch, count)
    epochs = -(-steps * batch // count)
    order = torch.cat([permutation(stream, epoch, count) for epoch in range(epochs)])
    return order[: steps * batch].reshape(steps, batch)


def accuracy(model: Model, examples: Examples, device: torch.device) -> float:
    """Fraction of examples whose largest logit is that of the label."""
    return int((predicted(model, examples, device) == examples.labels).sum()) / len(examples)


def predicted(model: Model, examples: Examples, device: torch.device) -> Tensor:
    """The class with the largest logit, for each example."""
    batches = (examples.images[start : start + EVALUATION_BATCH] for start in range(0, len(examples), EVALUATION_BATCH))
    return torch.cat([model.logits(images.to(device)).argmax(1).cpu() for images in batches])
