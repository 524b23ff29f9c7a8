"""How much one device counts for among ten, whatever it claims."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from prowd.device.scene import ClientSpec, Defence
from prowd.federation.engine import Federation, run_round
from prowd.federation.report import Limit
from prowd.methods import METHODS, FedAvg, ProWD
from prowd.methods.prowd.dequantizer import DequantizerSettings
from prowd.wire import Update, decode_update, encode_update
from tests.unit.federation.bad_devices import (
    HIGH,
    Change,
    every,
    ones,
    play,
    ten,
)
from tests.unit.scenes import FakeTransport, honest, same


def claims(given: Federation, examples: int) -> Federation:
    clients = tuple(
        ClientSpec(client.id, client.width, examples) if client.id == HIGH else client for client in given.scene.clients
    )
    return replace(given, scene=replace(given.scene, clients=clients))


def boasts(
    given: Federation, folder: Path, change: Change = lambda update: update
) -> tuple[FakeTransport, list[Limit]]:
    """A round in which a device with twelve examples says that it has 2^62; what came, and whom that touched."""
    answer = honest(replace(given.scene, clients=ten().scene.clients), given.method, folder)

    def answers(client: int, message: bytes) -> bytes | None:
        reply = answer(client, message)
        if reply is None or client != HIGH:
            return reply
        return encode_update(replace(change(decode_update(reply)), num_examples=2**62))

    sent = FakeTransport(answers)
    report, state = run_round(given, given.method.init(given.scene), sent)
    bound = report.clients.limited[-1]
    assert (bound.client, bound.what, report.clients.refused) == (HIGH, "capped", [])
    counted = int(bound.reason.split("counted: ")[1].split(",")[0])
    if len(report.clients.limited) == 1:  # nothing was clipped, so that what came is what was averaged
        updates = [replace(decode_update(sent.came[n]), num_examples=counted if n == HIGH else 12) for n in range(10)]
        assert same(state.model, FedAvg().aggregate(given.scene, given.method.init(given.scene), updates).model)
    return sent, report.clients.limited


def test_who_claims_more_examples_than_all_counts_for_four_times_the_median(tmp_path: Path) -> None:
    given = claims(ten(defence=Defence(clip=None)), 2**62)
    _, (limit,) = boasts(given, tmp_path)
    assert limit.reason == f"{2**62} examples; counted: 48, 4 times the median of all clients"


def test_the_farther_it_moves_the_fewer_examples_it_counts_for(tmp_path: Path) -> None:
    """Share times movement is bounded by that of the median client at the bound of the clip."""
    given = claims(ten(), 2**62)
    sent, (limit,) = boasts(given, tmp_path)
    model = given.method.init(given.scene).model
    norms = [
        {
            name: float((tensor.value() - model[name]).norm())
            for name, tensor in decode_update(sent.came[n]).weights.items()
        }
        for n in range(5, 10)
    ]
    bounds = {name: max(2 * median(one[name] for one in norms), 0.3 * float(model[name].norm())) for name in norms[0]}
    room = min(bounds[name] / norms[-1][name] for name in bounds)
    assert 1 < room < 4
    assert f"counted: {int(12 * room)}, {room:.3g} times the median" in limit.reason
    assert limit.reason.endswith(", as far as it moved")


def test_who_is_clipped_counts_for_no_more_than_the_median(tmp_path: Path) -> None:
    _, limits = boasts(claims(ten(), 2**62), tmp_path, every(ones))
    assert [limit.what for limit in limits] == ["clipped", "capped"]
    assert f"{2**62} examples; counted: 12, 1 times the median" in limits[1].reason


@pytest.mark.parametrize("name", [name for name in METHODS if name != "local"])
def test_uniform_weighting_is_for_every_method(name: str, tmp_path: Path) -> None:
    method = METHODS[name]()
    if isinstance(method, ProWD):
        method = replace(method, dequantizer=DequantizerSettings(module=4, growth=2, epochs=1, images=4))
    given = ten(method)
    clients = tuple(replace(client, num_examples=12 + client.id) for client in given.scene.clients)
    uneven = replace(given, scene=replace(given.scene, clients=clients))
    defence = replace(Defence(), weighting="uniform")
    uniform = replace(uneven, scene=replace(uneven.scene, defence=defence))
    sent = FakeTransport(honest(uniform.scene, method, tmp_path / "a"))
    _, state = run_round(uniform, method.init(uniform.scene), sent)
    updates = [replace(decode_update(sent.came[n]), num_examples=1) for n in range(10)]
    assert same(state.model, method.aggregate(uniform.scene, method.init(uniform.scene), updates).model)
    _, other = play(uneven, tmp_path / "b", {})
    assert not same(state.model, other.model)


@pytest.mark.parametrize("against", [True, False])
def test_who_moves_against_the_others_may_go_as_far_as_the_median(against: bool, tmp_path: Path) -> None:
    given = ten()
    answer = honest(given.scene, given.method, tmp_path)
    model = given.method.init(given.scene).model

    def answers(client: int, message: bytes) -> bytes | None:
        reply = answer(client, message)
        return encode_update(thirtyfold(decode_update(reply))) if client == HIGH and reply is not None else reply

    def thirtyfold(update: Update) -> Update:
        times = -30 if against else 30
        far = {n: model[n] + times * (tensor.value() - model[n]) for n, tensor in update.weights.items()}
        return replace(update, weights={n: replace(tensor, codes=far[n]) for n, tensor in update.weights.items()})

    sent = FakeTransport(answers)
    report, _ = run_round(given, given.method.init(given.scene), sent)
    (limit,) = report.clients.limited
    assert (limit.client, limit.what) == (HIGH, "clipped")
    ratios = []
    for name in decode_update(sent.came[HIGH]).weights:
        norms = [float((decode_update(sent.came[n]).weights[name].value() - model[name]).norm()) for n in range(5, 10)]
        bound = median(norms) if against else max(2 * median(norms), 0.3 * float(model[name].norm()))
        ratios.append(norms[-1] / bound)
    assert f"by {max(ratios):.3g} times the bound" in limit.reason
