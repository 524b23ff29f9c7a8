"""What a client does in a round, the start that all share, and clients that train alone."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prowd.device.scene import ClientSpec, Scene
from prowd.device.training import accuracy, build_model, fit
from prowd.methods import FedAvg, Local, Method
from prowd.methods.common import MEASURE_RECEIVED, MEASURE_TRAINED, initial_state
from prowd.nets import Architecture, Conv, Flatten, Linear
from prowd.nets.float32 import FloatModel
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.numbers.quantize import QTensor, Weights
from tests.unit.scenes import INT8, asked, device, same, scene

from .test_methods import play, update, values, with_local_gains


@pytest.mark.parametrize("method", [FedAvg(), Local()], ids=lambda method: method.name)
@pytest.mark.parametrize("width", [INT8, FLOAT32], ids=str)
def test_rates_fall_along_a_cosine(method: Method, width: Bitwidth, tmp_path: Path) -> None:
    given = scene(width, steps=5)
    falling = replace(given, local=replace(given.local, horizon=3))
    player, start = device(given.clients[0], tmp_path), method.init(given)
    for round_, pace in ((1, 1.0), (2, 0.75), (3, 0.25)):
        task = asked(given, player.spec, FedAvg().dispatch(given, start, player.spec), round_, pace)
        model = build_model(given, width, task.weights, task)
        loss = fit(model, player.train, given, task)
        fresh = device(given.clients[0], tmp_path / str(round_))  # one that has no model of its own yet
        sent = play(method, falling, fresh, replace(start, round=round_ - 1))
        assert sent.metrics["loss"] == loss
    assert [falling.local.pace(round_) for round_ in (1, 2, 3)] == pytest.approx([1.0, 0.75, 0.25])
    assert {given.local.pace(round_) for round_ in (1, 2, 1000)} == {1.0}


@pytest.mark.parametrize("measures", [(), (MEASURE_RECEIVED,), (MEASURE_TRAINED,), (MEASURE_RECEIVED, MEASURE_TRAINED)])
def test_measures_what_the_task_asks_for(measures: tuple[str, ...], tmp_path: Path) -> None:
    given = scene(INT8, steps=20)
    player, start = device(given.clients[0], tmp_path), FedAvg().init(given)
    metrics = play(FedAvg(), given, player, start, **dict.fromkeys(measures, 1.0)).metrics
    task = asked(given, player.spec, FedAvg().dispatch(given, start, player.spec))
    model = build_model(given, INT8, task.weights, task)
    before = accuracy(model, player.test, given.device)
    fit(model, player.train, given, task)
    after = accuracy(model, player.test, given.device)
    assert before != after
    assert metrics.get("accuracy_received") == (before if MEASURE_RECEIVED in measures else None)
    assert metrics.get("accuracy_trained") == (after if MEASURE_TRAINED in measures else None)


def test_local_gains_stay_on_the_device_across_rounds(tmp_path: Path) -> None:
    given = with_local_gains(scene(FLOAT32))
    player, start = device(given.clients[0], tmp_path), FedAvg().init(given)
    first = play(FedAvg(), given, player, start)
    assert list(first.weights) == list(given.architecture.shapes)
    kept = player.memory.load(before=2)
    assert kept is not None
    assert list(kept) == ["conv.gain", "fc.gain"]
    assert not torch.equal(kept["fc.gain"].codes, start.model["fc.gain"]), "the gains have not been trained"
    # Round 2 begins with the server's new weights and the gains of round 1.
    second = replace(FedAvg().aggregate(given, start, [first]), round=1)
    received = FedAvg().dispatch(given, second, player.spec)
    model = FloatModel(given.architecture, {**received, **kept}, given.local.float32, given.device)
    fit(model, player.train, given, asked(given, player.spec, received, 2))
    for _ in range(2):  # and again, as after a crash: the outcome of round 2 is not read in round 2
        assert same(
            values(play(FedAvg(), given, player, second).weights), values({n: model.weights()[n] for n in received})
        )
        after = player.memory.load(before=3)
        assert after is not None
        assert torch.equal(after["fc.gain"].codes, model.weights()["fc.gain"].codes)


# The shared start


def test_initial_model_is_uniform_within_the_limit_and_keyed_by_layer() -> None:
    layers = (Conv("conv", 64, 64), Flatten(), Linear("fc", 64 * 4, 2, relu=False))
    given = Scene(Architecture(layers, (64, 2, 2)), (ClientSpec(0, FLOAT32, 1),), seed=5)
    assert list(initial_state(replace(given, clients=())).model) == ["conv.weight", "fc.weight"], "gains for nobody"
    first = initial_state(given)
    weight = first.model["conv.weight"]
    assert first.round == 0
    assert float(weight.abs().max()) <= 0.75
    assert float(weight.abs().max()) > 0.749
    # 36,864 draws: the mean of U(−L, L) is 0 ± 0.0023, its mean square L²/3 ± 0.0009.
    assert abs(float(weight.mean())) < 0.01
    assert float(weight.square().mean()) == pytest.approx(0.75**2 / 3, abs=0.004)
    torch.testing.assert_close(first.model["conv.gain"], weight.flatten(1).norm(dim=1) / 8)  # fan-in 576: α = 8
    alone = Architecture((Flatten(), Linear("fc", 64 * 4, 2, relu=False)), (64, 2, 2))
    assert torch.equal(initial_state(replace(given, architecture=alone)).model["fc.weight"], first.model["fc.weight"])
    assert not torch.equal(initial_state(replace(given, seed=6)).model["fc.weight"], first.model["fc.weight"])
    twins = (Flatten(), Linear("one", 4, 4), Linear("two", 4, 4), Linear("fc", 4, 2, relu=False))
    model = initial_state(replace(given, architecture=Architecture(twins, (1, 2, 2)))).model
    assert not torch.equal(model["one.weight"], model["two.weight"])
    assert 0.75 < float(model["one.weight"].abs().max()) <= math.sqrt(3 / 4)  # L = √(3/fan-in) here


# Local training


def test_local_shares_nothing() -> None:
    given = scene(INT8, FLOAT32)
    start = Local().init(given)
    for spec in given.clients:
        assert Local().dispatch(given, start, spec) == {}
        assert Local().expects(given, spec) == {}
    assert Local().aggregate(given, start, [update(given.clients[0], {})]) is start
    assert same(start.model, FedAvg().init(given).model)


@pytest.mark.parametrize("gains", ["average", "local"])
@pytest.mark.parametrize("width", [INT8, FLOAT32], ids=str)
def test_local_goes_on_from_its_own_weights(width: Bitwidth, gains: str, tmp_path: Path) -> None:
    given = scene(width, steps=5)
    given = with_local_gains(given) if gains == "local" else given
    player, state = device(given.clients[0], tmp_path), Local().init(given)
    weights: Weights = FedAvg().dispatch(given, state, player.spec)
    for round_ in (1, 2, 3):
        sent = play(Local(), given, player, replace(state, round=round_ - 1))
        assert sent.weights == {}
        task = asked(given, player.spec, weights, round_)
        model = build_model(given, width, weights, task)
        assert sent.metrics["loss"] == fit(model, player.train, given, task)
        weights = {name: QTensor(tensor.codes.clone(), tensor.width) for name, tensor in model.weights().items()}
        kept = player.memory.load(before=round_ + 1)
        assert kept is not None
        assert same(values(kept), values(weights))
    names = [f"round-00000{round_}.bin" for round_ in (1, 2, 3)]
    assert sorted(path.name for path in player.memory.folder.iterdir()) == names


def test_local_clients_start_alike_and_go_their_own_way(tmp_path: Path) -> None:
    given = scene(INT8, INT8)
    one, other = (device(spec, tmp_path) for spec in given.clients)
    for player in (one, other):
        play(Local(), given, player, Local().init(given), **{MEASURE_RECEIVED: 1.0})
    mine, theirs = one.memory.load(2), other.memory.load(2)
    assert mine is not None
    assert theirs is not None
    assert not same(values(mine), values(theirs))
