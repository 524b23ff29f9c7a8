"""The weights that a run begins with, where they are not random: of a trained network, a file, or another run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from prowd.config.options import make_method
from prowd.config.schema import GIVEN, RANDOM, RunConfig, load_config
from prowd.device.scene import ClientSpec, Scene
from prowd.errors import ConfigError
from prowd.nets import Architecture
from prowd.nets.architecture import gain_name, weight_name
from prowd.nets.tracing import Bias, Reading
from prowd.numbers.bits import FLOAT32, parse_mix
from prowd.runs.build import Start
from prowd.runs.directory import START, last_state, weights_hash
from prowd.runs.trained import model_at

__all__ = ["checked", "encode", "kept", "of_network", "read_start", "start_of", "with_given"]

SHARED = {"prowd": "weights as they are shared: v, and gains"}  # how a file says that it has no plain state dict


def start_of(config: RunConfig, architecture: Architecture) -> dict[str, Tensor]:
    """What the setting ``init`` names, as shared weights; nothing where they are random."""
    if config.init == RANDOM:
        return {}
    if config.init == GIVEN:
        accepted = f"prowd.run(model=net, keep_weights=True) again, or the file {START} of that run"
        raise ConfigError(f"init: {GIVEN!r} are the weights of a network given in Python; accepted: {accepted}")
    path = Path(config.init)
    found = _of_run(path, architecture) if path.is_dir() else read_start(path, architecture, config.bias)
    return {name: tensor.float().contiguous() for name, tensor in found.items()}


def of_network(reading: Reading) -> dict[str, Tensor]:
    """The weights of a network: α·w, as ``prowd.convert`` brings them into the space that all widths share."""
    return _shared(reading.architecture, reading.weights())


def read_start(path: Path, architecture: Architecture, bias: Bias = "refuse") -> dict[str, Tensor]:
    """The weights in a file: the plain state dict of a trained network, or what a run has kept of its own start."""
    try:
        with safe_open(path, "pt") as file:
            found, is_shared = {name: file.get_tensor(name) for name in file.keys()}, file.metadata() == SHARED  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"init: {path} cannot be read: {error}; accepted: a .safetensors file, a run") from error
    if not is_shared:
        found = {name: tensor for name, tensor in found.items() if bias == "refuse" or not name.endswith(".bias")}
        shapes = architecture.shapes
        found = {name: t.reshape(shapes[name]) if _fits(t, shapes.get(name, ())) else t for name, t in found.items()}
    _check(found, architecture, str(path), gains=is_shared)
    return found if is_shared else _shared(architecture, found)


def with_given(settings: Mapping[str, Any], net: object) -> dict[str, Any]:
    """Settings of a run that keeps the weights of a network."""
    if not isinstance(net, nn.Module):
        raise ConfigError(f"keep_weights: the model is {net!r}; accepted: with a network, an nn.Module, as model")
    if "init" in settings:
        raise ConfigError(f"init: {settings['init']!r} goes not with keep_weights=True; accepted: one of them")
    return {**settings, "init": GIVEN}


def kept(config: RunConfig, path: Path, architecture: Architecture) -> dict[str, Tensor]:
    """What a run that goes on began with."""
    found = {} if config.init == RANDOM else read_start(path / START, architecture)
    checked(config, found)
    return found


def checked(config: RunConfig, start: Start) -> RunConfig:
    """Record the hash of the weights that a run begins with, or hold them to the one recorded."""
    digest = weights_hash(start) if start else ""
    if config.init_sha256 and config.init_sha256 != digest:
        raise ConfigError(f"init: {config.init} has changed; accepted: weights of hash {config.init_sha256}")
    return config.model_copy(update={"init_sha256": digest})


def encode(start: Start) -> bytes:
    """A file that ``read_start`` reads."""
    data: bytes = save({name: tensor.contiguous() for name, tensor in start.items()}, SHARED)
    return data


def _of_run(path: Path, architecture: Architecture) -> dict[str, Tensor]:
    """What a run came to: the shared model, or that of its Float32 clients."""
    state, config = last_state(path), load_config(path / "config.toml")
    clients = tuple(ClientSpec(n, width, 1) for n, width in enumerate(parse_mix(config.clients)))
    missing = [one for one in architecture.shapes if not any(f"/{name}".endswith(f"/{one}") for name in state.model)]
    if missing:
        raise ConfigError(f"init: {path} has no {missing[0]}; accepted: a run of the same network")
    sent = model_at(make_method(config.method, config.options), Scene(architecture, clients), state, FLOAT32)
    found = {name: tensor.value() for name, tensor in sent.items()}
    _check(found, architecture, str(path), gains=True)
    return found


def _shared(architecture: Architecture, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    pairs = zip(architecture.weight_layers, architecture.alphas, strict=True)
    return {weight_name(layer): alpha * weights[weight_name(layer)].float() for layer, alpha in pairs}


def _fits(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether it has the shape; kernels of one dimension are those of two with one column."""
    return tuple(tensor.shape) == shape or (*tensor.shape, 1) == shape


def _check(found: Start, architecture: Architecture, where: str, *, gains: bool) -> None:
    shapes = dict(architecture.shapes)
    optional = {gain_name(layer): (layer.outputs,) for layer in architecture.weight_layers} if gains else {}
    for name, tensor in found.items():
        accepted = (shapes | optional).get(name)
        if tuple(tensor.shape) != accepted:
            wanted = f"shape {accepted}" if accepted else f"{', '.join(shapes)} and nothing else"
            raise ConfigError(f"init: {where} has {name} of shape {tuple(tensor.shape)}; accepted: {wanted}")
        if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
            raise ConfigError(f"init: {name} of {where} is {tensor.dtype}, not all finite; accepted: finite floats")
    if missing := [name for name in shapes if name not in found]:
        raise ConfigError(f"init: {where} lacks {missing[0]}; accepted: {', '.join(shapes)}")
