"""What a task tells a device to do, and the tasks that a device refuses to do."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from prowd.device.scene import Scene
from prowd.errors import WireError
from prowd.federation.client import ClientRuntime
from prowd.federation.engine import Federation, dispatch
from prowd.methods import FedAvg, FedGroupedAvg, Method
from prowd.nets import Architecture, Conv, Flatten, Linear, MaxPool
from prowd.nets.lowbit.model import LowBitSettings
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.numbers.quantize import Rate
from prowd.wire import Work, decode_task, decode_update, encode_task
from tests.unit.scenes import INT4, INT8, INT16, asked, device, dot, network, scene


def test_work_by_hand() -> None:
    given = scene(INT4, INT8, INT16, FLOAT32, steps=7, batch=3)
    digest = given.architecture.digest
    for width, rate in ((INT4, Rate(1, -1)), (INT8, Rate(1, 3)), (INT16, Rate(1, 11)), (FLOAT32, Rate(1, 0))):
        assert given.work(width, 1) == Work(7, 3, rate, digest)
        assert given.work(width, 1, factor=0.75).rate == Rate(3, rate.exponent - 2)


def test_integer_devices_get_the_nearest_rate_and_float_devices_the_factor_itself() -> None:
    given = scene(INT8, FLOAT32)
    local = replace(given.local, lowbit=LowBitSettings(rate=0.1), horizon=10)
    given = replace(given, local=local)
    for round_ in (1, 4, 10):
        pace = (1 + math.cos(math.pi * (round_ - 1) / 10)) / 2
        assert given.work(INT8, round_, 0.3).rate == Rate.nearest(0.1 * (0.3 * pace))
        assert given.work(FLOAT32, round_, 0.3).rate.value == 0.3 * pace


def works(given: Scene, method: Method) -> list[Work]:
    """What the engine tells each client of a first round."""
    federation = Federation(given, method, rounds=9, cohort=len(given.clients), evaluate_every=1)
    parcels, *_ = dispatch(federation, method.init(given), given.clients)
    return [decode_task(parcels[client.id].join()).work for client in given.clients]


def test_the_engine_tells_each_client_its_rate() -> None:
    given = scene(INT8, INT8, INT8, FLOAT32, INT4)
    plain = [given.work(client.width, 1) for client in given.clients]
    assert works(given, FedAvg()) == works(given, FedGroupedAvg(scale_rate=False)) == plain
    shares = [0.6, 0.6, 0.6, 0.2, 0.2]
    expected = [given.work(client.width, 1, share) for client, share in zip(given.clients, shares, strict=True)]
    assert works(given, FedGroupedAvg()) == expected


NETWORKS = [
    network(),
    dot(),
    dot(3),
    Architecture(network().layers, (2, 9, 9)),
    Architecture((Conv("conv", 2, 4), MaxPool((1, 1), (2, 2)), *network().layers[2:]), (2, 8, 8)),
    Architecture((Conv("conv", 2, 4, relu=False), *network().layers[1:]), (2, 8, 8)),
    Architecture((Flatten(), Linear("fd", 2, 2, relu=False)), (1, 1, 2)),
]


def test_networks_have_digests_of_their_own() -> None:
    digests = {one.digest for one in NETWORKS}
    assert len(digests) == len(NETWORKS)
    assert all(0 <= digest < 2**64 for digest in digests)
    assert network().digest == network().digest


def handled(width: Bitwidth, folder: Path, **changes: object) -> None:
    """Give a device a task whose work has been changed."""
    given = scene(width)
    spec, method = given.clients[0], FedAvg()
    task = asked(given, spec, method.dispatch(given, method.init(given), spec))
    task = replace(task, work=replace(task.work, **changes))  # type: ignore[arg-type]
    reply = ClientRuntime(given, method, device(spec, folder)).handle(encode_task(task).join())
    assert decode_update(reply).width == width


@pytest.mark.parametrize("width", [INT8, FLOAT32], ids=str)
def test_a_device_refuses_work_for_another_network(width: Bitwidth, tmp_path: Path) -> None:
    handled(width, tmp_path, steps=3, batch=50)
    for other in (0, dot().digest, network().digest ^ 1):
        with pytest.raises(WireError, match="network is"):
            handled(width, tmp_path, network=other)


@pytest.mark.parametrize(
    ("width", "changes", "field"),
    [
        (INT8, {"steps": 0}, "steps"),
        (FLOAT32, {"batch": 0}, "batch"),
        (INT8, {"rate": Rate(257, -5)}, "rate"),
        (INT8, {"rate": Rate(2**64 - 1, -60)}, "rate"),
        (INT8, {"rate": Rate(1, 257)}, "rate"),
        (INT16, {"rate": Rate(1, -257)}, "rate"),
        (FLOAT32, {"rate": Rate(2**53 + 1, -53)}, "rate"),
        (FLOAT32, {"rate": Rate(1, -1075)}, "rate"),
        (FLOAT32, {"rate": Rate(1, 972)}, "rate"),
    ],
)
def test_a_device_refuses_work_that_it_cannot_do(
    width: Bitwidth, changes: dict[str, object], field: str, tmp_path: Path
) -> None:
    with pytest.raises(WireError, match=field):
        handled(width, tmp_path, **changes)


@pytest.mark.parametrize("rate", [Rate(255, -256), Rate(255, 256), Rate(1, 0)])
def test_integer_devices_take_very_small_and_very_large_rates(rate: Rate, tmp_path: Path) -> None:
    handled(INT8, tmp_path, rate=rate)
    handled(INT16, tmp_path, rate=rate)
