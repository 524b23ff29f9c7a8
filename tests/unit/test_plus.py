"""ProWD-Plus: movements between widths, at the bytes of FedAvg."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prowd.bits import FLOAT32, Bitwidth
from prowd.float32 import FloatSettings
from prowd.methods import FedAvg, ProWDPlus, ServerState
from prowd.methods.common import model_of
from prowd.methods.sideinfo import drift_of, posterior_mean
from prowd.quantize import QTensor
from prowd.scene import Scene
from prowd.training import build_model, fit
from prowd.wire import Task, Update, encode_update

from .scenes import INT2, INT4, INT8, codes, device, dot, floats, same, scene
from .test_baselines import played

MIXED = scene(INT4, INT8, FLOAT32, steps=4)


def given_steps(given: Scene) -> Scene:
    """The same with a Float32 rate that the method would not choose."""
    return replace(given, local=replace(given.local, float32=FloatSettings(lr=0.1, update_exponent=0)))


@pytest.mark.parametrize("others", [0.0, 0.5, 1.0])
def test_with_float_clients_only_it_is_fedavg_up_to_rounding(others: float, tmp_path: Path) -> None:
    given = given_steps(scene(FLOAT32, FLOAT32, steps=4))
    method = ProWDPlus(others=others, float_steps="given")
    found, expected = played(method, given, tmp_path / "p"), played(FedAvg(), given, tmp_path / "a")
    for name, tensor in model_of(found, FLOAT32).items():
        torch.testing.assert_close(tensor, expected.model[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("uplink", ["ternary", "native"])
@pytest.mark.parametrize("message", ["movement", "weights"])
def test_messages_are_as_long_as_those_of_fedavg(message: str, uplink: str, tmp_path: Path) -> None:
    given = replace(MIXED, uplink=uplink)  # type: ignore[arg-type]
    method = ProWDPlus(message=message)  # type: ignore[arg-type]
    for spec in given.clients:
        sizes = set()
        for chosen in (method, FedAvg()):
            task = Task(1, given.seed, spec.id, chosen.dispatch(given, chosen.init(given), spec))
            sizes.add(len(encode_update(chosen.train(given, task, device(spec, tmp_path / chosen.name)))))
        assert len(sizes) == 1


def test_what_was_left_unsaid_is_said_later(tmp_path: Path) -> None:
    given = scene(INT8, steps=6)
    method, player = ProWDPlus(feedback=True), device(given.clients[0], tmp_path)
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
    played(ProWDPlus(), given, tmp_path, rounds=2)
    assert device(given.clients[0], tmp_path).memory.load(before=3) is None
    assert not same(
        played(ProWDPlus(), given, tmp_path / "without").model,
        played(ProWDPlus(feedback=True), given, tmp_path / "with").model,
    )


def one_layer(*widths: Bitwidth, uplink: str = "ternary") -> tuple[Scene, ServerState]:
    given = replace(scene(*widths, architecture=dot()), uplink=uplink)  # type: ignore[arg-type]
    start = {"fc.weight": torch.tensor([[0.5, -0.5], [0.25, 0.0]]), "fc.gain": torch.ones(2)}
    return given, ServerState(
        0, {f"{width}/{name}": tensor for width in sorted(widths) for name, tensor in start.items()}
    )


@pytest.mark.parametrize(("others", "low", "high"), [(0.0, 1.0, 3.0), (1.0, 2.0, 2.0), (0.5, 5 / 3, 7 / 3)])
def test_a_width_takes_in_part_what_others_did(others: float, low: float, high: float) -> None:
    """The Int8 client moved by 1/16 everywhere, the Float32 client by 3/16."""
    given, state = one_layer(INT8, FLOAT32)
    moved = QTensor(torch.ones(2, 2, dtype=torch.int16), INT2, 2 / 16)
    gone = state.model["float32/fc.weight"] + 3 / 16
    updates = [
        Update(1, 0, INT8, 12, {"fc.weight": moved}),
        Update(1, 1, FLOAT32, 12, {"fc.weight": QTensor(gone, FLOAT32), "fc.gain": floats(2.0, 3.0)}),
    ]
    after = ProWDPlus(others=others).aggregate(given, state, updates).model
    for width, steps in (("int8", low), ("float32", high)):
        far = after[f"{width}/fc.weight"] - state.model[f"{width}/fc.weight"]
        torch.testing.assert_close(far, torch.full((2, 2), steps / 16))
    torch.testing.assert_close(after["float32/fc.gain"], torch.tensor([2.0, 3.0]))


def test_native_weights_are_taken_as_they_are() -> None:
    given, state = one_layer(INT8, uplink="native")
    sent = codes(INT8, 60, -60, 30, 4, shape=(2, 2))
    after = ProWDPlus().aggregate(given, state, [Update(1, 0, INT8, 12, {"fc.weight": sent})]).model
    torch.testing.assert_close(after["int8/fc.weight"], sent.value())


def test_ternary_weights_are_refined_by_what_was_sent() -> None:
    given, state = one_layer(INT8, INT8)
    received = state.model["int8/fc.weight"]
    sent = [codes(INT2, 1, -1, 1, 0, shape=(2, 2)), codes(INT2, 1, 0, 0, 0, shape=(2, 2))]
    updates = [Update(1, n, INT8, 12, {"fc.weight": tensor}) for n, tensor in enumerate(sent)]
    after = ProWDPlus(message="weights").aggregate(given, state, updates).model["int8/fc.weight"]
    sigma = drift_of(received, [tensor.codes for tensor in sent], INT8)
    refined = [posterior_mean(received, tensor.codes, sigma, INT8) for tensor in sent]
    torch.testing.assert_close(after, (refined[0] + refined[1]) / 2)
    assert 0.01 < sigma < 1


@pytest.mark.parametrize("message", ["movement", "weights"])
def test_a_ternary_client_says_all_it_knows(message: str) -> None:
    given, state = one_layer(INT2)
    method = ProWDPlus(message=message)  # type: ignore[arg-type]
    assert not any(slot.scaled for slot in method.expects(given, given.clients[0]).values())
    sent = codes(INT2, 1, -1, 1, 0, shape=(2, 2))
    after = method.aggregate(given, state, [Update(1, 0, INT2, 12, {"fc.weight": sent})]).model
    received = method.dispatch(given, state, given.clients[0])["fc.weight"].value()
    torch.testing.assert_close(after["int2/fc.weight"], state.model["int2/fc.weight"] + sent.value() - received)


def test_float_clients_take_scaled_steps(tmp_path: Path) -> None:
    given, player = given_steps(scene(FLOAT32, steps=4)), device(scene(FLOAT32).clients[0], tmp_path)
    method = ProWDPlus()
    task = Task(1, given.seed, 0, method.dispatch(given, method.init(given), player.spec))
    sent = {name: method.train(given, task, player).weights[name].codes for name in task.weights}
    for settings, same_steps in ((FloatSettings(), True), (FloatSettings(lr=0.1, update_exponent=0), False)):
        other = replace(given, local=replace(given.local, float32=settings))
        trained = FedAvg().train(other, task, player)
        assert same(sent, {name: tensor.codes for name, tensor in trained.weights.items()}) == same_steps
        kept = ProWDPlus(float_steps="given").train(other, task, player)
        assert same(
            {name: kept.weights[name].codes for name in sent}, {name: trained.weights[name].codes for name in sent}
        )
