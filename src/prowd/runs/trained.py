"""Trained networks at any width: the model that a run came to, and one of PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from prowd.config.schema import load_config
from prowd.device.scene import ClientSpec, Scene
from prowd.device.training import EVALUATION_BATCH, Model, build_model
from prowd.errors import ConfigError, DataError
from prowd.methods import Method, ServerState, common
from prowd.nets import Architecture
from prowd.nets.tracing import Bias, read
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Weights, quantize
from prowd.runs.build import as_arrays, as_used, assemble, load_data
from prowd.runs.directory import last_state
from prowd.wire import Task

__all__ = ["Trained", "convert", "load", "model_at"]


@dataclass(frozen=True)
class Trained:
    """A network with the weights that a client of its width would be sent next."""

    architecture: Architecture
    width: Bitwidth
    weights: Weights
    images: torch.dtype
    """What it was trained on: uint8, or int8 codes."""
    model: Model

    def logits(self, images: Tensor | ArrayLike) -> Tensor:
        """Logits of images of bytes, NCHW; at integer widths by exact integer arithmetic."""
        given = images if isinstance(images, Tensor) else torch.as_tensor(images)
        if given.dtype != self.images or given.shape[1:] != self.architecture.input_shape:
            found = f"{given.dtype} of shape {tuple(given.shape)}"
            raise DataError(f"images: {found}; accepted: {self.images} of shape (N, *{self.architecture.input_shape})")
        return torch.cat([self.model.logits(part) for part in torch.split(given, EVALUATION_BATCH)])

    def predict(self, images: Tensor | ArrayLike) -> Tensor:
        """The class of each image."""
        return self.logits(images).argmax(1)


def load(path: str | Path, width: str | Bitwidth = "float32", *, data: object = None) -> Trained:
    """Load what a run came to, at a width: one of its clients', as they are sent it, or any other.

    A run on arrays needs them again as ``data``: its network follows from their shape.
    """
    folder, target = Path(path), Bitwidth.parse(width) if isinstance(width, str) else width
    state, config = last_state(folder), load_config(folder / "config.toml")
    dataset = as_used(config, load_data(config, as_arrays(data)))
    federation = assemble(config, dataset).federation
    scene = federation.scene
    weights = model_at(federation.method, scene, state, target)
    model = build_model(scene, target, weights, Task(0, scene.seed, 0, weights, work=scene.work(target, 1)))
    return Trained(scene.architecture, target, weights, dataset.x_train.dtype, model)


def model_at(method: Method, scene: Scene, state: ServerState, width: Bitwidth) -> Weights:
    """The model that a client of a width would be sent next, or the shared one, quantized."""
    for client in scene.clients:
        if client.width == width:
            found = method.dispatch(scene, state, client)
            break
    else:
        client = ClientSpec(0, width, 1)
        names = [name for name in common.model_slots(scene, client) if name in state.model]
        found = {name: quantize(state.model[name], width) for name in names}
    missing = [name for name in scene.architecture.shapes if name not in found]
    if missing:
        reason = f"{method.name} has no model of {width} on the server ({missing[0]} is missing)"
        raise ConfigError(f"width: {reason}; accepted: a width of its clients, of a method that has a shared model")
    return found


def convert(
    net: nn.Module,
    width: str | Bitwidth,
    input_shape: tuple[int, int, int],
    *,
    bias: Bias = "refuse",
    device: str = "cpu",
) -> Model:
    """Convert a network to a width, weights included, and return it with ``step``, ``logits`` and ``weights``.

    Images are bytes, uint8 or int8 codes, at every width.
    Weights enter the space that all widths share as α·w, where they are quantized; at Float32 the function of the
    network is unchanged. Batch norms are folded. What a network has of biases, or gets by that, is refused, unless
    ``bias="drop"`` leaves them out.
    """
    reading = read(net, input_shape, bias, trained=True)
    architecture = reading.architecture
    target = Bitwidth.parse(width) if isinstance(width, str) else width
    found = reading.weights().items()
    weights = {name: quantize(w * alpha, target) for (name, w), alpha in zip(found, architecture.alphas, strict=True)}
    scene = Scene(architecture, (), device=torch.device(device))
    return build_model(scene, target, weights, Task(0, scene.seed, 0, weights, work=scene.work(target, 0)))
