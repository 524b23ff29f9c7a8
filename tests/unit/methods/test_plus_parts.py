"""The parts of ProWD-Plus that are off by default: blending, masks on movements, a φ that reads what was sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import prowd
from prowd.device.scene import Scene
from prowd.device.training import build_model, fit
from prowd.errors import ConfigError
from prowd.methods import ProWDPlus, common
from prowd.methods.movement import best_ternary, blended
from prowd.methods.prowd.dequantizer import DequantizerSettings, Ladder
from prowd.methods.prowd.lifting import Lifter
from prowd.nets import Architecture, Conv, Flatten, Linear, MaxPool
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.numbers.quantize import QTensor
from prowd.wire import Task, Update
from tests.runs import arrays, outcome
from tests.unit.scenes import INT2, INT4, INT8, codes, device, dot, floats, same, scene

from .test_plus import START, one_layer, plain

# --- Blending -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shift", "expected"), [(0, [10, -10, 0, 127]), (1, [15, -13, -1, 0]), (2, [12, -12, -1, 63])])
def test_blended_codes_are_a_shift_and_an_add(shift: int, expected: list[int]) -> None:
    received, own = codes(INT8, 10, -10, 0, 127), codes(INT8, 21, -15, -1, -127)
    assert blended(received, own, shift).codes.tolist() == expected
    assert blended(received, None, shift) is received


def test_a_blending_device_sets_out_between_what_it_had_and_what_it_got(tmp_path: Path) -> None:
    given = scene(INT8, steps=6)
    method, player = plain(blend=1), device(given.clients[0], tmp_path)
    state, own = method.init(given), None
    for round_ in (1, 2):
        weights = method.dispatch(given, state, player.spec)
        update = method.train(given, Task(round_, given.seed, 0, weights), player)
        start = weights if own is None else {name: blended(q, own[name], 1) for name, q in weights.items()}
        model = build_model(given, INT8, start, round_, 0)
        fit(model, player.train, given, round_, 0)
        own = model.weights()
        for name, sent in update.weights.items():
            moved = own[name].codes.double() - start[name].codes.double()
            expected = best_ternary(moved, INT8)
            assert torch.equal(sent.codes, expected.codes)
            assert sent.scale == expected.scale
        state = method.aggregate(given, replace(state, round=round_ - 1), [update])


def test_what_was_received_is_measured_though_training_sets_out_elsewhere(tmp_path: Path) -> None:
    given = scene(INT8, steps=6)
    measured = {}
    for method in (plain(), plain(blend=1)):
        player, state = device(given.clients[0], tmp_path / str(method.blend)), method.init(given)
        for round_ in (1, 2):  # the second time the device has something of its own to blend in
            weights = method.dispatch(given, state, player.spec)
            update = method.train(given, Task(round_, given.seed, 0, weights, {common.MEASURE_RECEIVED: 1}), player)
        measured[method.blend] = update.metrics["accuracy_received"]
    assert measured[0] == measured[1]


def test_a_blended_movement_counts_whole_though_it_began_elsewhere() -> None:
    given, state = one_layer(INT8)
    moved = QTensor(torch.ones(2, 2, dtype=torch.int16), INT2, 1.5)
    after = plain(blend=1).aggregate(given, state, [Update(1, 0, INT8, 12, {"fc.weight": moved})]).model
    torch.testing.assert_close(after["fc.weight"], START + 0.75)


# --- Masks on movements ---------------------------------------------------------------------------------------------


def test_low_bit_movements_against_the_high_bit_ones_are_left_out() -> None:
    """Int8 goes +1/8 everywhere, Float32 too except in one entry: of that one the Int8 movement is dropped."""
    given, state = one_layer(INT8, FLOAT32)
    up = QTensor(torch.ones(2, 2, dtype=torch.int16), INT2, 2 / 8)
    there = START + torch.tensor([[1 / 8, -1 / 8], [1 / 8, 1 / 8]])
    gain = floats(1.0, 1.0)
    updates = [
        Update(1, 0, INT8, 12, {"fc.weight": up}),
        Update(1, 1, FLOAT32, 12, {"fc.weight": QTensor(there, FLOAT32), "fc.gain": gain}),
    ]
    after = plain(sparsity=0.25).aggregate(given, state, updates)
    torch.testing.assert_close(after.model["fc.weight"], there)
    figures = {"kept": 0.75, "kept_movement": 0.75, "cosine_before": 0.5, "cosine_after": 0.866025}
    assert after.notes["masks"] == {"fc.weight": figures}
    without = plain().aggregate(given, state, updates)
    torch.testing.assert_close(without.model["fc.weight"][0, 1], START[0, 1])
    assert "masks" not in without.notes
    alone = plain(sparsity=0.25).aggregate(given, state, updates[:1])
    torch.testing.assert_close(alone.model["fc.weight"], START + 1 / 8)


# --- φ that reads what was sent -------------------------------------------------------------------------------------

SMALL = DequantizerSettings(module=4, growth=2, depth=2, epochs=2, images=4, tau=0.5)


def conv_scene(*widths: Bitwidth, uplink: str = "ternary") -> Scene:
    layers = (Conv("a", 2, 4), MaxPool(), Conv("b", 4, 4), Flatten(), Linear("fc", 64, 3, relu=False))
    given = scene(*widths, architecture=Architecture(layers, (2, 8, 8)))
    return replace(given, uplink=uplink, buffer=torch.rand(6, 2, 8, 8))  # type: ignore[arg-type]


def test_an_informed_phi_reads_what_was_sent(tmp_path: Path) -> None:
    given = conv_scene(INT8, FLOAT32)
    method = plain(message="weights", refine="phi", dequantizer=SMALL)
    state = method.init(given)
    assert state.memory, "φ"
    updates = []
    for spec in given.clients:
        task = Task(1, given.seed, spec.id, method.dispatch(given, state, spec))
        updates.append(method.train(given, task, device(spec, tmp_path)))
    after = method.aggregate(given, state, updates)
    lifter = Lifter(given, Ladder.parse(method.ladder), SMALL, informed=True)
    sent = common.received(given, state.model, updates)
    memory, _ = lifter.fit(state.memory, lifter.nets(updates, sent), 1)
    assert same({name: after.memory[name] for name in memory}, memory)
    assert not same(memory, dict(state.memory))
    known = lifter.lift(memory, updates, sent)
    moves = [known[n]["b.weight"].clamp(-1, 1) - sent[spec.width]["b.weight"] for n, spec in enumerate(given.clients)]
    torch.testing.assert_close(after.model["b.weight"], state.model["b.weight"] + (moves[0] + moves[1]) / 2)
    closed = plain(message="weights").aggregate(given, state, updates).model
    assert all(torch.equal(after.model[name], closed[name]) for name in ("a.weight", "fc.weight")), "no modules"
    assert len(after.notes["phi"]["recon"]) == 2
    elsewhere = {width: {name: tensor + 0.3 for name, tensor in values.items()} for width, values in sent.items()}
    assert not torch.equal(lifter.lift(memory, updates, elsewhere)[0]["b.weight"], known[0]["b.weight"])


@pytest.mark.parametrize("uplink", ["ternary", "native"])
@pytest.mark.parametrize("width", [INT2, INT4, INT8], ids=str)
@pytest.mark.parametrize(
    "options",
    [{}, {"message": "weights"}, {"message": "weights", "refine": "phi", "dequantizer": SMALL}],
    ids=["movement", "posterior", "phi"],
)
def test_clients_that_stay_leave_the_model_where_it_is(options: dict[str, Any], width: Bitwidth, uplink: str) -> None:
    """Whatever is sent, and whatever the server makes of it; only φ may be wrong where it has to guess."""
    given, method = conv_scene(width, FLOAT32, uplink=uplink), ProWDPlus(**options)
    state = method.init(given)
    updates = []
    for spec in given.clients:
        stays = method.dispatch(given, state, spec)
        sent = common.uplink(given, spec, stays)
        if method._sends_movement(given, spec.width):
            sent = {name: best_ternary(torch.zeros(q.shape), spec.width) for name, q in stays.items()}
        updates.append(Update(1, spec.id, spec.width, 12, sent))
    after = method.aggregate(given, state, updates).model
    for name, tensor in state.model.items():
        if not (options.get("refine") and name == "b.weight" and uplink == "ternary" and width != INT2):
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


def test_phi_needs_something_to_lift_and_somebody_to_learn_from() -> None:
    method = ProWDPlus(message="weights", refine="phi", dequantizer=SMALL)
    with pytest.raises(ConfigError, match="no convolution has whole modules of 4 channels; accepted: a smaller"):
        method.init(scene(INT8, FLOAT32, architecture=dot()))
    with pytest.raises(ConfigError, match="all send three levels"):
        method.init(conv_scene(INT8, INT4))


def test_blending_is_of_movements() -> None:
    with pytest.raises(
        ConfigError, match=r'options.blend: 1 with message "weights"; accepted: with message "movement"'
    ):
        ProWDPlus(message="weights", blend=1)


def test_phi_is_for_weights() -> None:
    with pytest.raises(ConfigError, match=r'options.refine: "phi" with message "movement"; accepted: with message "we'):
        plain(refine="phi")


@pytest.mark.parametrize(
    "options",
    [
        {"blend": 1, "feedback": True, "level": "nearest", "sparsity": 0.2},
        {"message": "weights", "refine": "phi", "dequantizer": {"epochs": 1, "images": 4}},
    ],
    ids=["movement", "phi"],
)
def test_every_part_survives_a_restart(options: dict[str, Any], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"clients": "int8:2, float32:2", "steps": 2, "batch": 8, "buffer": 6}
    settings |= {"method": "prowd-plus", "options": options}
    whole = prowd.run(out=tmp_path / "a", data=arrays(), workers=1, rounds=3, **settings)
    prowd.run(out=tmp_path / "b", data=arrays(), workers=2, rounds=2, **settings)
    prowd.run(resume=tmp_path / "b", data=arrays(), workers=1, rounds=3)
    assert outcome(tmp_path / "b") == outcome(whole.path)
