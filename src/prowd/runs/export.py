"""Takes a trained network away from prowd: as a module of PyTorch, or as a header for ``embedded/core``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from prowd.errors import ConfigError
from prowd.nets.architecture import (
    Add,
    AvgPool,
    Conv,
    Flatten,
    Linear,
    MaxPool,
    Take,
    WeightLayer,
    alpha,
    fan_in,
    weight_name,
)
from prowd.nets.float32 import FloatModel, FloatSettings, normalised
from prowd.nets.inputs import code_table
from prowd.numbers.quantize import ternary
from prowd.runs.trained import Trained

FLOAT32_EXACT = 2**24

__all__ = ["check_exact", "computed_with", "export_c", "export_torch", "identifier"]


def computed_with(trained: Trained) -> list[Tensor]:
    """What each layer multiplies with: effective weights at Float32, ternary ones at integer widths."""
    names = [weight_name(layer) for layer in trained.architecture.weight_layers]
    if not trained.width.is_float:
        return [ternary(trained.weights[name].codes.float(), trained.width) for name in names]
    model = FloatModel(trained.architecture, trained.weights, FloatSettings(), torch.device("cpu"))
    return [normalised(v, g).detach() for v, g in zip(model.vectors, model.gains, strict=True)]


def identifier(layer: WeightLayer) -> str:
    """A layer's name as a name of Python and C."""
    return "w_" + re.sub(r"\W", "_", layer.name)


def check_exact(trained: Trained) -> None:
    """Float32 holds integers up to 2^24: beyond that the sums of wide codes would be rounded."""
    if trained.width.is_float:
        return
    for layer in trained.architecture.layers:
        terms = fan_in(layer) if isinstance(layer, Conv | Linear) else 0
        terms = layer.kernel[0] * layer.kernel[1] if isinstance(layer, AvgPool) else terms
        if terms * trained.width.max_code > FLOAT32_EXACT:
            reason = f"sums of {terms} codes of {trained.width} pass 2^24, which float32 holds"
            raise ConfigError(f"width: {reason} ({layer}); accepted: a narrower one, or --to c")


# --- PyTorch ----------------------------------------------------------------------------------------------------------

MODULE = '''"""A network trained by prowd, {width}, for {dtype} images of shape (N, {shape}). It needs PyTorch only."""

from pathlib import Path

import torch
import torch.nn.functional as F


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
{parameters}

    def forward(self, images):
{body}


def load(path=Path(__file__).with_suffix(".pt")):
    net = Net()
    net.load_state_dict(torch.load(path, weights_only=True))
    return net.eval()
'''


def export_torch(trained: Trained, folder: Path) -> list[Path]:
    """Write net.py, a module that needs nothing of prowd, and net.pt, its state dict."""
    check_exact(trained)
    weights = dict(zip(map(identifier, trained.architecture.weight_layers), computed_with(trained), strict=True))
    parameters = [f"self.{name} = torch.nn.Parameter(torch.zeros{tuple(w.shape)})" for name, w in weights.items()]
    state = dict(weights)
    if not trained.width.is_float:
        parameters.append('self.register_buffer("codes", torch.zeros(256))')
        state["codes"] = code_table(trained.width, trained.images).float()
    text = MODULE.format(
        width=trained.width,
        dtype=str(trained.images).removeprefix("torch."),
        shape=", ".join(map(str, trained.architecture.input_shape)),
        parameters=_indented(parameters),
        body=_indented(_statements(trained)),
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.py").write_text(text, "utf-8")
    torch.save(state, folder / "net.pt")
    return [folder / "net.py", folder / "net.pt"]


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(" " * 8 + line for line in lines)


def _statements(trained: Trained) -> list[str]:
    """One line of Python for each layer."""
    exact, top = not trained.width.is_float, 0 if trained.width.is_float else trained.width.max_code
    scale = "images.float() / 127.5 - 1" if trained.images == torch.uint8 else "images.float() / 128"
    found = [f"x_1 = {'self.codes[images.view(torch.uint8).long()]' if exact else scale}"]
    for number, layer in enumerate(trained.architecture.layers):
        x = f"x{number - 1}" if number else "x_1"
        if isinstance(layer, Conv):
            options = f"stride={layer.stride}, padding={layer.padding}, groups={layer.groups}"
            value = f"F.conv2d({x}, self.{identifier(layer)}, {options})"
        elif isinstance(layer, Linear):
            value = f"F.linear({x}, self.{identifier(layer)})"
        elif isinstance(layer, MaxPool):
            value = f"F.max_pool2d({x}, {layer.kernel}, {layer.stride})"
        elif isinstance(layer, AvgPool):
            value = f"F.avg_pool2d({x}, {layer.kernel}, {layer.stride})"
            value = f"torch.round({value})" if exact else value
        elif isinstance(layer, Flatten):
            value = f"{x}.flatten(1)"
        elif isinstance(layer, Take):
            value = _named(layer.source)
        else:
            value = f"{x} + {_named(layer.source)}"
        if isinstance(layer, Conv | Linear | Add):
            if exact and not isinstance(layer, Add):
                value = f"torch.round({value} / {2 * alpha(layer):g})"
            if exact:
                value = f"({value}).clamp({0 if layer.relu else -top}, {top})"
            elif layer.relu:
                value = f"F.relu({value})"
        found.append(f"x{number} = {value}")
    return [*found, f"return x{len(trained.architecture.layers) - 1}"]


def _named(source: int) -> str:
    return "x_1" if source < 0 else f"x{source}"


# --- C ----------------------------------------------------------------------------------------------------------------

HEADER = """/* A network trained by prowd, {width}, for embedded/core: {classes} classes, images {shape}. */
#ifndef PROWD_NET_H
#define PROWD_NET_H

#include "prowd.h"

enum {{ NET_INPUTS = {inputs}, NET_CLASSES = {classes}, NET_CONVOLUTIONS = {count} }};

/* The code of every byte of an image ({dtype}). */
static const int16_t net_table[256] = {{
{table}
}};

/* Weights as codes; learning changes them in place. */
{weights}
static int16_t *const net_weights[NET_CONVOLUTIONS] = {{{names}}};

static const prowd_layer net_layers[] = {{
{layers}
}};

static const prowd_net net = {{{bits}, sizeof net_layers / sizeof *net_layers, net_layers}};

#endif
"""


def export_c(trained: Trained, folder: Path) -> list[Path]:
    """Write net.h: shapes, shifts, and weights as codes."""
    from prowd.nets.lowbit.c99 import describe

    if trained.width.is_float:
        raise ConfigError(f"width: {trained.width} has no codes for C; accepted: int2 to int16")
    architecture = trained.architecture
    named = {identifier(layer): trained.weights[weight_name(layer)].codes for layer in architecture.weight_layers}
    text = HEADER.format(
        width=trained.width,
        bits=trained.width.bits,
        classes=architecture.classes,
        shape="x".join(map(str, architecture.input_shape)),
        inputs=torch.Size(architecture.input_shape).numel(),
        count=len(named),
        dtype=str(trained.images).removeprefix("torch."),
        table=_rows(code_table(trained.width, trained.images).tolist()),
        weights="\n".join(f"static int16_t {n}[] = {{\n{_rows(c.flatten().tolist())}\n}};" for n, c in named.items()),
        names=", ".join(named),
        layers="\n".join(f"    {{{', '.join(map(str, facts))}}}," for facts in describe(architecture)),
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.h").write_text(text, "utf-8")
    return [folder / "net.h"]


def _rows(numbers: Sequence[int], width: int = 20) -> str:
    rows = (numbers[at : at + width] for at in range(0, len(numbers), width))
    return "\n".join("    " + ", ".join(map(str, row)) + "," for row in rows)
