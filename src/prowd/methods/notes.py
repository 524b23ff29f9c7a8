"""What explains a round: figures that methods note down, for rounds.jsonl."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from prowd.device.scene import Scene
from prowd.methods import common
from prowd.methods.base import Notes
from prowd.numbers.bits import INT2
from prowd.numbers.quantize import encode
from prowd.wire import Update

__all__ = ["figure", "weight_notes"]

Values = Mapping[str, Tensor]


def weight_notes(
    scene: Scene, updates: Sequence[Update], sent: Sequence[Values], used: Sequence[Values] | None = None
) -> dict[str, Notes]:
    """Zeros of the clients' ternary weights, by width and tensor, and the drift between low-bit and high-bit clients.

    ``sent`` are the clients' weights as they came, in the order of their updates, and ``used`` what is averaged of
    them, if that is something else. The drift of a tensor is ‖w̄_Low − w̄_High‖ / ‖w̄_High‖.
    """
    names = list(scene.architecture.shapes)
    zeros: dict[str, Notes] = {}
    for width in sorted({update.width for update in updates if not update.width.is_float}):
        found = [value for update, value in zip(updates, sent, strict=True) if update.width == width]
        zeros[str(width)] = {name: figure(_zero_fraction([value[name] for value in found])) for name in names}
    low, high = common.side_averages(scene, updates, used or sent)
    drift = {name: figure(_distance(low[name], high[name])) for name in names} if low and high else {}
    return {"zeros": zeros, "drift": drift}


def _zero_fraction(tensors: Sequence[Tensor]) -> float:
    """Of Q_Int2, the weights that an integer network computes with."""
    zeros = sum(int((encode(tensor, INT2) == 0).sum()) for tensor in tensors)
    return zeros / sum(tensor.numel() for tensor in tensors)


def _distance(low: Tensor, high: Tensor) -> float:
    norm = float(torch.linalg.vector_norm(high.double()))
    return float(torch.linalg.vector_norm(low.double() - high.double())) / norm if norm else 0.0


def figure(value: float) -> float:
    """As many digits as anybody reads."""
    return round(value, 6)
