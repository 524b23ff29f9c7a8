"""Sums of integer products in floats, exactly.

A float32 holds every integer up to 2^24, so a sum of integer products is exact in any order while the sum of the
products' magnitudes stays within that. Each function here proves the bound from the operands, or splits them until it
holds: wide codes into two limbs of at most 8 bits, a batch into chunks; what still does not fit goes through float64,
and so do the weight gradients of wide codes, as matrix products: PyTorch's convolutions are slow in float64, its matrix
products are not. PyTorch must be left at its default float32 precision: bfloat16 or TF32 products, which a program can
switch on, hold 8 or 11 bits only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.nets.architecture import Conv, Linear, WeightLayer

__all__ = ["correlate", "correlate_transposed", "weight_gradient"]

FLOAT32_EXACT = 2**24
LIMB = 256
ROOM = 2**17  # float64s of the windows that are laid out at once: few enough to stay in a cache


def correlate(layer: WeightLayer, ternary: Tensor, codes: Tensor, largest: int) -> Tensor:
    """Σ t·a of a layer's forward pass: ternary weights t, input codes a with |a| ≤ largest."""
    terms = ternary[0].numel()
    return _split_sum(lambda part: _forward(layer, ternary.to(part.dtype), part), codes, largest, terms)


def correlate_transposed(
    layer: WeightLayer, ternary: Tensor, error: Tensor, largest: int, input_shape: torch.Size
) -> Tensor:
    """Σ t·e: the error of a layer's input from the error codes e of its output, |e| ≤ largest."""
    terms = ternary[:, 0].numel() // _groups(layer)
    return _split_sum(
        lambda part: _input_gradient(layer, ternary.to(part.dtype), part, input_shape), error, largest, terms
    )


def weight_gradient(layer: WeightLayer, codes: Tensor, error: Tensor, largest: int) -> Tensor:
    """Σ e·a over batch and positions, for error codes e and input codes a, both at most ``largest``."""
    if largest < LIMB:
        return _chunked_gradient(layer, codes, error)
    if isinstance(layer, Linear):
        return error.double().T @ codes.double()
    parts = zip(codes.chunk(layer.groups, 1), error.chunk(layer.groups, 1), strict=True)
    return torch.cat([_gradient_of_windows(_of_a_group(layer), a, e) for a, e in parts])


def _groups(layer: WeightLayer) -> int:
    return layer.groups if isinstance(layer, Conv) else 1


def _of_a_group(layer: Conv) -> Conv:
    """The convolution that each group is by itself."""
    sizes = layer.inputs // layer.groups, layer.outputs // layer.groups
    return replace(layer, inputs=sizes[0], outputs=sizes[1], groups=1)


def _gradient_of_windows(layer: Conv, codes: Tensor, error: Tensor) -> Tensor:
    """The weight gradient of a convolution in float64: errors times the windows they come from, some images at once."""
    (high, wide), (down, right) = layer.kernel, layer.padding
    inputs = F.pad(codes.permute(0, 2, 3, 1), (0, 0, right, right, down, down)).double()
    errors = error.permute(0, 2, 3, 1).double()
    window = high * wide * layer.inputs
    total = torch.zeros(layer.outputs, window, dtype=torch.float64, device=error.device)
    images = max(1, ROOM // (math.prod(errors.shape[1:3]) * window))
    for some, their in zip(torch.split(inputs, images), torch.split(errors, images), strict=True):
        windows = some.unfold(1, high, layer.stride[0]).unfold(2, wide, layer.stride[1])  # [..., input, high, wide]
        total.addmm_(their.reshape(-1, layer.outputs).T, windows.permute(0, 1, 2, 4, 5, 3).reshape(-1, window))
    return total.reshape(layer.outputs, high, wide, layer.inputs).permute(0, 3, 1, 2).contiguous()


def _limbs(codes: Tensor) -> list[tuple[Tensor, int]]:
    """Codes of at most 16 bits as Σ limb·factor with every |limb| ≤ 128."""
    high = torch.round(codes / LIMB)
    return [(codes - LIMB * high, 1), (high, LIMB)]


def _split_sum(operation: Callable[[Tensor], Tensor], codes: Tensor, largest: int, terms: int) -> Tensor:
    """Apply an operation that sums ``terms`` codes, each taken −1, 0 or 1 times."""
    if terms * largest <= FLOAT32_EXACT:
        return operation(codes)
    if terms * LIMB > FLOAT32_EXACT:
        return operation(codes.double())
    (low, _), (high, factor) = _limbs(codes)
    return operation(low).double() + operation(high).double() * factor


def _chunked_gradient(layer: WeightLayer, codes: Tensor, error: Tensor) -> Tensor:
    """Sum the gradients of as many equal parts of the batch as keep each of them exact in float32.

    |Σ e·a| ≤ max|a| · Σ|e|, per output channel. A float32 sum of magnitudes that reads below 2^24 is itself exact.
    """
    batch = error.shape[0]
    largest = float(codes.abs().amax()) if codes.numel() else 0.0
    magnitude = error.abs().reshape(batch, error.shape[1], -1).sum(2)  # Σ|e| of an image and channel
    chunks = 1
    while True:
        size = -(-batch // chunks)
        bound = max((float(part.sum(0).amax()) for part in torch.split(magnitude, size)), default=0.0) * largest
        if bound < FLOAT32_EXACT:
            break
        if size == 1:
            return _weight_gradient(layer, codes.double(), error.double())
        chunks = min(batch, max(2 * chunks, int(chunks * bound / FLOAT32_EXACT)))
    if size >= batch:
        return _weight_gradient(layer, codes, error)
    parts = zip(torch.split(codes, size), torch.split(error, size), strict=True)
    return torch.stack([_weight_gradient(layer, a, e) for a, e in parts]).sum(0, dtype=torch.float64)


# The three products themselves. Off the CPU, libraries may choose Winograd or FFT convolutions, which are not exact on
# integers; there a convolution is written as the matrix product it is.


def _forward(layer: WeightLayer, weight: Tensor, inputs: Tensor) -> Tensor:
    if isinstance(layer, Linear):
        return inputs @ weight.T
    if inputs.device.type == "cpu":
        with torch.backends.nnpack.flags(enabled=False):  # Winograd, where PyTorch was built without oneDNN
            return F.conv2d(inputs, weight, stride=layer.stride, padding=layer.padding, groups=layer.groups)
    output = layer.output(tuple(inputs.shape[1:]))
    parts = zip(weight.flatten(1).chunk(layer.groups), inputs.chunk(layer.groups, 1), strict=True)
    sums = [w @ _columns(layer, a) for w, a in parts]
    return torch.cat(sums, 1).reshape(inputs.shape[0], *output)


def _input_gradient(layer: WeightLayer, weight: Tensor, error: Tensor, shape: torch.Size) -> Tensor:
    if isinstance(layer, Linear):
        return error @ weight
    if error.device.type == "cpu":
        blank = torch.empty(1, dtype=error.dtype).expand(shape)  # only its shape is read
        return _convolution_backward(layer, error, blank, weight)[0]
    parts = zip(weight.flatten(1).chunk(layer.groups), error.flatten(2).chunk(layer.groups, 1), strict=True)
    columns = torch.cat([w.T @ e for w, e in parts], 1)
    return F.fold(columns, shape[2:], layer.kernel, padding=layer.padding, stride=layer.stride)


def _weight_gradient(layer: WeightLayer, inputs: Tensor, error: Tensor) -> Tensor:
    if isinstance(layer, Linear):
        return error.T @ inputs
    if error.device.type == "cpu":
        blank = torch.empty(1, dtype=error.dtype).expand(layer.shape)  # only its shape is read
        return _convolution_backward(layer, error, inputs, blank, of_weight=True)[1]
    parts = zip(error.flatten(2).chunk(layer.groups, 1), inputs.chunk(layer.groups, 1), strict=True)
    return torch.cat([torch.einsum("bop,bkp->ok", e, _columns(layer, a)) for e, a in parts]).reshape(layer.shape)


def _columns(layer: Conv, inputs: Tensor) -> Tensor:
    return F.unfold(inputs, layer.kernel, padding=layer.padding, stride=layer.stride)


def _convolution_backward(
    layer: Conv, error: Tensor, inputs: Tensor, weight: Tensor, *, of_weight: bool = False
) -> tuple[Tensor, Tensor]:
    both: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        error, inputs, weight, None, layer.stride, layer.padding, (1, 1), False, (0, 0), layer.groups,
        (not of_weight, of_weight, False),
    )  # fmt: skip
    return both[:2]
