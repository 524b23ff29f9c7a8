"""Whom a round asks, which bytes it counts, and what it measures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from prowd.device.scene import ClientSpec, Scene
from prowd.device.training import Examples, Model
from prowd.federation.engine import Federation, dispatch, run_round, sample
from prowd.methods import FedAvg, Local, ServerState, common
from prowd.methods.common import MEASURE_RECEIVED, MEASURE_TRAINED
from prowd.nets.float32 import FloatSettings
from prowd.numbers.bits import FLOAT32
from prowd.numbers.quantize import Weights
from prowd.wire import decode_task, decode_update
from tests.unit.federation.rounds import MIX, answers, federation, ids
from tests.unit.scenes import INT4, INT8, FakeTransport, same, scene


def many(cohort: int, seed: int = 0) -> Federation:
    return Federation(replace(scene(*[INT8] * 20), seed=seed), FedAvg(), 100, cohort)


@pytest.mark.parametrize("cohort", [1, 7, 20])
def test_a_cohort_is_m_of_n_without_replacement_in_client_order(cohort: int) -> None:
    for round_ in range(1, 20):
        found = ids(sample(many(cohort), round_))
        assert len(found) == len(set(found)) == cohort
        assert found == sorted(found)
        assert set(found) <= set(range(20))


def test_sampling_follows_seed_and_round_only() -> None:
    rounds = [ids(sample(many(5), round_)) for round_ in range(1, 101)]
    assert rounds == [ids(sample(many(5), round_)) for round_ in range(1, 101)]
    assert rounds != [ids(sample(many(5, seed=1), round_)) for round_ in range(1, 101)]
    assert len({tuple(cohort) for cohort in rounds}) > 90
    # Each client is in a quarter of 100 rounds: 25, with a standard deviation of 4.3.
    times = Counter(client for cohort in rounds for client in cohort)
    assert min(times[client] for client in range(20)) >= 8
    assert max(times.values()) <= 42


def test_only_the_cohort_is_asked(tmp_path: Path, start: ServerState) -> None:
    given = replace(federation(), cohort=3)
    transport = FakeTransport(answers(given, tmp_path))
    report, _ = run_round(given, start, transport)
    assert list(transport.sent) == ids(sample(given, 1))
    assert report.clients.asked == len(transport.sent) == 3


def test_bytes_are_the_lengths_of_the_messages(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    transport = FakeTransport(answers(given, tmp_path))
    report, _ = run_round(given, start, transport)
    for counted, messages in ((report.traffic.down, transport.sent), (report.traffic.up, transport.came)):
        assert counted == {
            str(width): sum(len(messages[n]) for n in range(5) if MIX[n] == width) for width in (INT4, INT8, FLOAT32)
        }
    # From the drawing in prowd.wire. Down: header 24, head 16 + 26, two settings 2 + 25 + 24; body 6, rows of the
    # weights 46 and 36, of the gains 32 and 30. 4·2·9 + 3·64 = 264 weights at 4 or 8 bits; 271 floats with the gains.
    assert [len(transport.sent[n]) for n in range(5)] == [
        117 + 88 + 264,
        117 + 150 + 1084,
        117 + 88 + 264,
        117 + 150 + 1084,
        117 + 88 + 132,
    ]
    # Up: header 24, head 17, metrics 2 + 13 + 25, and 26 from those that measured what they received; the integer
    # widths send five weights a byte, 15 and 39 bytes.
    assert [len(transport.came[n]) for n in range(5)] == [
        81 + 26 + 88 + 54,
        81 + 26 + 150 + 1084,
        81 + 88 + 54,
        81 + 150 + 1084,
        81 + 26 + 88 + 54,
    ]


def test_clients_of_a_width_share_one_body(start: ServerState) -> None:
    given = federation()
    parcels, *_ = dispatch(given, start, given.scene.clients)
    bodies = {client: parcel.body for client, parcel in parcels.items()}
    assert bodies[0] is bodies[2]
    assert bodies[1] is bodies[3]
    assert len(set(bodies.values())) == 3
    for client in given.scene.clients:
        task = decode_task(parcels[client.id].join())
        assert (task.round, task.seed, task.client) == (1, given.scene.seed, client.id)
        assert same(
            {name: tensor.codes for name, tensor in task.weights.items()},
            {name: tensor.codes for name, tensor in FedAvg().dispatch(given.scene, start, client).items()},
        )


def asked(given: Federation, state: ServerState) -> list[tuple[float, float]]:
    tasks = [decode_task(parcel.join()) for parcel in dispatch(given, state, given.scene.clients)[0].values()]
    return [(task.settings[MEASURE_RECEIVED], task.settings[MEASURE_TRAINED]) for task in tasks]


def test_of_those_that_receive_the_same_model_the_first_measures_it(start: ServerState) -> None:
    # int8, float32, int8 again, float32 again, int4.
    assert asked(federation(), start) == [(1, 1), (1, 1), (0, 1), (0, 1), (1, 1)]
    assert asked(federation(Local()), start) == [(1, 1)] * 5, "alone, every client has a model of its own"


@pytest.mark.parametrize(
    ("every", "measured"), [(1, [1, 2, 3, 4, 5, 6, 7]), (3, [1, 3, 6, 7]), (7, [1, 7]), (100, [1, 7])]
)
def test_rounds_that_are_measured(every: int, measured: list[int], start: ServerState) -> None:
    given = federation(rounds=7, evaluate_every=every)
    found = [round_ for round_ in range(1, 8) if asked(given, replace(start, round=round_ - 1))[0] == (1, 1)]
    silent = [round_ for round_ in range(1, 8) if asked(given, replace(start, round=round_ - 1)) == [(0, 0)] * 5]
    assert found == measured
    assert sorted(found + silent) == list(range(1, 8))


@dataclass
class Meter:
    """Stands in for ``accuracy``; its n-th measurement is n hundredths."""

    calls: int = 0

    def __call__(self, model: Model, examples: Examples, device: torch.device) -> float:
        self.calls += 1
        return self.calls / 100


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    stand_in = Meter()
    monkeypatch.setattr(common, "accuracy", stand_in)
    return stand_in


def test_a_shared_model_is_measured_once_and_counts_for_all(tmp_path: Path, start: ServerState, meter: Meter) -> None:
    given = federation()
    report, _ = run_round(given, start, FakeTransport(answers(given, tmp_path)))
    # In turn: client 0 measures 1 before and 2 after training, client 1 measures 3 and 4, clients 2 and 3 measure 5 and
    # 6 after it only, client 4 measures 7 and 8.
    assert meter.calls == 3 + 5
    assert report.accuracy.received == pytest.approx({"int4": 0.07, "int8": 0.01, "float32": 0.03})
    assert report.accuracy.trained == pytest.approx({"int4": 0.08, "int8": 0.035, "float32": 0.05})
    assert list(report.accuracy.received) == ["int4", "int8", "float32"], "low widths first"


class TwoModels(FedAvg):
    """Client 2 receives another model than the rest."""

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        model = {name: -tensor if client.id == 2 else tensor for name, tensor in state.model.items()}
        return super().dispatch(scene, replace(state, model=model), client)


def test_a_measurement_counts_for_each_client_that_shares_the_model(tmp_path: Path, meter: Meter) -> None:
    given = Federation(scene(INT8, INT8, INT8), TwoModels(), rounds=1, cohort=3)
    start = TwoModels().init(given.scene)
    report, _ = run_round(given, start, FakeTransport(answers(given, tmp_path)))
    # Client 0 measures 1 and 2, client 1 measures 3 after training, client 2 measures 4 and 5.
    assert report.accuracy.received == pytest.approx({"int8": (0.01 + 0.01 + 0.04) / 3})
    assert report.accuracy.trained == pytest.approx({"int8": (0.02 + 0.03 + 0.05) / 3})


def test_alone_every_client_measures_its_own(tmp_path: Path, start: ServerState, meter: Meter) -> None:
    given = federation(Local())
    report, state = run_round(given, start, FakeTransport(answers(given, tmp_path)))
    assert meter.calls == 5 + 5
    assert report.accuracy.received == pytest.approx({"int4": 0.09, "int8": 0.03, "float32": 0.05})
    assert report.accuracy.trained == pytest.approx({"int4": 0.10, "int8": 0.04, "float32": 0.06})
    assert same(state.model, start.model)
    assert state.round == 1


def test_a_round_that_is_not_measured_reports_the_loss_only(tmp_path: Path, start: ServerState, meter: Meter) -> None:
    given = federation(evaluate_every=2, rounds=9)
    report, _ = run_round(given, replace(start, round=2), FakeTransport(answers(given, tmp_path)))
    assert meter.calls == 0
    assert (report.round, report.accuracy.received, report.accuracy.trained) == (3, {}, {})
    assert list(report.loss) == ["int4", "int8", "float32"]
    assert report.line()["accuracy"] == {"received": {}, "trained": {}, "server": {}}


def test_losses_are_means_over_the_clients_of_a_width(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    transport = FakeTransport(answers(given, tmp_path))
    report, _ = run_round(given, start, transport)
    losses = [decode_update(transport.came[n]).metrics["loss"] for n in range(5)]
    assert report.loss == pytest.approx(
        {"int4": losses[4], "int8": (losses[0] + losses[2]) / 2, "float32": (losses[1] + losses[3]) / 2}
    )


def test_with_local_gains_no_two_float_clients_have_the_same_model(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    local = replace(given.scene.local, float32=FloatSettings(gains="local"))
    given = replace(given, scene=replace(given.scene, local=local))
    _, second = run_round(given, start, FakeTransport(answers(given, tmp_path)))
    assert asked(given, second) == [(1, 1), (1, 1), (0, 1), (1, 1), (1, 1)]
