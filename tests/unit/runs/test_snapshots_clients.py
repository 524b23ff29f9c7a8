"""Samples of the clients' weights: of whom they are kept, and that they are what a client holds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from prowd.device.scene import Scene
from prowd.federation.client import ClientRuntime
from prowd.federation.engine import Federation, run_round
from prowd.methods import METHODS, FedAvg, Local
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.numbers.quantize import QTensor, ternarize
from prowd.runs.snapshots import (
    MOST_CLIENTS,
    Snapshot,
    Snapshots,
    client_files,
    read_snapshot,
)
from prowd.wire import decode_update, encode_task
from tests.unit.scenes import INT2, INT4, INT8, INT16, Answer, FakeTransport, asked, device, liftable, same, scene


@pytest.mark.parametrize("clients", [1, 2, 63, 64, 65, 127, 128, 129, 1000, 12345])
def test_a_large_federation_keeps_those_of_some_clients(clients: int) -> None:
    given = Snapshots(Path("nowhere"), (3,), cohort=clients)
    chosen = [client for client in range(clients) if given.wants_client(client)]
    assert len(chosen) <= MOST_CLIENTS
    assert len(chosen) >= min(clients, MOST_CLIENTS // 2)
    assert chosen[0] == 0
    assert len({b - a for a, b in itertools.pairwise(chosen)}) <= 1, "evenly spread"
    few = Snapshots(Path("nowhere"), (3,), cohort=min(clients, 10))
    assert all(few.wants_client(client) for client in range(clients)), "of a small cohort all"


def watched(given: Scene, name: str, folder: Path, snapshots: Snapshots | None) -> Answer:
    """Simulated clients that do what they are asked, and of whose weights samples are kept."""
    method = METHODS[name]()

    def answer(client: int, message: bytes) -> bytes:
        own = replace(device(given.clients[client], folder / "memories"), snapshots=snapshots)
        return ClientRuntime(given, method, own).handle(message)

    return answer


MIXED = replace(scene(INT4, INT16, FLOAT32, steps=4, architecture=liftable()), buffer=torch.zeros(2, 2, 8, 8))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_leaves_samples_of_its_clients(name: str, tmp_path: Path) -> None:
    given, snapshots = Federation(MIXED, METHODS[name](), rounds=3, cohort=3), Snapshots(tmp_path / "s", (0, 2))
    states = []
    for kept_in in (snapshots, None):
        state = given.method.init(MIXED)
        transport = FakeTransport(watched(MIXED, name, tmp_path / str(kept_in is None), kept_in))
        for _ in range(3):
            _, state = run_round(given, state, transport)
        states.append(state)
    assert same(states[0].model, states[1].model), "and nothing comes of it"
    assert same(states[0].memory, states[1].memory)
    assert list(states[0].model) == list(given.method.init(MIXED).model), "the server's are in the network's order too"
    assert {round_: list(files) for round_, files in client_files(tmp_path / "s").items()} == {2: [0, 1, 2]}
    for client, path in client_files(tmp_path / "s")[2].items():
        found = read_snapshot(path)
        assert found.width == MIXED.clients[client].width
        assert found.shapes == {name: list(shape) for name, shape in MIXED.architecture.shapes.items()}
        assert {name: len(values) for name, values in found.values.items()} == {
            "conv.weight": 288,
            "lift.weight": 1024,
            "fc.weight": 48,
        }
        assert all(len(set(values.tolist())) > 3 for values in found.values.values()), "weights as they are held"


def trained(given: Scene, client: int, folder: Path) -> tuple[Snapshot, Mapping[str, QTensor]]:
    """What is kept of a client's round, and what it sends."""
    method, spec = FedAvg(), given.clients[client]
    task = asked(given, spec, method.dispatch(given, method.init(given), spec))
    own = replace(device(spec, folder), snapshots=Snapshots(folder, (1,)))
    update = decode_update(ClientRuntime(given, method, own).handle(encode_task(task).join()))
    return read_snapshot(client_files(folder)[1][client]), update.weights


def flat(weights: Mapping[str, QTensor]) -> dict[str, Tensor]:
    """Values without the gains."""
    return {name: tensor.value().flatten() for name, tensor in weights.items() if name.endswith(".weight")}


@pytest.mark.parametrize("width", [INT4, INT8, INT16, FLOAT32])
def test_a_sample_is_what_the_client_holds_after_training(width: Bitwidth, tmp_path: Path) -> None:
    found, sent = trained(replace(scene(width, steps=4), uplink="native"), 0, tmp_path)
    assert same(found.values, flat(sent))


def test_a_sample_is_not_what_an_uplink_of_two_bits_makes_of_it(tmp_path: Path) -> None:
    found, sent = trained(scene(INT8, steps=4), 0, tmp_path)
    assert {tensor.width for tensor in sent.values()} == {INT2}
    held = {name: QTensor((values * INT8.steps).to(torch.int16), INT8) for name, values in found.values.items()}
    assert same({name: ternarize(tensor).value() for name, tensor in held.items()}, flat(sent))
    assert not same(found.values, flat(sent))


def test_local_keeps_what_it_remembers(tmp_path: Path) -> None:
    given, method = scene(INT8), Local()
    own = replace(device(given.clients[0], tmp_path / "memory"), snapshots=Snapshots(tmp_path / "s", (1,)))
    method.train(given, asked(given, own.spec, {}), own)
    remembered = own.memory.load(2)
    assert remembered is not None
    assert same(read_snapshot(client_files(tmp_path / "s")[1][0]).values, flat(remembered))
