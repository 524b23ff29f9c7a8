"""ProWD-Plus: movements between widths, at the bytes of FedAvg."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from prowd.device.scene import Scene
from prowd.device.training import build_model, fit
from prowd.errors import ConfigError, WireError
from prowd.federation.inbox import admit
from prowd.methods import FedAvg, FedPaq, Method, ProWDPlus, ServerState
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.numbers.quantize import QTensor
from prowd.wire import Task, Update, encode_update
from tests.unit.scenes import INT2, INT4, INT8, codes, device, dot, floats, same, scene

from .test_baselines import played

MIXED = scene(INT4, INT8, FLOAT32, steps=4)
plain = partial(ProWDPlus, gamma=1.0, level="nearest")


def test_with_float_clients_only_it_is_fedavg_up_to_rounding(tmp_path: Path) -> None:
    given = scene(FLOAT32, FLOAT32, steps=4)
    found, expected = played(plain(), given, tmp_path / "p"), played(FedAvg(), given, tmp_path / "a")
    for name, tensor in found.model.items():
        torch.testing.assert_close(tensor, expected.model[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("uplink", ["ternary", "native"])
@pytest.mark.parametrize("message", ["movement", "weights"])
def test_messages_are_as_long_as_those_of_fedavg(message: str, uplink: str, tmp_path: Path) -> None:
    given = replace(MIXED, uplink=uplink)  # type: ignore[arg-type]
    method = plain(message=message)  # type: ignore[arg-type]
    for spec in given.clients:
        sizes = set()
        for chosen in (method, FedAvg()):
            task = Task(1, given.seed, spec.id, chosen.dispatch(given, chosen.init(given), spec))
            sizes.add(len(encode_update(chosen.train(given, task, device(spec, tmp_path / chosen.name)))))
        assert len(sizes) == 1


def test_what_was_left_unsaid_is_said_later(tmp_path: Path) -> None:
    given = scene(INT8, steps=6)
    method, player = plain(feedback=True), device(given.clients[0], tmp_path)
    state = method.init(given)
    unsaid = torch.zeros(given.architecture.shapes["fc.weight"], dtype=torch.float64)
    for round_ in (1, 2, 3):
        weights = method.dispatch(given, state, player.spec)
        update = method.train(given, Task(round_, given.seed, 0, weights), player)
        model = build_model(given, INT8, weights, round_, 0)
        fit(model, player.train, given, round_, 0)
        moved = model.weights()["fc.weight"].codes.double() - weights["fc.weight"].codes.double() + unsaid
        kept = player.memory.load(before=round_ + 1)
        assert kept is not None
        unsaid = kept["fc.weight"].codes.double()
        said = update.weights["fc.weight"].value().double() * 128
        torch.testing.assert_close(said + unsaid, moved, atol=0.5, rtol=0)
        assert unsaid.any()
        state = method.aggregate(given, replace(state, round=round_ - 1), [update])


def test_without_feedback_a_device_remembers_nothing(tmp_path: Path) -> None:
    given = scene(INT8, steps=6)
    played(plain(), given, tmp_path, rounds=2)
    assert device(given.clients[0], tmp_path).memory.load(before=3) is None
    assert not same(
        played(plain(), given, tmp_path / "without").model,
        played(plain(feedback=True), given, tmp_path / "with").model,
    )


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
    after = plain().aggregate(given, state, updates).model
    torch.testing.assert_close(after["fc.weight"] - START, torch.full((2, 2), 2 / 16))
    torch.testing.assert_close(after["fc.gain"], torch.tensor([2.0, 3.0]))


def test_no_weight_is_thought_to_be_where_none_can_be() -> None:
    given, state = one_layer(INT8)
    moved = QTensor(torch.ones(2, 2, dtype=torch.int16), INT2, 1.5)
    after = plain().aggregate(given, state, [Update(1, 0, INT8, 12, {"fc.weight": moved})]).model
    torch.testing.assert_close(after["fc.weight"], torch.tensor([[127 / 128, 0.25], [127 / 128, 0.75]]))


def test_native_weights_are_taken_as_they_are() -> None:
    given, state = one_layer(INT8, uplink="native")
    sent = codes(INT8, 60, -60, 30, 4, shape=(2, 2))
    after = plain().aggregate(given, state, [Update(1, 0, INT8, 12, {"fc.weight": sent})]).model
    torch.testing.assert_close(after["fc.weight"], sent.value())


def test_ternary_weights_are_refined_by_what_was_sent() -> None:
    """Two of eight levels changed: σ = 0.2166, from which the mean of each truncated Gaussian follows."""
    given, state = one_layer(INT8, INT8)
    sent = [codes(INT2, 1, -1, 1, 0, shape=(2, 2)), codes(INT2, 1, 0, 0, 0, shape=(2, 2))]
    updates = [Update(1, n, INT8, 12, {"fc.weight": tensor}) for n, tensor in enumerate(sent)]
    after = plain(message="weights").aggregate(given, state, updates).model["fc.weight"]
    torch.testing.assert_close(after, torch.tensor([[0.54508, -0.34588], [0.25639, 0.0]]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("message", ["movement", "weights"])
def test_a_ternary_client_says_all_it_knows(message: str) -> None:
    given, state = one_layer(INT2)
    method = plain(message=message)  # type: ignore[arg-type]
    assert {slot.largest_scale for slot in method.expects(given, given.clients[0]).values()} == {None}
    sent = codes(INT2, 1, -1, 1, 0, shape=(2, 2))
    after = method.aggregate(given, state, [Update(1, 0, INT2, 12, {"fc.weight": sent})]).model
    received = method.dispatch(given, state, given.clients[0])["fc.weight"].value()
    torch.testing.assert_close(after["fc.weight"], START + sent.value() - received)


@pytest.mark.parametrize("method", [plain(), FedPaq(bits="uplink"), FedPaq()], ids=["plus", "ternary", "paq"])
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


@pytest.mark.parametrize(("message", "level"), [("weights", "nearest"), ("movement", "full")])
def test_feedback_is_of_nearest_movements(message: Any, level: Any) -> None:
    found = rf'options.feedback: true with message "{message}" and level "{level}"; accepted: with message "movement" a'
    with pytest.raises(ConfigError, match=found):
        ProWDPlus(message=message, level=level, feedback=True)


def test_gamma_says_how_far_the_server_goes() -> None:
    given, state = one_layer(INT8)
    moved = QTensor(torch.ones(2, 2, dtype=torch.int16), INT2, 2 / 16)
    update = Update(1, 0, INT8, 12, {"fc.weight": moved})
    for gamma in (1.0, 1.5):
        after = ProWDPlus(gamma=gamma).aggregate(given, state, [update]).model["fc.weight"]
        torch.testing.assert_close(after - START, torch.full((2, 2), gamma / 16))


def test_a_full_message_goes_as_far_as_the_device(tmp_path: Path) -> None:
    given = scene(INT8, steps=6)
    sent = {}
    for method in (plain(), plain(level="full")):
        task = Task(1, given.seed, 0, method.dispatch(given, method.init(given), given.clients[0]))
        sent[method.level] = method.train(given, task, device(given.clients[0], tmp_path)).weights["fc.weight"]
    model = build_model(given, INT8, task.weights, 1, 0)
    fit(model, device(given.clients[0], tmp_path).train, given, 1, 0)
    moved = (model.weights()["fc.weight"].value() - task.weights["fc.weight"].value()).flatten()
    along = {level: float(q.value().flatten() @ moved / (moved @ moved)) for level, q in sent.items()}
    assert along["full"] == pytest.approx(1.0, rel=1 / 256)
    assert along["nearest"] < 0.95
