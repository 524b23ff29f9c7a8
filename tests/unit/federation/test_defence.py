"""One bad device among ten: refused, clipped or capped, named and counted, and the round goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from prowd.device.scene import Defence
from prowd.federation.engine import Federation, measure, run_round
from prowd.methods import METHODS, FedAvg, FedPaq, Method, ProWD, ProWDPlus
from prowd.methods.prowd.dequantizer import DequantizerSettings
from prowd.numbers.averages import Rule
from prowd.wire import decode_update, encode_update
from tests.unit.federation.bad_devices import (
    HIGH,
    LOW,
    OFF,
    Change,
    constant,
    distance,
    every,
    ones,
    play,
    ten,
    times,
)
from tests.unit.scenes import FakeTransport, blobs, honest, same

# What a step cannot do


@pytest.mark.parametrize("change", [every(times(1e6)), every(constant(1e10))], ids=["times", "constant"])
def test_prowd_goes_on_without_a_client_that_is_farther_away_than_steps_can_take_it(
    change: Change, tmp_path: Path
) -> None:
    given = ten(ProWD(dequantizer=DequantizerSettings(module=4, growth=2, epochs=1, images=4)))
    report, state = play(given, tmp_path, {HIGH: change}, rounds=2)
    (absence,) = report.clients.refused
    assert (absence.client, absence.width) == (HIGH, "float32")
    assert "from what was sent; accepted: to " in absence.reason
    assert "as far as 4 steps can go" in absence.reason
    assert all(bool(tensor.isfinite().all()) for tensor in (*state.model.values(), *state.memory.values()))


@pytest.mark.parametrize("method", [FedAvg(), FedPaq(), ProWDPlus()], ids=lambda method: method.name)
@pytest.mark.parametrize("tensor", ["fc.gain", "b.gain"])
def test_gains_are_bounded_by_what_a_step_can_do_and_their_sender_is_named(
    method: Method, tensor: str, tmp_path: Path
) -> None:
    report, _ = play(ten(method), tmp_path, {HIGH: every(constant(2.0**60), tensor)})
    assert [absence.client for absence in report.clients.refused] == [HIGH]
    assert f"{tensor!r} is " in report.clients.refused[0].reason


def test_what_steps_can_do_follows_the_task() -> None:
    given = ten().scene
    reach = given.local.float32.reach(given.architecture, 4, 0.5)
    assert reach["fc.gain"] == pytest.approx(4 * 0.5 * 2 / 0.1 * 0.02)
    assert reach["fc.weight"] == pytest.approx(4 * 0.5 * 2 / 0.1 * 0.03 * given.architecture.alphas[2] ** 2)


# Metrics


@pytest.mark.parametrize("loss", [1.7e308, -1.0])
def test_a_loss_that_is_none_is_refused(loss: float, tmp_path: Path) -> None:
    liar: Change = lambda update: replace(update, metrics={**update.metrics, "loss": loss})  # noqa: E731
    report, _ = play(ten(), tmp_path, {0: liar, 1: liar})
    assert [(one.client, f"metric 'loss' is {loss}" in one.reason) for one in report.clients.refused] == [
        (0, True),
        (1, True),
    ]
    assert report.loss["int8"] < 100


# How far a client may move


@pytest.mark.parametrize("uplink", ["ternary", "native"])
@pytest.mark.parametrize("name", [name for name in METHODS if name != "local"])
def test_honest_rounds_are_the_same_with_and_without_a_defence(name: str, uplink: str, tmp_path: Path) -> None:
    method = METHODS[name]()
    if isinstance(method, ProWD):
        method = replace(method, dequantizer=DequantizerSettings(module=4, growth=2, epochs=1, images=4))
    report, state = play(ten(method, uplink=uplink), tmp_path / "on", {}, rounds=2)
    _, plain = play(ten(method, uplink=uplink, defence=OFF), tmp_path / "off", {}, rounds=2)
    assert same(state.model, plain.model)
    assert (report.clients.limited, report.clients.refused) == ([], [])


@pytest.mark.parametrize("uplink", ["ternary", "native"])
@pytest.mark.parametrize("method", [FedAvg(), FedPaq(), ProWDPlus()], ids=lambda method: method.name)
@pytest.mark.parametrize("client", [LOW, HIGH])
def test_a_client_that_sends_one_everywhere_moves_the_model_by_a_bounded_step(
    client: int, method: Method, uplink: str, tmp_path: Path
) -> None:
    given = ten(method, uplink=uplink)
    report, state = play(given, tmp_path / "on", {client: every(ones)})
    _, plain = play(given, tmp_path / "honest", {})
    _, spoiled = play(ten(method, uplink=uplink, defence=OFF), tmp_path / "off", {client: every(ones)})
    (limit,) = report.clients.limited
    assert (limit.client, limit.what, report.clients.refused) == (client, "clipped", [])
    assert "tensors moved too far" in limit.reason
    assert distance(state, plain) < 0.7 * distance(spoiled, plain)
    assert report.held() == [f"round 1: client {client} ({limit.width}) clipped: {limit.reason}"]


def test_a_width_with_two_clients_has_no_median_to_be_held_to(tmp_path: Path) -> None:
    given = ten()
    two = replace(given.scene, clients=given.scene.clients[3:])
    few = Federation(replace(two, clients=tuple(replace(c, id=n) for n, c in enumerate(two.clients))), FedAvg(), 1, 7)
    report, _ = play(few, tmp_path, {0: every(ones)})
    assert report.clients.limited == []


def test_with_everything_off_what_came_is_what_is_averaged(tmp_path: Path) -> None:
    given = ten(defence=OFF)
    answer = honest(given.scene, given.method, tmp_path)

    def answers(client: int, message: bytes) -> bytes | None:
        reply = answer(client, message)
        return encode_update(every(ones)(decode_update(reply))) if client == LOW and reply is not None else reply

    sent = FakeTransport(answers)
    report, state = run_round(given, given.method.init(given.scene), sent)
    updates = [decode_update(sent.came[n]) for n in range(10)]
    assert same(state.model, FedAvg().aggregate(given.scene, given.method.init(given.scene), updates).model)
    assert report.held() == []


# Robust averages


@pytest.mark.parametrize("method", [FedAvg(), FedPaq(), ProWDPlus()], ids=lambda method: method.name)
@pytest.mark.parametrize("rule", ["median", "trimmed:0.3", "krum"])
def test_three_of_ten_do_not_carry_a_robust_average_away(method: Method, rule: str, tmp_path: Path) -> None:
    robust = Defence(cap=None, clip=None, robust=Rule.parse(rule))
    bad = dict.fromkeys((0, 1, 9), every(ones))
    _, plain = play(ten(method, defence=robust), tmp_path / "honest", {})
    _, state = play(ten(method, defence=robust), tmp_path / "robust", bad)
    _, spoiled = play(ten(method, defence=OFF), tmp_path / "off", bad)
    _, mean = play(ten(method, defence=OFF), tmp_path / "mean", {})
    assert distance(state, plain) < distance(spoiled, mean)


@pytest.mark.parametrize("method", [FedAvg(), FedPaq(), ProWDPlus()], ids=lambda method: method.name)
def test_those_of_a_width_that_are_farthest_from_the_others_are_left_out(method: Method, tmp_path: Path) -> None:
    given = ten(method, defence=Defence(cap=None, clip=None, robust=Rule.parse("trimmed:0.3")))
    answer, bad = honest(given.scene, given.method, tmp_path), every(ones)

    def answers(client: int, message: bytes) -> bytes | None:
        reply = answer(client, message)
        return encode_update(bad(decode_update(reply))) if client in (0, 1, 9) and reply is not None else reply

    sent, start = FakeTransport(answers), given.method.init(given.scene)
    report, state = run_round(replace(given, quorum=10), start, sent)
    trimmed = {limit.client: limit for limit in report.clients.limited}
    assert {limit.what for limit in trimmed.values()} == {"trimmed"}
    assert [*sorted(trimmed)][:2] == [0, 1]
    assert len(trimmed) == 4, "two of five, of either width"
    assert 9 in trimmed
    assert trimmed[0].reason.endswith("times as far from the others of its width as usual; 0.3 are left out")
    updates = [decode_update(sent.came[n]) for n in range(10) if n not in trimmed]
    assert same(state.model, method.aggregate(given.scene, start, updates).model)
    assert len(report.traffic.clients) == 10


def test_of_a_method_that_sends_nothing_nobody_is_left_out(tmp_path: Path) -> None:
    given = ten(METHODS["local"](), defence=Defence(robust=Rule.parse("trimmed:0.4")))
    report, _ = play(given, tmp_path, {})
    assert report.clients.limited == []


# What devices say of themselves


def test_the_server_measures_its_model_whatever_devices_say(tmp_path: Path) -> None:
    boast: Change = lambda update: replace(  # noqa: E731
        update, metrics={**update.metrics, "accuracy_trained": 1.0, "accuracy_received": 1.0}
    )
    given = replace(ten(), holdout=blobs(30, 99))
    report, state = play(given, tmp_path / "boasting", {0: boast})
    plain, _ = play(given, tmp_path / "honest", {})
    assert report.accuracy.received["int8"] == 1.0, "what a device says, as before"
    assert report.accuracy.server == plain.accuracy.server == measure(given, state)
