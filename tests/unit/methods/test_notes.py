"""What methods note down to explain a round, on weights that can be counted by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prowd.federation.engine import Federation, run_round
from prowd.methods import METHODS, FedAvg, FedPaq, ProWD, ProWDSwa
from prowd.numbers.bits import FLOAT32
from prowd.wire import Update
from tests.unit.scenes import INT2, INT8, FakeTransport, codes, dot, floats, honest, liftable, scene

from .test_prowd import SMALL, conv_scene, random_updates

NAME = "fc.weight"
GIVEN = scene(INT8, INT8, FLOAT32, architecture=dot())


def sent(*values: tuple[int, int, int, int]) -> list[Update]:
    """Two ternary clients and a Float32 client whose weights have length 5."""
    low = [Update(1, n, INT8, 12, {NAME: codes(INT2, *value, shape=(2, 2))}) for n, value in enumerate(values)]
    return [*low, Update(1, 2, FLOAT32, 12, {NAME: floats(3.0, 4.0, 0.0, 0.0, shape=(2, 2))})]


def test_zeros_and_drift() -> None:
    updates = sent((1, 0, 0, 0), (1, 0, 0, -1))
    notes = FedAvg().aggregate(GIVEN, FedAvg().init(GIVEN), updates).notes
    assert notes["zeros"] == {"int8": {NAME: 5 / 8}}
    low = (0.5, 0.0, 0.0, -0.25)
    expected = math.dist(low, (3.0, 4.0, 0.0, 0.0)) / 5
    assert notes["drift"] == {NAME: pytest.approx(expected, abs=1e-6)}


def test_a_movement_is_noted_as_the_weights_it_leads_to() -> None:
    method = FedPaq()
    state = replace(method.init(GIVEN), model={NAME: torch.tensor([[0.5, 0.0], [0.0, 0.5]])})
    moved = [Update(1, 0, INT8, 12, {NAME: codes(INT8, -64, 0, 64, 0, shape=(2, 2))})]
    assert method.aggregate(GIVEN, state, moved).notes["zeros"] == {"int8": {NAME: 2 / 4}}


def test_there_is_no_drift_without_two_sides() -> None:
    updates = sent((1, 0, 0, 0), (1, 0, 0, -1))
    assert FedAvg().aggregate(GIVEN, FedAvg().init(GIVEN), updates[:2]).notes["drift"] == {}
    assert FedAvg().aggregate(GIVEN, FedAvg().init(GIVEN), updates[2:]).notes == {"zeros": {}, "drift": {}}


def test_masks_are_noted_once_there_are_any() -> None:
    method = ProWDSwa()
    first = method.aggregate(GIVEN, method.init(GIVEN), sent((0, 0, 0, 0), (0, 0, 0, 0)))
    assert first.notes["masks"] == {}
    updates = sent((1, -1, 0, 0), (1, -1, 0, 0))
    high = replace(updates[2], weights={NAME: floats(4.0, 5.0, 0.0, 0.0, shape=(2, 2))})
    notes = method.aggregate(GIVEN, first, [*updates[:2], high]).notes
    assert notes["masks"] == {
        NAME: {
            "kept": 0.25,
            "kept_movement": 0.5,
            "cosine_before": 0.0,
            "cosine_after": pytest.approx(math.sqrt(0.5), abs=1e-6),
        }
    }


def test_the_losses_of_the_dequantizer_are_noted_and_its_drift_is_that_of_what_it_made() -> None:
    given, method = conv_scene(), ProWD(dequantizer=replace(SMALL, epochs=2))
    updates = random_updates(given, 1)
    notes = method.aggregate(given, method.init(given), updates).notes
    assert {key: len(losses) for key, losses in notes["phi"].items()} == {"recon": 2, "distill": 2}
    plain = FedAvg().aggregate(given, FedAvg().init(given), updates).notes
    assert notes["zeros"] == plain["zeros"], "of the weights as they came"
    different = {name for name, drift in notes["drift"].items() if drift != plain["drift"][name]}
    assert different == {"b.weight"}, "the layer that the dequantizer takes"


@pytest.mark.parametrize("name", METHODS)
def test_every_method_s_notes_can_be_written_down(name: str, tmp_path: Path) -> None:
    given = replace(scene(INT8, FLOAT32, architecture=liftable()), buffer=torch.zeros(4, 2, 8, 8))
    method = METHODS[name]()
    state = method.init(given)
    for round_ in (1, 2):
        federation = Federation(given, method, rounds=2, cohort=2)
        report, state = run_round(federation, state, FakeTransport(honest(given, method, tmp_path)))
        line = report.line()
        assert json.loads(json.dumps(line)) == line
        assert bool(line["notes"]) == (name != "local"), round_
        assert state.notes == {}, "a round's notes do not go into the next"
