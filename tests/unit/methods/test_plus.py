"""ProWD-Plus: movements between widths, at the bytes of FedAvg."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

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
PLAIN = ProWDPlus(gamma=1.0)


def test_with_float_clients_only_it_is_fedavg_up_to_rounding(tmp_path: Path) -> None:
    given = scene(FLOAT32, FLOAT32, steps=4)
    found, expected = played(PLAIN, given, tmp_path / "p"), played(FedAvg(), given, tmp_path / "a")
    for name, tensor in found.model.items():
        torch.testing.assert_close(tensor, expected.model[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("uplink", ["ternary", "native"])
def test_messages_are_as_long_as_those_of_fedavg(uplink: str, tmp_path: Path) -> None:
    given = replace(MIXED, uplink=uplink)  # type: ignore[arg-type]
    for spec in given.clients:
        sizes = set()
        for chosen in (PLAIN, FedAvg()):
            task = asked(given, spec, chosen.dispatch(given, chosen.init(given), spec))
            sizes.add(len(encode_update(chosen.train(given, task, device(spec, tmp_path / chosen.name)))))
        assert len(sizes) == 1


START = torch.tensor([[0.5, -0.5], [0.25, 0.0]])


def one_layer(*widths: Bitwidth, uplink: str = "ternary") -> tuple[Scene, ServerState]:
    given = replace(scene(*widths, architecture=dot()), uplink=uplink)  # type: ignore[arg-type]
    return given, ServerState(0, {"fc.weight": START, "fc.gain": torch.ones(2)})


def test_the_model_moves_by_the_mean_movement() -> None:
    """The Int8 client moved by 1/16 everywhere, the Float32 client by 3/16; only the latter has gains."""
    given, state = one_layer(INT8, FLOAT32)
    moved = QTensor(torch.ones(2, 2, dtype=torch.int16), INT2, 2 / 16)
    updates = [
        Update(1, 0, INT8, 12, {"fc.weight": moved}),
        Update(1, 1, FLOAT32, 12, {"fc.weight": QTensor(START + 3 / 16, FLOAT32), "fc.gain": floats(2.0, 3.0)}),
    ]
    after = PLAIN.aggregate(given, state, updates).model
    torch.testing.assert_close(after["fc.weight"] - START, torch.full((2, 2), 2 / 16))
    torch.testing.assert_close(after["fc.gain"], torch.tensor([2.0, 3.0]))


def test_no_weight_is_thought_to_be_where_none_can_be() -> None:
    given, state = one_layer(INT8)
    moved = QTensor(torch.ones(2, 2, dtype=torch.int16), INT2, 1.5)
    after = PLAIN.aggregate(given, state, [Update(1, 0, INT8, 12, {"fc.weight": moved})]).model
    torch.testing.assert_close(after["fc.weight"], torch.tensor([[127 / 128, 0.25], [127 / 128, 0.75]]))


def test_native_weights_are_taken_as_they_are() -> None:
    given, state = one_layer(INT8, uplink="native")
    sent = codes(INT8, 60, -60, 30, 4, shape=(2, 2))
    after = PLAIN.aggregate(given, state, [Update(1, 0, INT8, 12, {"fc.weight": sent})]).model
    torch.testing.assert_close(after["fc.weight"], sent.value())


def test_a_ternary_client_says_all_it_knows() -> None:
    given, state = one_layer(INT2)
    assert {slot.largest_scale for slot in PLAIN.expects(given, given.clients[0]).values()} == {None}
    sent = codes(INT2, 1, -1, 1, 0, shape=(2, 2))
    after = PLAIN.aggregate(given, state, [Update(1, 0, INT2, 12, {"fc.weight": sent})]).model
    received = PLAIN.dispatch(given, state, given.clients[0])["fc.weight"].value()
    torch.testing.assert_close(after["fc.weight"], START + sent.value() - received)


@pytest.mark.parametrize("method", [PLAIN, FedPaq(bits="uplink"), FedPaq()], ids=["plus", "ternary", "paq"])
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


def test_gamma_says_how_far_the_server_goes() -> None:
    given, state = one_layer(INT8)
    moved = QTensor(torch.ones(2, 2, dtype=torch.int16), INT2, 2 / 16)
    update = Update(1, 0, INT8, 12, {"fc.weight": moved})
    for gamma in (1.0, 1.5):
        after = ProWDPlus(gamma=gamma).aggregate(given, state, [update]).model["fc.weight"]
        torch.testing.assert_close(after - START, torch.full((2, 2), gamma / 16))


def test_a_message_goes_as_far_as_the_device_and_leaves_nothing_behind(tmp_path: Path) -> None:
    given = scene(INT8, steps=6)
    player = device(given.clients[0], tmp_path)
    task = asked(given, player.spec, PLAIN.dispatch(given, PLAIN.init(given), player.spec))
    sent = PLAIN.train(given, task, player).weights["fc.weight"].value().flatten()
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


def test_gains_are_averaged_whatever_gamma() -> None:
    given, state = one_layer(INT8, FLOAT32)
    still = QTensor(torch.zeros(2, 2, dtype=torch.int16), INT2)
    updates = [
        Update(1, 0, INT8, 12, {"fc.weight": still}),
        Update(1, 1, FLOAT32, 12, {"fc.weight": QTensor(START + 0.5, FLOAT32), "fc.gain": floats(0.2, 3.0)}),
    ]
    after = ProWDPlus(gamma=2.0).aggregate(given, state, updates).model
    torch.testing.assert_close(after["fc.weight"], START + 0.5)
    torch.testing.assert_close(after["fc.gain"], torch.tensor([0.2, 3.0]))
