"""A federation of ten in which some send something else than they made."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from prowd.device.scene import Defence
from prowd.federation.engine import Federation, run_round
from prowd.federation.report import RoundReport
from prowd.methods import FedAvg, Method, ServerState
from prowd.nets import Architecture, Conv, Flatten, Linear
from prowd.numbers.bits import FLOAT32
from prowd.numbers.quantize import QTensor
from prowd.wire import Update, decode_update, encode_update
from tests.unit.scenes import INT8, FakeTransport, honest, scene

TEN = (*[INT8] * 5, *[FLOAT32] * 5)
LOW, HIGH = 0, 9
OFF = Defence(cap=None, clip=None)
Change = Callable[[Update], Update]


def ten(method: Method | None = None, **changes: object) -> Federation:
    """Five Int8 and five Float32 clients, with a layer that φ takes."""
    layers = (Conv("a", 2, 4), Conv("b", 4, 8), Flatten(), Linear("fc", 8 * 64, 3, relu=False))
    made = scene(*TEN, architecture=Architecture(layers, (2, 8, 8)), steps=4)
    given = replace(made, buffer=torch.zeros(6, 2, 8, 8), **changes)  # type: ignore[arg-type]
    return Federation(given, method or FedAvg(), 3, len(TEN))


def play(given: Federation, folder: Path, bad: dict[int, Change], rounds: int = 1) -> tuple[RoundReport, ServerState]:
    """Rounds in which some clients send something else than they made; the last report, and the state."""
    answer = honest(given.scene, given.method, folder)

    def answers(client: int, message: bytes) -> bytes | None:
        reply = answer(client, message)
        return encode_update(bad[client](decode_update(reply))) if client in bad and reply is not None else reply

    state = given.method.init(given.scene)
    for _ in range(rounds):
        report, state = run_round(given, state, FakeTransport(answers))
    return report, state


def every(change: Callable[[QTensor], QTensor], *names: str) -> Change:
    """Change all tensors of an update, or some."""

    def changed(update: Update) -> Update:
        weights = {n: change(t) if not names or n in names else t for n, t in update.weights.items()}
        return replace(update, weights=weights)

    return changed


def times(factor: float) -> Callable[[QTensor], QTensor]:
    return lambda tensor: replace(tensor, codes=factor * tensor.codes)


def constant(value: float) -> Callable[[QTensor], QTensor]:
    return lambda tensor: replace(tensor, codes=torch.full_like(tensor.codes, value))


def ones(tensor: QTensor) -> QTensor:
    """As near to +1 as a width has it."""
    code = 1 if tensor.width.is_float else tensor.width.max_code
    return QTensor(torch.full_like(tensor.codes, code), tensor.width)


def distance(one: ServerState, other: ServerState) -> float:
    return math.sqrt(sum(float((one.model[n] - other.model[n]).double().square().sum()) for n in one.model))
