"""Public rivals of our own method: each server's rule, derived by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from experiments.rivals.method import EDGE, LEVEL, FedAdam, FedAvgM, FedWsq, LptFl, Movements
from prowd.device.training import build_model, fit
from prowd.methods import FedAvg, Method, ServerState
from prowd.numbers.bits import FLOAT32
from prowd.numbers.quantize import QTensor
from prowd.wire import Update, encode_update

from .scenes import INT2, INT8, asked, device, dot, scene

GIVEN = scene(INT8, FLOAT32, architecture=dot())
START = torch.tensor([[0.5, -0.5], [0.25, 0.0]])
SIGNS = torch.tensor([[1, -1], [0, 1]])


def state(deviation: float | None = None) -> ServerState:
    known = {} if deviation is None else {"fc.weight/deviation": torch.tensor([deviation])}
    return ServerState(0, {"fc.weight": START, "fc.gain": torch.ones(2)}, known)


def updates(low: float, high: float) -> list[Update]:
    """An Int8 client that moved by ±low, and a Float32 client that moved by high and doubled its gains."""
    moved = QTensor(SIGNS.to(torch.int16), INT2, 2 * low)
    weights = {"fc.weight": QTensor(START + high, FLOAT32), "fc.gain": QTensor(torch.full((2,), 2.0), FLOAT32)}
    return [Update(1, 0, INT8, 12, {"fc.weight": moved}), Update(1, 1, FLOAT32, 12, weights)]


MEAN = (SIGNS / 8 + 1 / 4) / 2  # of updates(1/8, 1/4)


def after(method: Method, before: ServerState, sent: Sequence[Update]) -> tuple[Tensor, ServerState]:
    found = method.aggregate(GIVEN, before, sent)
    torch.testing.assert_close(found.model["fc.gain"], torch.full((2,), 2.0), msg="gains are averaged by any rule")
    return found.model["fc.weight"] - START, found


def test_momentum_keeps_some_of_the_last_direction() -> None:
    first, found = after(FedAvgM(beta=0.5, eta=0.5), state(), updates(1 / 8, 1 / 4))
    torch.testing.assert_close(first, 0.5 * MEAN)
    torch.testing.assert_close(found.memory["fc.weight"], MEAN)
    moved, found = after(FedAvgM(beta=0.5, eta=0.5), ServerState(1, state().model, found.memory), updates(1 / 8, 1 / 4))
    torch.testing.assert_close(moved, 0.5 * 1.5 * MEAN)
    torch.testing.assert_close(found.memory["fc.weight"], 1.5 * MEAN)


def test_adam_divides_by_how_far_a_weight_goes() -> None:
    """From d = 0 and v = τ²: d = m/2, v = (3·τ² + m²)/4, without a correction of bias."""
    method = FedAdam(eta=0.1, beta1=0.5, beta2=0.75, tau=0.125)
    moved, found = after(method, state(), updates(1 / 8, 1 / 4))
    second = (3 * 0.125**2 + MEAN**2) / 4
    torch.testing.assert_close(moved, 0.1 * (MEAN / 2) / (second.sqrt() + 0.125))
    moved, _ = after(method, ServerState(1, state().model, found.memory), updates(1 / 8, 1 / 4))
    again = 0.75 * second + MEAN**2 / 4
    torch.testing.assert_close(moved, 0.1 * (0.75 * MEAN) / (again.sqrt() + 0.125))


def test_a_moving_average_begins_with_the_first_model() -> None:
    moved, found = after(LptFl(alpha=0.75), state(), updates(1 / 8, 1 / 4))
    torch.testing.assert_close(moved, MEAN)
    assert not found.memory
    moved, _ = after(LptFl(alpha=0.75), ServerState(1, state().model), updates(1 / 8, 1 / 4))
    clients = [START + SIGNS / 8, START + 1 / 4]
    torch.testing.assert_close(START + moved, 0.75 * START + 0.25 * sum(clients) / 2)


def test_the_three_levels_are_the_best_for_a_normal_distribution() -> None:
    density = math.exp(-(EDGE**2) / 2) / math.sqrt(2 * math.pi)
    assert pytest.approx(density / (0.5 * math.erfc(EDGE / math.sqrt(2))), abs=1e-4) == LEVEL, (
        "the mean beyond the edge"
    )
    assert pytest.approx(LEVEL / 2) == EDGE, "as near to one level as to the other"


def test_deviations_are_shared_and_followed() -> None:
    """Own deviation 1/16; the movement is read with the shared one, 1/8, and that goes half of the way."""
    sent = updates(LEVEL / 16, 0.0)
    moved, found = after(FedWsq(beta=0.5), state(), sent)
    torch.testing.assert_close(moved, LEVEL / 16 * SIGNS / 2, msg="at first the client's own")
    torch.testing.assert_close(found.memory["fc.weight/deviation"], torch.tensor([1 / 16]))
    moved, found = after(FedWsq(beta=0.5), state(deviation=1 / 8), sent)
    torch.testing.assert_close(moved, LEVEL / 8 * SIGNS / 2)
    torch.testing.assert_close(found.memory["fc.weight/deviation"], torch.tensor([3 / 32]))
    alone, found = after(FedWsq(), state(deviation=1 / 8), sent[1:])
    assert not alone.any()
    torch.testing.assert_close(found.memory["fc.weight/deviation"], torch.tensor([1 / 8]))


@pytest.mark.parametrize("shared", [None, 1 / 64, 0.25])
def test_a_standardised_movement_has_the_nearest_level(shared: float | None, tmp_path: Path) -> None:
    given, method = scene(INT8, FLOAT32, steps=6), FedWsq()
    player = device(given.clients[0], tmp_path)
    start = method.init(given)
    names = given.architecture.shapes if shared else ()
    known = {f"{name}/deviation": torch.tensor([shared]) for name in names}
    task = asked(given, player.spec, method.dispatch(given, ServerState(1, start.model, known), player.spec))
    model = build_model(given, INT8, {name: task.weights[name] for name in given.architecture.shapes}, task)
    fit(model, player.train, given, task)
    for name, sent in method.train(given, task, player).weights.items():
        moved = model.weights()[name].value() - task.weights[name].value()
        sigma = float(moved.double().std(correction=0))
        assert sent.scale == pytest.approx(2 * LEVEL * sigma)
        levels = LEVEL * (shared or sigma) * torch.tensor([-1.0, 0.0, 1.0])
        nearest = (moved.flatten()[:, None] - levels).abs().argmin(1) - 1
        assert torch.equal(sent.codes.flatten().long(), nearest)


@pytest.mark.parametrize("method", [FedAvgM(), FedAdam(), LptFl(), FedWsq()], ids=lambda method: method.name)
def test_rivals_send_as_many_bytes(method: Method, tmp_path: Path) -> None:
    given = scene(INT8, FLOAT32)
    for spec in given.clients:
        sizes = set()
        for chosen in (method, FedAvg()):
            task = asked(given, spec, chosen.dispatch(given, chosen.init(given), spec))
            player = device(spec, tmp_path / chosen.name)
            sizes.add(len(encode_update(chosen.train(given, task, player))))
        assert len(sizes) == 1


def test_a_rule_is_a_rival_s_own() -> None:
    with pytest.raises(NotImplementedError):
        Movements().aggregate(GIVEN, state(), updates(1 / 8, 1 / 4))
