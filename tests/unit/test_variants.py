"""Parts that ProWD-Plus might have had: each against what it says of itself, on numbers written out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from experiments.plus.variants import Feedback, HandOver, Momentum, PerWidth
from prowd.device.training import build_model, fit
from prowd.methods import ProWDPlus, ServerState
from prowd.methods.movement import best_ternary
from prowd.numbers.bits import FLOAT32, INT2
from prowd.numbers.quantize import QTensor, quantize
from prowd.wire import Update, encode_update

from .methods.test_baselines import played
from .scenes import INT4, INT8, asked, device, dot, scene

START = torch.tensor([[0.5, -0.5], [0.25, 0.0]])
GIVEN = scene(INT8, FLOAT32, architecture=dot())
STATE = ServerState(0, {"low/fc.weight": START / 2, "high/fc.weight": START, "high/fc.gain": torch.ones(2)})


def updates(low: float, high: float) -> list[Update]:
    """An Int8 client that moved by ±low in the first row, and a Float32 client that moved by ``high`` everywhere."""
    signs = torch.tensor([[1, -1], [0, 0]], dtype=torch.int16)
    weights = {"fc.weight": QTensor(START + high, FLOAT32), "fc.gain": QTensor(torch.ones(2), FLOAT32)}
    moved = {"fc.weight": QTensor(signs, INT2, 2 * low)}
    return [Update(1, 0, INT8, 12, moved), Update(1, 1, FLOAT32, 12, weights)]


def model(state: ServerState, side: str) -> Tensor:
    return state.model[f"{side}/fc.weight"]


def test_momentum_adds_a_share_of_the_last_step() -> None:
    plain = ProWDPlus().aggregate(GIVEN, STATE, updates(1 / 16, 1 / 8))
    first = Momentum(beta=0.5).aggregate(GIVEN, STATE, updates(1 / 16, 1 / 8))
    torch.testing.assert_close(first.model, plain.model)
    again = Momentum(beta=0.5).aggregate(GIVEN, ServerState(1, STATE.model, first.memory), updates(1 / 16, 1 / 8))
    for side in ("low", "high"):
        step = model(plain, side) - model(STATE, side)
        torch.testing.assert_close(model(again, side), model(STATE, side) + 1.5 * step)


def test_what_three_levels_cannot_say_is_said_later(tmp_path: Path) -> None:
    given, method = scene(INT8, steps=4), Feedback()
    client, plain = device(given.clients[0], tmp_path / "f"), device(given.clients[0], tmp_path / "p")
    task = asked(given, given.clients[0], method.dispatch(given, method.init(given), given.clients[0]))
    sent, expected = method.train(given, task, client), ProWDPlus().train(given, task, plain)
    assert encode_update(sent) == encode_update(expected), "nothing is left yet"
    left = client.memory.load(task.round + 1) or {}
    later = replace(task, round=task.round + 1)
    again = method.train(given, later, client)
    moved = build_model(given, INT8, task.weights, later)
    fit(moved, client.train, given, later)
    for name, trained in moved.weights().items():
        wanted = trained.codes.double() - task.weights[name].codes.double() + left[name].codes
        assert bool(left[name].codes.any()), "three levels leave something out"
        expected_message = best_ternary(wanted, INT8)
        assert torch.equal(again.weights[name].codes, expected_message.codes)
        assert again.weights[name].scale == expected_message.scale


def test_the_scale_of_the_pull_keeps_the_direction_of_three_levels() -> None:
    w = torch.linspace(-0.1, 0.1, 21).reshape(3, 7)  # Q_2 of it is zero: a plain pull would hand nothing over
    assert not quantize(w, INT2).codes.any()
    given = scene(INT8, FLOAT32, architecture=dot(7, 3))
    state = ServerState(0, {"low/fc.weight": torch.zeros(3, 7), "high/fc.weight": w, "high/fc.gain": torch.ones(3)})
    after = HandOver(pull=1.0).aggregate(given, state, [Update(1, 0, INT8, 12, {"fc.weight": still(3, 7)})])
    kept = quantize(after.model["low/fc.weight"], INT2).value().flatten()
    assert torch.cosine_similarity(kept, w.flatten(), 0) > 0.94
    torch.testing.assert_close(after.model["high/fc.weight"], w)


def still(*shape: int) -> QTensor:
    return QTensor(torch.zeros(shape, dtype=torch.int16), INT2, 0.25)


def test_of_two_widths_a_model_each_is_prowd_plus(tmp_path: Path) -> None:
    given = scene(INT8, INT8, FLOAT32, steps=4)
    plus, each = played(ProWDPlus(), given, tmp_path / "p"), played(PerWidth(), given, tmp_path / "e")
    for side, width in (("low", "int8"), ("high", "float32")):
        for name, tensor in plus.model.items():
            if name.startswith(f"{side}/"):
                torch.testing.assert_close(each.model[name.replace(f"{side}/", f"{width}/")], tensor)


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_movement_reaches_every_width_in_its_measure(moved: int) -> None:
    """Of Int4, Int8 and Float32 one alone moves, by 1/16: those below go with the mean of all above them, no other."""
    given = scene(INT4, INT8, FLOAT32, architecture=dot())
    widths = ("int4", "int8", "float32")
    state = ServerState(
        0, {f"{width}/fc.weight": torch.zeros(2, 2) for width in widths} | {"float32/fc.gain": torch.ones(2)}
    )
    steps = [1 / 16 if number == moved else 0.0 for number in range(3)]
    after = PerWidth(pull=0.0).aggregate(given, state, three(steps))
    for number, width in enumerate(widths):
        among = 1 if number == moved else 2 - number
        expected = torch.full((2, 2), 1 / 16 / among if number <= moved else 0.0)
        torch.testing.assert_close(after.model[f"{width}/fc.weight"], expected)


def three(steps: Sequence[float]) -> list[Update]:
    ones = torch.ones(2, 2, dtype=torch.int16)
    low = [QTensor(ones if step else 0 * ones, INT2, 2 * (step or 1 / 16)) for step in steps[:2]]
    weights = {"fc.weight": QTensor(torch.full((2, 2), steps[2]), FLOAT32), "fc.gain": QTensor(torch.ones(2), FLOAT32)}
    sent = [
        Update(1, n, width, 12, {"fc.weight": q}) for n, (width, q) in enumerate(zip((INT4, INT8), low, strict=True))
    ]
    return [*sent, Update(1, 2, FLOAT32, 12, weights)]
