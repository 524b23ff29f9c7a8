"""ProWD-Plus: movements between widths, at the bytes of FedAvg."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from prowd.device.scene import Scene
from prowd.device.training import build_model, fit
from prowd.errors import WireError
from prowd.federation.inbox import admit
from prowd.methods import FedAvg, FedPaq, Method, ProWDPlus, ServerState, common
from prowd.methods.movement import best_ternary
from prowd.methods.plus import sends_movement
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.numbers.quantize import QTensor
from prowd.wire import Update, encode_update
from tests.unit.scenes import INT2, INT4, INT8, asked, codes, device, dot, floats, scene

from .test_baselines import played

MIXED = scene(INT4, INT8, FLOAT32, steps=4)
PLUS = ProWDPlus()


def high(state: ServerState) -> dict[str, Tensor]:
    """The model of the high side."""
    return {name.removeprefix("high/"): tensor for name, tensor in state.model.items() if name.startswith("high/")}


def test_of_float_clients_there_is_one_model_and_it_is_fedavg_s(tmp_path: Path) -> None:
    given = scene(FLOAT32, FLOAT32, steps=4)
    found, expected = played(PLUS, given, tmp_path / "p"), played(FedAvg(), given, tmp_path / "a")
    assert all(name.startswith("high/") for name in found.model)
    for name, tensor in high(found).items():
        torch.testing.assert_close(tensor, expected.model[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("uplink", ["ternary", "native"])
def test_messages_are_as_long_as_those_of_fedavg(uplink: str, tmp_path: Path) -> None:
    given = replace(MIXED, uplink=uplink)  # type: ignore[arg-type]
    for spec in given.clients:
        sizes = set()
        for chosen in (PLUS, FedAvg()):
            task = asked(given, spec, chosen.dispatch(given, chosen.init(given), spec))
            sizes.add(len(encode_update(chosen.train(given, task, device(spec, tmp_path / chosen.name)))))
        assert len(sizes) == 1


START = torch.tensor([[0.5, -0.5], [0.25, 0.0]])


def one_layer(*widths: Bitwidth, uplink: str = "ternary") -> tuple[Scene, ServerState]:
    given = replace(scene(*widths, architecture=dot()), uplink=uplink)  # type: ignore[arg-type]
    low = {"low/fc.weight": START / 2} if len(set(widths)) > 1 else {}
    return given, ServerState(0, {**low, "high/fc.weight": START, "high/fc.gain": torch.ones(2)})


def ternary(*signs: int, move: float) -> QTensor:
    return QTensor(torch.tensor(signs, dtype=torch.int16).reshape(2, 2), INT2, 2 * move)


def test_sides_exchange_movements() -> None:
    """The Int8 client moved by ±1/16, the Float32 client by 3/16 everywhere; only the latter has gains.

    By hand: the signs agree in the first row. The low side moves by both, then a tenth of the way to the high side.
    """
    given, state = one_layer(INT8, FLOAT32)
    updates = [
        Update(1, 0, INT8, 12, {"fc.weight": ternary(1, 1, -1, 0, move=1 / 16)}),
        Update(1, 1, FLOAT32, 12, {"fc.weight": QTensor(START + 3 / 16, FLOAT32), "fc.gain": floats(2.0, 3.0)}),
    ]
    after = PLUS.aggregate(given, state, updates).model
    low, up = torch.tensor([[1.0, 1.0], [-1.0, 0.0]]) / 16, torch.tensor([[1.0, 1.0], [0.0, 0.0]]) / 32
    expected = START + 3 / 16 + up
    torch.testing.assert_close(after["high/fc.weight"], expected)
    moved = START / 2 + low + 3 / 16
    torch.testing.assert_close(after["low/fc.weight"], moved + 0.1 * (expected - moved))
    torch.testing.assert_close(after["high/fc.gain"], torch.tensor([2.0, 3.0]))
    assert list(after) == list(state.model)


def test_each_side_is_sent_its_own_model() -> None:
    given, state = one_layer(INT8, FLOAT32)
    for client, expected in zip(given.clients, (START / 2, START), strict=True):
        assert torch.equal(PLUS.dispatch(given, state, client)["fc.weight"].value(), expected)


def test_a_side_that_is_absent_moves_nobody() -> None:
    given, state = one_layer(INT8, FLOAT32)
    low = Update(1, 0, INT8, 12, {"fc.weight": ternary(1, 1, 1, 1, move=1 / 16)})
    after = PLUS.aggregate(given, state, [low]).model
    torch.testing.assert_close(after["high/fc.weight"], START)
    torch.testing.assert_close(after["low/fc.weight"], 0.9 * (START / 2 + 1 / 16) + 0.1 * START)
    up = Update(1, 1, FLOAT32, 12, {"fc.weight": QTensor(START + 0.5, FLOAT32), "fc.gain": floats(1.0, 1.0)})
    after = PLUS.aggregate(given, state, [up]).model
    torch.testing.assert_close(after["high/fc.weight"], START + 0.5)
    torch.testing.assert_close(after["low/fc.weight"], 0.9 * (START / 2 + 0.5) + 0.1 * (START + 0.5))


def test_no_weight_is_thought_to_be_where_none_can_be() -> None:
    given, state = one_layer(INT8)
    moved = Update(1, 0, INT8, 12, {"fc.weight": ternary(1, 1, 1, 1, move=0.75)})
    after = PLUS.aggregate(given, state, [moved]).model
    torch.testing.assert_close(after["high/fc.weight"], torch.tensor([[127 / 128, 0.25], [127 / 128, 0.75]]))


def test_the_low_side_stays_where_integers_are() -> None:
    given, state = one_layer(INT8, FLOAT32)
    far = Update(1, 1, FLOAT32, 12, {"fc.weight": QTensor(START + 5, FLOAT32), "fc.gain": floats(1.0, 1.0)})
    assert torch.equal(PLUS.aggregate(given, state, [far]).model["low/fc.weight"], torch.ones(2, 2))


def test_native_weights_are_taken_as_they_are() -> None:
    given, state = one_layer(INT8, uplink="native")
    sent = codes(INT8, 60, -60, 30, 4, shape=(2, 2))
    after = PLUS.aggregate(given, state, [Update(1, 0, INT8, 12, {"fc.weight": sent})]).model
    torch.testing.assert_close(after["high/fc.weight"], sent.value())


def test_a_ternary_client_says_all_it_knows() -> None:
    given, state = one_layer(INT2)
    assert {slot.largest_scale for slot in PLUS.expects(given, given.clients[0]).values()} == {None}
    sent = codes(INT2, 1, -1, 1, 0, shape=(2, 2))
    after = PLUS.aggregate(given, state, [Update(1, 0, INT2, 12, {"fc.weight": sent})]).model
    received = PLUS.dispatch(given, state, given.clients[0])["fc.weight"].value()
    torch.testing.assert_close(after["high/fc.weight"], START + sent.value() - received)


@pytest.mark.parametrize("method", [PLUS, FedPaq(bits="uplink"), FedPaq()], ids=["plus", "ternary", "paq"])
@pytest.mark.parametrize("times", [1.001, 1e39])
def test_a_movement_that_no_weight_can_make_is_refused(method: Method, times: float) -> None:
    given, _ = one_layer(INT8)
    slot = method.expects(given, given.clients[0])["fc.weight"]
    assert slot.largest_scale is not None
    moved = QTensor(torch.ones(2, 2, dtype=torch.int16), slot.width, slot.largest_scale)
    update = Update(1, 0, INT8, 12, {"fc.weight": moved})
    assert (
        admit(given, method, 1, given.clients[0], encode_update(update)).weights["fc.weight"].value().abs().max() <= 4
    )
    far = replace(update, weights={"fc.weight": replace(moved, scale=slot.largest_scale * times)})
    with pytest.raises(WireError, match=r"has scale .*; accepted: above 0, to "):
        admit(given, method, 1, given.clients[0], encode_update(far))


def test_a_message_goes_as_far_as_the_device_and_leaves_nothing_behind(tmp_path: Path) -> None:
    given = scene(INT8, steps=6)
    player = device(given.clients[0], tmp_path)
    task = asked(given, player.spec, PLUS.dispatch(given, PLUS.init(given), player.spec))
    sent = PLUS.train(given, task, player).weights["fc.weight"].value().flatten()
    model = build_model(given, INT8, task.weights, task)
    fit(model, player.train, given, task)
    moved = (model.weights()["fc.weight"].value() - task.weights["fc.weight"].value()).flatten()
    assert float(sent @ moved / (moved @ moved)) == pytest.approx(1.0, rel=1 / 256)
    assert player.memory.load(before=2) is None


@pytest.mark.parametrize("uplink", ["ternary", "native"])
@pytest.mark.parametrize("width", [INT2, INT4, INT8], ids=str)
def test_clients_that_stay_leave_the_model_where_it_is(width: Bitwidth, uplink: str) -> None:
    given = replace(scene(width, FLOAT32), uplink=uplink)  # type: ignore[arg-type]
    method = ProWDPlus()
    state = method.init(given)
    updates = []
    for spec in given.clients:
        stays = method.dispatch(given, state, spec)
        sent = common.uplink(given, spec, stays)
        if sends_movement(given, spec.width):
            sent = {name: best_ternary(torch.zeros(q.shape), spec.width) for name, q in stays.items()}
        updates.append(Update(1, spec.id, spec.width, 12, sent))
    after = method.aggregate(given, state, updates).model
    for name, tensor in state.model.items():
        torch.testing.assert_close(after[name], tensor, atol=2e-4, rtol=0)
