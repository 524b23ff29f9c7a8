"""Reads a user's own network as an architecture: whatever torch.fx can trace into layers that integers have."""

from __future__ import annotations

import logging
import math
import operator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, fx, nn

from prowd.errors import ConfigError
from prowd.nets.architecture import Architecture, weight_name
from prowd.nets.layers import IMAGES, Add, Conv, Flatten, Layer, Linear, MaxPool, Shape, Take
from prowd.nets.operations import ADDITIONS, FUNCTIONS, METHODS, NORMS, NOTHING, WEIGHTY, as_layers, refused

__all__ = ["Bias", "Reading", "describe", "read"]

log = logging.getLogger(__name__)
Bias = Literal["refuse", "drop"]
WeightModule = nn.Conv1d | nn.Conv2d | nn.Linear
Norm = nn.BatchNorm1d | nn.BatchNorm2d
SIZES: tuple[object, ...] = ("size", getattr, operator.getitem)  # what x.view(x.size(0), -1) asks for
FAILURES = (fx.proxy.TraceError, TypeError, ValueError, RuntimeError, AttributeError, LookupError, NotImplementedError)


@dataclass(frozen=True)
class Reading:
    """A network as an architecture, and where its weights are."""

    architecture: Architecture
    modules: dict[str, WeightModule]
    norms: dict[str, Norm]
    """The normalisations that follow a layer, by its name."""

    def weights(self) -> dict[str, Tensor]:
        """The effective weights of every layer: a batch norm's scale, from its statistics, is folded in."""
        found: dict[str, Tensor] = {}
        for layer in self.architecture.weight_layers:
            weight = self.modules[layer.name].weight.detach().float().cpu()
            norm = self.norms.get(layer.name)
            if norm is not None and norm.running_var is not None:
                scale = (norm.running_var.detach().float().cpu() + norm.eps).rsqrt()
                scale = scale if norm.weight is None else scale * norm.weight.detach().float().cpu()
                weight = weight * scale.reshape([-1] + [1] * (weight.dim() - 1))
            found[weight_name(layer)] = weight.reshape(layer.shape)
        return found


def describe(net: nn.Module, input_shape: tuple[int, int, int], bias: Bias = "refuse") -> Architecture:
    """The shape of a network; its weights do not matter."""
    return read(net, input_shape, bias).architecture


def read(net: nn.Module, input_shape: tuple[int, int, int], bias: Bias = "refuse", *, trained: bool = False) -> Reading:
    """Read a network. Batch normalisation is folded where its statistics are worth something: if it is trained."""
    if not isinstance(net, nn.Module):
        raise ConfigError(f"model: {net!r} is no network; accepted: a name, or an nn.Module")
    if bias not in ("refuse", "drop"):
        raise ConfigError(f"bias: {bias!r} is wrong; accepted: refuse, drop")
    try:
        graph = fx.Tracer().trace(net)
    except FAILURES as error:
        raise ConfigError(
            f"model: torch.fx cannot trace {type(net).__name__} ({error}); accepted: no branches on values"
        ) from None
    live: set[fx.Node] = set()  # nodes that the output depends on
    for node in reversed(graph.nodes):
        if node.op in ("output", "placeholder") or any(user in live for user in node.users):
            live.add(node)
    reader = _Reader(net, input_shape, trained)
    for node in graph.nodes:
        if node in live:
            reader.take(node)
    architecture = Architecture(tuple(reader.layers), input_shape)
    _check_biases(reader, bias)
    if reader.nothing:
        log.warning("model: %s read as nothing: it trains without dropout", ", ".join(reader.nothing))
    return Reading(architecture, reader.modules, reader.norms)


def _check_biases(reader: _Reader, bias: Bias) -> None:
    found = [path for path, module in reader.modules.items() if module.bias is not None or path in reader.norms]
    if found and bias == "refuse":
        folded = ", or one that a batch norm leaves when it is folded" if reader.norms else ""
        raise ConfigError(
            f"bias: {', '.join(found)} has a bias{folded}; low-bit layers have none; "
            "accepted: a network without, or bias='drop', which leaves them out"
        )


class _Reader:
    """Takes the nodes of a graph one by one, in order."""

    def __init__(self, net: nn.Module, input_shape: Shape, trained: bool) -> None:
        self.net, self.trained = net, trained
        self.layers: list[Layer] = []
        self.shapes: dict[int, Shape] = {IMAGES: input_shape}
        self.values: dict[fx.Node, int] = {}  # the number of the layer whose output a node is
        self.same: set[fx.Node] = set()  # nodes that give what they receive
        self.modules: dict[str, WeightModule] = {}
        self.norms: dict[str, Norm] = {}
        self.nothing: list[str] = []

    def take(self, node: fx.Node) -> None:
        """Add what a node is to the layers."""
        if node.op == "placeholder":
            if self.values:
                raise ConfigError(f"model: a second input {node.target!r}; accepted: one, the images")
            self.values[node] = IMAGES
        elif node.op == "output":
            (given,) = node.args
            if not isinstance(given, fx.Node) or self.values.get(given) != len(self.layers) - 1:
                raise ConfigError(f"model: it returns {given}; accepted: the logits, which its last layer gives")
        elif node.op != "call_module" and node.target in ADDITIONS:
            self._add(node)
        elif node.op != "call_module" and node.target in SIZES:
            pass  # a number; whoever receives it knows what it is
        elif node.op != "call_module" and node.target in ("view", "reshape", torch.reshape):
            self._reshape(node)
        else:
            path, module = self._module(node)
            self._take_module(node, path, module)

    def _module(self, node: fx.Node) -> tuple[str, nn.Module]:
        """The module that a node calls, or one that does what its function does."""
        if node.op == "call_module":
            return str(node.target), self.net.get_submodule(str(node.target))
        makers = METHODS if node.op == "call_method" else FUNCTIONS
        maker = makers.get(node.target)
        if maker is None:
            raise refused(node.name, getattr(node.target, "__name__", node.target))
        try:
            return node.name, maker(*node.args[1:], **{key: v for key, v in node.kwargs.items() if key != "input"})
        except TypeError as error:
            raise refused(node.name, f"{node.target} with {node.args[1:]}, {node.kwargs} ({error})") from None

    def _take_module(self, node: fx.Node, path: str, module: nn.Module) -> None:
        source = self._source(node)
        if isinstance(module, nn.ReLU):
            self._relu(node, path)
        elif isinstance(module, NORMS):
            self._norm(node, path, module)
        elif isinstance(module, NOTHING):
            self.nothing.append(f"{type(module).__name__} {path!r}")
        else:
            if isinstance(module, WEIGHTY):
                if path in self.modules:
                    raise ConfigError(
                        f"model: {path!r} is a layer used twice; accepted: weights of its own for each layer"
                    )
                self.modules[path] = module
            for layer in as_layers(path, module, self.shapes[source]):
                source = self._append(layer, source)
            self.values[node] = source
            return
        self.values[node] = source
        self.same.add(node)

    def _source(self, node: fx.Node) -> int:
        first = node.args[0] if node.args else node.kwargs.get("input")
        if not isinstance(first, fx.Node) or first not in self.values:
            raise ConfigError(f"model: {node.name!r} receives {first}; accepted: the output of a layer")
        return self.values[first]

    def _append(self, layer: Layer, source: int) -> int:
        """Add a layer that receives the output of a given one; its number."""
        if source != len(self.layers) - 1:
            self.layers.append(Take(source))
            self.shapes[len(self.layers) - 1] = self.shapes[source]
        self.layers.append(layer)
        self.shapes[len(self.layers) - 1] = layer.output(self.shapes[source])
        return len(self.layers) - 1

    def _add(self, node: fx.Node) -> None:
        operands = [self.values.get(part) if isinstance(part, fx.Node) else None for part in node.args]
        if len(operands) != 2 or None in operands or node.kwargs:
            raise ConfigError(f"model: {node.name!r} adds {node.args}; accepted: the outputs of two layers")
        one, other = (operand for operand in operands if operand is not None)
        if one != len(self.layers) - 1:
            one, other = other, one
        self.values[node] = self._append(Add(other), one)

    def _reshape(self, node: fx.Node) -> None:
        sizes = node.args[1:]
        if len(sizes) == 1 and isinstance(sizes[0], tuple | list):
            sizes = tuple(sizes[0])
        source = self._source(node)
        numbers = math.prod(self.shapes[source])
        if len(sizes) != 2 or sizes[1] not in (-1, numbers) or (sizes[1] == -1 and not isinstance(sizes[0], fx.Node)):
            raise refused(node.name, f"{node.target} to {sizes}", "view(x.size(0), -1), as Flatten does it")
        self.values[node] = self._append(Flatten(), source)

    def _relu(self, node: fx.Node, path: str) -> None:
        """Move a ReLU into the layer before it; max pooling in between commutes with it."""
        at = node.all_input_nodes[0]
        while True:
            number = self.values[at]
            layer = self.layers[number] if number != IMAGES else None
            if len(at.users) > 1:
                raise ConfigError(f"model: ReLU {path!r} follows {at.name!r}, which others use too; accepted: only it")
            if at not in self.same and isinstance(layer, Conv | Linear | Add):
                self.layers[number] = replace(layer, relu=True)
                return
            if at not in self.same and not isinstance(layer, MaxPool | Flatten):
                raise ConfigError(
                    f"model: ReLU {path!r} has no layer before it; accepted: a ReLU after a convolution, a linear layer"
                    " or an addition"
                )
            at = at.all_input_nodes[0]

    def _norm(self, node: fx.Node, path: str, norm: Norm) -> None:
        if not self.trained or norm.running_var is None:
            reason = "no batch norm: integers have none, and one that is not trained has no statistics to fold"
            raise refused(path, norm, reason)
        before = node.all_input_nodes[0]
        name = str(before.target)
        if before.op != "call_module" or name not in self.modules or len(before.users) > 1 or name in self.norms:
            raise refused(
                path, norm, "a batch norm right after a convolution or linear layer that nothing else follows"
            )
        self.norms[name] = norm
