"""FedCOMGATE: what a client's correction is, and that it undoes the drift it is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from prowd.methods import FedCom, FedComGate, common
from prowd.methods.fedcomgate import DELTA, step_sizes
from prowd.nets.float32 import FloatSettings
from prowd.numbers.bits import FLOAT32, Bitwidth
from tests.unit.methods.test_baselines import played
from tests.unit.scenes import INT8, INT16, asked, device, same, scene


def test_a_lone_client_needs_no_correction(tmp_path: Path) -> None:
    for width in (INT8, FLOAT32):
        given, folder = replace(scene(width, steps=4), uplink="native"), tmp_path / str(width)
        gate, com = played(FedComGate(), given, folder, rounds=4), played(FedCom(), given, folder / "com", rounds=4)
        known = device(given.clients[0], folder).memory.load(before=5)
        assert known is not None
        assert all(not tensor.codes.any() for name, tensor in known.items() if name.startswith(DELTA))
        assert same(gate.model, com.model)


def test_the_correction_is_the_drift_of_a_step(tmp_path: Path) -> None:
    given = scene(FLOAT32, FLOAT32, steps=5)
    method = FedComGate(gamma=1)
    state = played(method, given, tmp_path, rounds=1)
    own = [device(client, tmp_path).memory.load(before=2) for client in given.clients]
    played(method, given, tmp_path, rounds=2)
    for client, before in zip(given.clients, own, strict=True):
        after = device(client, tmp_path).memory.load(before=3)
        assert before is not None
        assert after is not None
        for name in given.architecture.shapes:
            drift = (state.memory[name] - before[f"own/{name}"].value()) / 5
            torch.testing.assert_close(after[f"{DELTA}{name}"].value(), drift)


@pytest.mark.parametrize("width", [INT8, FLOAT32])
def test_the_correction_is_counted_at_full_pace(width: Bitwidth, tmp_path: Path) -> None:
    """A client of rounds 2 and 4 of 4: it moved at the pace of 2, and the mean of 3 comes with round 4."""
    given = replace(scene(width, width, steps=5), uplink="native")
    given = replace(given, local=replace(given.local, horizon=4))
    method, player = FedComGate(gamma=1), device(given.clients[0], tmp_path)
    state = method.init(given)
    shapes = given.architecture.shapes
    sent = method.train(given, asked(given, player.spec, method.dispatch(given, state, player.spec), 2), player).weights
    means = {name: torch.full(shape, 0.125) for name, shape in shapes.items()}
    weights = method.dispatch(given, replace(state, memory=means), player.spec)
    method.train(given, asked(given, player.spec, weights, 4), player)
    known = player.memory.load(before=5)
    assert known is not None
    second, third = (1 + 0.5**0.5) / 2, 0.5
    for name in shapes:
        expected = (means[name] / third - sent[name].value() / second) / 5
        step = 0.0 if width.is_float else float(expected.abs().max()) / 64
        torch.testing.assert_close(known[f"{DELTA}{name}"].value(), expected, atol=1e-6 + step, rtol=1e-5)


@pytest.mark.parametrize("width", [INT8, FLOAT32])
def test_the_correction_of_a_step_undoes_the_drift_of_a_step(
    width: Bitwidth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, seen = replace(scene(width, steps=5), uplink="native"), list[Sequence[Tensor]]()
    method, player = FedComGate(gamma=4), device(given.clients[0], tmp_path)
    deltas = {name: torch.full(shape, 0.125) for name, shape in given.architecture.shapes.items()}
    monkeypatch.setattr(FedComGate, "_deltas", lambda *_: deltas)
    whole = common.local_round

    def watched(*given: Any, correction: Any) -> Any:
        seen.append(correction([]))
        return whole(*given)

    monkeypatch.setattr(common, "local_round", watched)
    method.train(given, asked(given, player.spec, method.dispatch(given, method.init(given), player.spec)), player)
    for addition, size in zip(seen[0], step_sizes(given, width), strict=True):
        torch.testing.assert_close(addition * size / 4, torch.full_like(addition, -0.125))


def test_step_sizes_are_what_a_unit_of_gradient_moves() -> None:
    given = scene(INT8, FLOAT32)
    local = replace(given.local, float32=FloatSettings(lr=0.5, momentum=0.75, update_exponent=1))
    assert step_sizes(replace(given, local=local), FLOAT32) == [2.0 * alpha for alpha in given.architecture.alphas]
    assert step_sizes(given, INT8) == [8 / 128, 8 / 128]
    assert step_sizes(given, INT16) == [2048 / 32768, 2048 / 32768]
