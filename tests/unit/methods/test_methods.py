"""FedAvg on numbers small enough to work out by hand, and what clients send."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from prowd.device.scene import ClientSpec, Rescale, Scene
from prowd.device.training import build_model, fit
from prowd.methods import METHODS, Device, FedAvg, Method, ScalesRates, ServerState, Slot
from prowd.methods.common import initial_state
from prowd.nets.float32 import FloatSettings
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.numbers.quantize import QTensor, Weights
from prowd.wire import Update
from tests.unit.scenes import INT2, INT8, INT16, asked, codes, device, dot, floats, same, scene

HAND = replace(
    scene(INT8, FLOAT32, FLOAT32, architecture=dot()),
    clients=(ClientSpec(0, INT8, 30), ClientSpec(1, FLOAT32, 10), ClientSpec(2, FLOAT32, 20)),
)


def with_local_gains(given: Scene) -> Scene:
    return replace(given, local=replace(given.local, float32=FloatSettings(gains="local")))


def state(*weight: float, gain: tuple[float, float] = (1.0, 1.0)) -> ServerState:
    return ServerState(4, {"fc.weight": floats(*weight, shape=(2, 2)).codes, "fc.gain": floats(*gain).codes})


def update(spec: ClientSpec, weights: Weights) -> Update:
    return Update(5, spec.id, spec.width, spec.num_examples, weights)


def updates(given: Scene = HAND) -> list[Update]:
    """From 30 examples ½, −½, 0, ½ (ternary codes); from 10 and 20 examples floats and their gains."""
    low, one, two = given.clients
    return [
        update(low, {"fc.weight": codes(INT2, 1, -1, 0, 1, shape=(2, 2))}),
        update(one, {"fc.weight": floats(1, 2, 3, -4, shape=(2, 2)), "fc.gain": floats(2, 6)}),
        update(two, {"fc.weight": floats(0, 0, 1, 0, shape=(2, 2)), "fc.gain": floats(4, 3)}),
    ]


def close(found: Tensor, *expected: float) -> None:
    torch.testing.assert_close(found.flatten(), torch.tensor(expected, dtype=torch.float32))


# FedAvg, server


def test_fedavg_weighs_by_examples() -> None:
    after = FedAvg().aggregate(HAND, state(9, 9, 9, 9), updates())
    # 30·½ + 10·1 = 25, −15 + 20 = 5, 30 + 20 = 50 and 15 − 40 = −25, of 60; the gains of 10 and 20 examples, of 30.
    close(after.model["fc.weight"], 25 / 60, 5 / 60, 50 / 60, -25 / 60)
    close(after.model["fc.gain"], (20 + 80) / 30, (60 + 60) / 30)
    assert after.round == 4, "the engine counts the rounds"


def test_fedavg_of_clients_that_count_the_same() -> None:
    alike = [replace(one, num_examples=1) for one in updates()]
    after = FedAvg().aggregate(HAND, state(9, 9, 9, 9), alike)
    close(after.model["fc.weight"], 1.5 / 3, 1.5 / 3, 4 / 3, -3.5 / 3)
    close(after.model["fc.gain"], 3, 4.5)


def test_without_float_clients_the_gains_stay() -> None:
    after = FedAvg().aggregate(HAND, state(9, 9, 9, 9, gain=(7, 8)), updates()[:1])
    close(after.model["fc.weight"], 0.5, -0.5, 0, 0.5)
    close(after.model["fc.gain"], 7, 8)


def test_native_codes_are_averaged_by_value() -> None:
    native = update(HAND.clients[0], {"fc.weight": codes(INT8, 127, -64, 1, 0, shape=(2, 2))})
    alike = [replace(one, num_examples=1) for one in (native, updates()[2])]
    after = FedAvg().aggregate(HAND, state(9, 9, 9, 9), alike)
    close(after.model["fc.weight"], 127 / 256, -0.25, (1 / 128 + 1) / 2, 0)


def test_one_float_client_alone_gets_its_weights_back() -> None:
    given = replace(HAND, clients=(ClientSpec(0, FLOAT32, 13),))
    sent = {"fc.weight": floats(0.1, -1 / 3, 1e-30, 3e38, shape=(2, 2)), "fc.gain": floats(0.7, 0.3)}
    after = FedAvg().aggregate(given, state(9, 9, 9, 9), [update(given.clients[0], sent)])
    assert same(after.model, {name: tensor.codes for name, tensor in sent.items()})


def test_averages_do_not_lose_small_weights_among_many() -> None:
    # Summed in float32, 2^24 and a thousand ones is 2^24.
    values = [2.0**24, *[1.0] * 1000]
    given = replace(HAND, clients=tuple(ClientSpec(number, FLOAT32, 1) for number in range(1001)))
    sent = [
        update(spec, {"fc.weight": floats(value, 0, 0, 0, shape=(2, 2)), "fc.gain": floats(1, 1)})
        for spec, value in zip(given.clients, values, strict=True)
    ]
    after = FedAvg().aggregate(given, state(9, 9, 9, 9), sent)
    assert float(after.model["fc.weight"][0, 0]) == torch.tensor((2**24 + 1000) / 1001).item()


def test_aggregation_leaves_the_old_state_alone() -> None:
    before = state(9, 9, 9, 9)
    FedAvg().aggregate(replace(HAND, rescale="layer"), before, updates())
    assert same(before.model, state(9, 9, 9, 9).model)


# Rescaling: U(−L, L) has the rms L/√3; at fan-in 2, L = √(3/2), which makes it √½.


@pytest.mark.parametrize(
    ("rescale", "expected"),
    [
        ("none", (3, 0, 0, 4)),
        ("layer", (3 * math.sqrt(0.5) / 2.5, 0, 0, 4 * math.sqrt(0.5) / 2.5)),  # rms √((9 + 16)/4) = 2.5
        ("channel", (1, 0, 0, 1)),  # rms 3·√½ and 4·√½
    ],
)
def test_rescaling_by_hand(rescale: Rescale, expected: tuple[float, ...]) -> None:
    sent = {"fc.weight": floats(3, 0, 0, 4, shape=(2, 2)), "fc.gain": floats(2, 6)}
    after = FedAvg().aggregate(replace(HAND, rescale=rescale), state(9, 9, 9, 9), [update(HAND.clients[1], sent)])
    close(after.model["fc.weight"], *expected)
    close(after.model["fc.gain"], 2, 6)


def test_rescaling_leaves_zeros_alone() -> None:
    row, none = (floats(3, 4, 0, 0, shape=(2, 2)), floats(0, 0, 0, 0, shape=(2, 2)))
    channel, layer = replace(HAND, rescale="channel"), replace(HAND, rescale="layer")
    gain = {"fc.gain": floats(1, 1)}
    for given, sent, expected in (
        (channel, row, (0.6, 0.8, 0, 0)),  # rms 5·√½, so 3/5 and 4/5
        (channel, none, (0, 0, 0, 0)),
        (layer, none, (0, 0, 0, 0)),
    ):
        after = FedAvg().aggregate(given, state(9, 9, 9, 9), [update(given.clients[1], {"fc.weight": sent, **gain})])
        close(after.model["fc.weight"], *expected)


def test_rescaling_brings_every_layer_back_to_its_own_rms() -> None:
    given = replace(scene(FLOAT32), rescale="layer")
    sent = {name: QTensor(tensor * 5, FLOAT32) for name, tensor in initial_state(given).model.items()}
    after = FedAvg().aggregate(given, initial_state(given), [update(given.clients[0], sent)])
    for name in given.architecture.shapes:
        assert float(after.model[name].square().mean().sqrt()) == pytest.approx(0.75 / math.sqrt(3), rel=1e-6)


# FedAvg, what is sent


def test_dispatch_is_the_quantized_global_model() -> None:
    given = state(0.3, -2, 1 / 512, 0.5, gain=(1.25, 3))
    received = {
        width: FedAvg().dispatch(HAND, given, ClientSpec(0, width, 1)) for width in (INT2, INT8, INT16, FLOAT32)
    }
    assert received[INT2]["fc.weight"].codes.tolist() == [[1, -1], [0, 1]]  # 0.6, −4, 0, 1
    assert received[INT8]["fc.weight"].codes.tolist() == [[38, -127], [0, 64]]  # 38.4, −256, ¼, 64
    assert received[INT16]["fc.weight"].codes.tolist() == [[9830, -32767], [64, 16384]]  # 9830.4, …
    assert same({"w": received[FLOAT32]["fc.weight"].codes}, {"w": given.model["fc.weight"]})
    assert [list(weights) for weights in received.values()] == [["fc.weight"]] * 3 + [["fc.weight", "fc.gain"]]
    assert all(tensor.width == width for width, weights in received.items() for tensor in weights.values())


def test_slots_have_gains_only_where_they_are_shared() -> None:
    weight, gain = {"fc.weight": Slot((2, 2), FLOAT32)}, {"fc.gain": Slot((2,), FLOAT32)}
    low, high = HAND.clients[:2]
    assert FedAvg().expects(replace(HAND, uplink="native"), low) == {"fc.weight": Slot((2, 2), low.width)}
    assert FedAvg().expects(replace(HAND, uplink="ternary"), low) == {"fc.weight": Slot((2, 2), INT2)}
    assert FedAvg().expects(HAND, high) == {**weight, **gain}
    assert FedAvg().expects(with_local_gains(HAND), high) == weight
    assert list(FedAvg().dispatch(with_local_gains(HAND), state(1, 2, 3, 4), high)) == ["fc.weight"]


def values(weights: Weights) -> dict[str, Tensor]:
    return {name: tensor.codes for name, tensor in weights.items()}


def play(method: Method, given: Scene, player: Device, state: ServerState, **settings: float) -> Update:
    """Have one client take part in the next round."""
    received = method.dispatch(given, state, player.spec)
    factor = method.rate(given, player.spec) if isinstance(method, ScalesRates) else 1.0
    return method.train(given, asked(given, player.spec, received, state.round + 1, factor, **settings), player)


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_ternary_uplink_is_the_ternary_form_of_the_native_one(bits: int, tmp_path: Path) -> None:
    given = scene(Bitwidth(bits))
    player, start = device(given.clients[0], tmp_path), FedAvg().init(given)
    native = play(FedAvg(), replace(given, uplink="native"), player, start)
    ternary = play(FedAvg(), replace(given, uplink="ternary"), player, start)
    steps = 2 ** (bits - 1)
    for name in given.architecture.shapes:
        assert (native.weights[name].width, ternary.weights[name].width) == (Bitwidth(bits), INT2)
        # The level of −½, 0, ½ nearest to the value; Python rounds ties to even as well.
        expected = [max(-1, min(1, round(2 * c / steps))) for c in native.weights[name].codes.flatten().tolist()]
        assert ternary.weights[name].codes.flatten().tolist() == expected
        assert len(set(expected)) == 3


@pytest.mark.parametrize("uplink", ["ternary", "native"])
def test_float_clients_send_floats(uplink: str, tmp_path: Path) -> None:
    given = replace(scene(FLOAT32), uplink=uplink)  # type: ignore[arg-type]
    sent = play(FedAvg(), given, device(given.clients[0], tmp_path), FedAvg().init(given))
    assert list(sent.weights) == ["conv.weight", "fc.weight", "conv.gain", "fc.gain"]
    assert {tensor.width for tensor in sent.weights.values()} == {FLOAT32}


@pytest.mark.parametrize("width", [INT8, FLOAT32], ids=str)
def test_training_starts_from_what_was_received(width: Bitwidth, tmp_path: Path) -> None:
    given = replace(scene(width), uplink="native")
    player, start = device(given.clients[0], tmp_path), FedAvg().init(given)
    sent = play(FedAvg(), given, player, start)
    task = asked(given, player.spec, FedAvg().dispatch(given, start, player.spec))
    model = build_model(given, width, task.weights, task)
    loss = fit(model, player.train, given, task)
    assert same(values(sent.weights), values(model.weights()))
    assert sent.metrics["loss"] == loss
    assert (sent.round, sent.client, sent.width, sent.num_examples) == (1, 0, width, 12)
    assert not player.memory.folder.exists()


def test_methods_are_listed_by_their_names() -> None:
    assert all(method.name == name for name, method in METHODS.items())
    assert list(METHODS)[:2] == ["local", "fedavg"]
