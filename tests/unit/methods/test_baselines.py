"""The methods that ProWD is compared with: identities between them, and numbers derived by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from prowd.device.scene import ClientSpec, Scene
from prowd.federation.engine import Federation, dispatch, run_round
from prowd.methods import (
    METHODS,
    FedAvg,
    FedCom,
    FedComGate,
    FedGroupedAvg,
    FedGroupedAvgAsymmetric,
    FedPaq,
    FedProx,
    Method,
    ServerState,
)
from prowd.methods.movement import movement, scaled_codes
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.numbers.quantize import quantize
from prowd.numbers.streams import Stream
from prowd.wire import Update, decode_task
from tests.unit.scenes import (
    INT2,
    INT4,
    INT8,
    INT16,
    FakeTransport,
    asked,
    codes,
    dot,
    floats,
    honest,
    liftable,
    same,
    scene,
)

STREAM = Stream.of(0, "movement")


def played(method: Method, given: Scene, folder: Path, rounds: int = 2) -> ServerState:
    """The state after some rounds with honest clients."""
    federation = Federation(given, method, rounds=10**6, cohort=len(given.clients), evaluate_every=10**6)
    transport = FakeTransport(honest(given, method, folder))
    state = method.init(given)
    for _ in range(rounds):
        _, state = run_round(federation, state, transport)
    return state


def without_widths(state: ServerState) -> dict[str, Tensor]:
    """A grouped model of one width, under the names of a plain one."""
    return {name.partition("/")[2]: tensor for name, tensor in state.model.items()}


MIXED = replace(scene(INT4, INT8, FLOAT32, steps=4, architecture=liftable()), buffer=torch.zeros(2, 2, 8, 8))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("uplink", ["ternary", "native"])
def test_every_method_runs_with_mixed_widths_and_moves(name: str, uplink: str, tmp_path: Path) -> None:
    given = replace(MIXED, uplink=uplink)  # type: ignore[arg-type]
    method = METHODS[name]()
    state = played(method, given, tmp_path, rounds=3)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in state.model.values())
    assert same(state.model, method.init(given).model) == (name == "local")


# FedProx


def test_fedprox_without_a_pull_is_fedavg(tmp_path: Path) -> None:
    assert same(played(FedProx(mu=0), MIXED, tmp_path / "p").model, played(FedAvg(), MIXED, tmp_path / "a").model)


@pytest.mark.parametrize("width", [INT8, FLOAT32])
def test_fedprox_keeps_clients_nearer(width: Bitwidth, tmp_path: Path) -> None:
    given = replace(scene(width, steps=30), uplink="native")
    start = FedProx().init(given).model["fc.weight"]
    far = [
        float((played(FedProx(mu=mu), given, tmp_path / str(mu), rounds=1).model["fc.weight"] - start).norm())
        for mu in (0.0, 0.05, 0.5)
    ]
    assert far[0] > far[1] > far[2]


def test_fedprox_adds_the_gradient_of_its_term() -> None:
    given = replace(
        scene(INT8, FLOAT32, architecture=dot()), clients=(ClientSpec(0, INT8, 1), ClientSpec(1, FLOAT32, 1))
    )
    for client in given.clients:
        task = asked(given, client, {"fc.weight": floats(0.25, 0.25, 0.25, 0.25, shape=(2, 2))})
        (pull,) = FedProx(mu=0.5)._pull(given, task)([torch.full((2, 2), 0.75)])
        torch.testing.assert_close(pull, torch.full((2, 2), 0.5 * (0.75 - 0.25)))


# FedPAQ, FedCOM


def test_fedcom_with_step_one_is_fedpaq(tmp_path: Path) -> None:
    assert same(played(FedCom(gamma=1), MIXED, tmp_path / "c").model, played(FedPaq(), MIXED, tmp_path / "p").model)


def test_fedpaq_of_float_clients_is_fedavg_up_to_rounding(tmp_path: Path) -> None:
    given = scene(FLOAT32, FLOAT32, FLOAT32, steps=4)
    paq, avg = played(FedPaq(), given, tmp_path / "p"), played(FedAvg(), given, tmp_path / "a")
    for name, tensor in avg.model.items():
        torch.testing.assert_close(paq.model[name], tensor, rtol=1e-5, atol=1e-6)


def test_fedcom_steps_by_gamma_times_the_mean_movement() -> None:
    given = scene(INT8, FLOAT32, architecture=dot())
    low, high = given.clients
    model = {"fc.weight": floats(1, 1, 1, 1, shape=(2, 2)).codes, "fc.gain": floats(1, 1).codes}
    updates = [
        Update(1, 0, low.width, 12, {"fc.weight": codes(INT8, 64, 0, -64, 0, shape=(2, 2))}),
        Update(1, 1, high.width, 12, {"fc.weight": floats(0.5, 1, 0, 0, shape=(2, 2)), "fc.gain": floats(1, 2)}),
    ]
    found = FedCom(gamma=4).aggregate(given, ServerState(0, model), updates).model
    torch.testing.assert_close(found["fc.weight"], torch.tensor([[3.0, 3.0], [0.0, 1.0]]))
    torch.testing.assert_close(found["fc.gain"], torch.tensor([5.0, 9.0]))


@pytest.mark.parametrize("method", [FedCom(gamma=4), FedComGate(gamma=4)])
def test_clients_of_fedcom_learn_gamma_times_more_slowly(method: FedCom) -> None:
    given = scene(INT8, FLOAT32)
    parcels, *_ = dispatch(Federation(given, method, 1, 2), method.init(given), given.clients)
    rates = [decode_task(parcels[client.id].join(), 2**20).work.rate.value for client in given.clients]
    assert rates == [8 / 4, 1 / 4]


@pytest.mark.parametrize("target", [INT2, INT4, INT8])
def test_movements_are_unbiased_in_range_and_exact_where_they_fit(target: Bitwidth) -> None:
    received = codes(INT8, 0, 0, 0, 0, 100, -127)
    trained = codes(INT8, 1, -1, 3, 0, -120, 127)
    moved = (trained.codes - received.codes) / 128
    draws = torch.stack([movement(trained, received, target, STREAM, draw).value() for draw in range(4000)])
    sent = movement(trained, received, target, STREAM, 0)
    assert int(sent.codes.abs().max()) <= target.max_code
    error = (draws.mean(0) - moved).abs()
    assert bool((error <= 5 * draws.std(0) / 4000**0.5 + 1e-7).all())
    small = codes(INT8, target.max_code, -1, 0)
    assert torch.equal(movement(small, codes(INT8, 0, 0, 0), target, STREAM, 0).value(), small.value())


def test_movements_can_travel_in_the_uplink_s_width(tmp_path: Path) -> None:
    method, client = FedPaq(bits="uplink"), MIXED.clients[1]
    assert {slot.width for slot in method.expects(MIXED, client).values()} == {INT2}
    assert {slot.width for slot in method.expects(replace(MIXED, uplink="native"), client).values()} == {INT8}
    assert {slot.width for slot in FedPaq().expects(MIXED, client).values()} == {INT8}
    played(method, MIXED, tmp_path)


@pytest.mark.parametrize("width", [INT2, INT8, INT16, FLOAT32])
def test_scaled_codes_keep_what_codes_can_keep(width: Bitwidth) -> None:
    values = quantize(torch.tensor([0.5, -0.25, 0.0]), width).value() * 64
    assert torch.equal(scaled_codes(values, width).value(), values)
    assert torch.equal(scaled_codes(torch.zeros(3), width).value(), torch.zeros(3))


# Grouped


@pytest.mark.parametrize("method", [FedGroupedAvg(), FedGroupedAvgAsymmetric()])
@pytest.mark.parametrize("width", [INT8, FLOAT32])
def test_groups_of_one_width_are_fedavg(method: FedGroupedAvg, width: Bitwidth, tmp_path: Path) -> None:
    given = scene(width, width, steps=4)
    grouped = played(method, given, tmp_path / "g")
    assert same(without_widths(grouped), played(FedAvg(), given, tmp_path / "a").model)


def test_who_learns_from_whom() -> None:
    given = replace(scene(INT4, INT8, FLOAT32, architecture=dot()), uplink="native")
    updates = [
        Update(1, n, client.width, 12, {"fc.weight": quantize(torch.full((2, 2), value), client.width)})
        for n, (client, value) in enumerate(zip(given.clients, (0.5, 0.25, -0.75), strict=True))
    ]
    start = FedGroupedAvg().init(given)
    apart = FedGroupedAvg().aggregate(given, start, updates).model
    down = FedGroupedAvgAsymmetric().aggregate(given, start, updates).model
    for width, alone, above in (("int4", 0.5, 0.0), ("int8", 0.25, -0.25), ("float32", -0.75, -0.75)):
        torch.testing.assert_close(apart[f"{width}/fc.weight"], torch.full((2, 2), alone))
        torch.testing.assert_close(down[f"{width}/fc.weight"], torch.full((2, 2), above))
    kept = FedGroupedAvg().aggregate(given, start, updates[:1]).model
    assert torch.equal(kept["int8/fc.weight"], start.model["int8/fc.weight"]), "nobody spoke for int8"


def test_groups_train_at_the_rate_of_their_share(tmp_path: Path) -> None:
    given = scene(INT8, FLOAT32, steps=3)
    halved = replace(
        given.local,
        lowbit=replace(given.local.lowbit, rate=4.0),
        float32=replace(given.local.float32, lr=0.015, gain_lr=0.01),
    )
    scaled = played(FedGroupedAvg(), given, tmp_path / "s", rounds=1)
    plain = played(FedGroupedAvg(scale_rate=False), replace(given, local=halved), tmp_path / "p", rounds=1)
    assert same(scaled.model, plain.model)
