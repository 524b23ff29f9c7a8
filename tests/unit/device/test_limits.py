"""A device's limits: refused before anything is allocated, by an estimate that is held against what rounds take."""

from __future__ import annotations

import multiprocessing as mp
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from prowd.device import limits
from prowd.device.limits import MOST_STEPS, Limits, Load, memory_needed
from prowd.device.memory import ClientMemory
from prowd.device.scene import ClientSpec, LocalSettings, Scene
from prowd.device.training import Examples
from prowd.errors import ConfigError
from prowd.federation.client import ClientRuntime
from prowd.methods import Device, FedAvg
from prowd.nets.architecture import Architecture, Conv, Flatten, Linear, MaxPool
from prowd.nets.lowbit.kernels import KernelChoice, why_not_c99
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.wire import Task, encode_task
from tests.unit.scenes import INT8

CPU = torch.device("cpu")
SMALL = Architecture((Conv("a", 1, 4), Flatten(), Linear("b", 256, 10, relu=False)), (1, 8, 8))
NETWORKS = {
    "convolutions": Architecture(
        (Conv("a", 3, 32), Conv("b", 32, 48), MaxPool(), Flatten(), Linear("c", 48 * 256, 10, relu=False)), (3, 32, 32)
    ),
    "weights": Architecture(
        (Flatten(), Linear("a", 64, 4000), Linear("b", 4000, 1500), Linear("c", 1500, 10, relu=False)), (1, 8, 8)
    ),
    "padding": Architecture(
        (Conv("a", 1, 4, padding=(250, 250), stride=(2, 2)), MaxPool((8, 8), (8, 8)), Flatten(),
         Linear("c", 4 * 31 * 31, 10, relu=False)), (1, 8, 8)
    ),
}  # fmt: skip
KINDS: list[tuple[str, KernelChoice, Any]] = [
    ("float32", "auto", "float32"), ("int8", "auto", "compiled"), ("int16", "simulated", "simulated"),
]  # fmt: skip
LOAD = Load(steps=2, batch=48, tests=400)


def measured(pipe: Connection[Any, Any], network: Architecture, width: str, kernel: KernelChoice) -> None:
    """In a process of its own: the most memory that a round takes beyond what a small one has taken before it."""
    torch.set_num_threads(1)
    local_round(SMALL, width, kernel, Load(1, 4, 8))
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    local_round(network, width, kernel, LOAD)
    pipe.send(status("VmHWM") - before)


def status(key: str) -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key)]
    return int(line.split()[1]) * 1024


def local_round(network: Architecture, width: str, kernel: KernelChoice, load: Load) -> None:
    def examples(count: int) -> Examples:
        return Examples(torch.zeros(count, *network.input_shape, dtype=torch.uint8), torch.arange(count) % 10)

    spec, method = ClientSpec(0, Bitwidth.parse(width), load.batch), FedAvg()
    local = LocalSettings(steps=load.steps, batch=load.batch, augment=("crop", "flip", "rotate"))
    scene = Scene(network, (spec,), local=local, kernel=kernel)
    weights = method.dispatch(scene, method.init(scene), spec)
    task = Task(1, 0, 0, weights, {"measure_received": 1.0, "measure_trained": 1.0}, scene.work(spec.width, 1))
    with tempfile.TemporaryDirectory() as folder:
        memory = ClientMemory(Path(folder), 0, 0)
        device = Device(spec=spec, train=examples(load.batch), test=examples(load.tests), memory=memory)
        ClientRuntime(scene, method, device).handle(encode_task(task).join())


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")
@pytest.mark.parametrize(("width", "kernel", "arithmetic"), KINDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_estimate_covers_what_a_round_takes(name: str, width: str, kernel: KernelChoice, arithmetic: Any) -> None:
    network = NETWORKS[name]
    if arithmetic == "compiled" and why_not_c99(CPU, network):
        pytest.skip("no compiled kernel here")
    ours, theirs = mp.get_context("spawn").Pipe()
    process = mp.get_context("spawn").Process(target=measured, args=(theirs, network, width, kernel))
    process.start()
    theirs.close()
    found = ours.recv()
    process.join()
    estimate = memory_needed(network, arithmetic, LOAD)
    assert found <= estimate, f"{found / 1e6:.0f} MB of {estimate / 1e6:.0f}"
    assert estimate <= 16 * found, f"{found / 1e6:.0f} MB of {estimate / 1e6:.0f}: too careful to be of use"


@pytest.mark.parametrize("width", [FLOAT32, INT8])
def test_more_of_anything_needs_more(width: Bitwidth) -> None:
    network = NETWORKS["convolutions"]
    for arithmetic in ("float32", "compiled", "simulated"):
        base = memory_needed(network, arithmetic, LOAD)
        assert memory_needed(network, arithmetic, Load(2, 96, 400)) > base
        assert memory_needed(network, arithmetic, Load(20_000, 48, 400)) > base + 20_000 * 48 * 8
        assert memory_needed(network, arithmetic, Load(2, 48, 1)) <= base
        assert memory_needed(SMALL, arithmetic, LOAD) < base


def test_the_paper_s_network_passes_on_a_small_computer() -> None:
    """VGG-7 at a quarter of its width, as in the evidence presets, with 2 GB of which half may be used."""
    layers = (
        Conv("1", 3, 32), Conv("2", 32, 32), MaxPool(), Conv("3", 32, 64), Conv("4", 64, 64), MaxPool(),
        Conv("5", 64, 128), Conv("6", 128, 128), MaxPool(), Flatten(), Linear("7", 512, 256),
        Linear("8", 256, 10, relu=False),
    )  # fmt: skip
    network, bounds = Architecture(layers, (3, 16, 16)), Limits(MOST_STEPS, 10**9)
    for width in (FLOAT32, INT8, Bitwidth(16)):
        for kernel in ("auto", "simulated"):
            bounds.check(network, width, Load(200, 64, 10_000), kernel, CPU)


@pytest.mark.parametrize(
    ("network", "load", "message"),
    [
        (SMALL, Load(2**62, 8, 8), r"^steps: 4611686018427387904; accepted: up to 100000, the limit of this device$"),
        (SMALL, Load(1, 2**40, 8), r"^memory: about \d+ MB .* in batches of 1099511627776; accepted: up to 500 MB"),
        (SMALL, Load(99_999, 1024, 8), r"^memory: "),
        (Architecture((Conv("a", 1, 4, padding=(3000, 3000)), Flatten(), Linear("b", 4 * 6006**2, 2, relu=False)),
                      (1, 8, 8)), Load(1, 1, 1), r"^memory: "),
        (Architecture((Conv("a", 1, 1, padding=(9999, 9999), stride=(9999, 9999)), Flatten(),
                       Linear("b", 9, 2, relu=False)), (1, 8, 8)), Load(1, 1, 1), r"^memory: "),
        (Architecture((Flatten(), Linear("b", 64, 2**36, relu=False)), (1, 8, 8)), Load(1, 1, 1), r"^memory: "),
    ],
    ids=["steps", "batch", "order", "padding", "padding-and-stride", "weights"],
)  # fmt: skip
@pytest.mark.parametrize("width", [FLOAT32, INT8])
def test_what_goes_beyond_is_refused_before_a_kernel_is_even_looked_for(
    network: Architecture, load: Load, message: str, width: Bitwidth, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "why_not_int8", None)
    monkeypatch.setattr(limits, "why_not_c99", None)
    with pytest.raises(ConfigError, match=message):
        Limits(MOST_STEPS, 500 * 10**6).check(network, width, load, "auto", CPU)


def test_half_of_a_machine_is_the_default() -> None:
    found = Limits.of_this_machine()
    assert found.steps == MOST_STEPS
    assert 2**27 < found.memory < 2**50


def test_the_size_of_a_message_is_bounded_too() -> None:
    Limits(1, 1600).check_message(100)
    with pytest.raises(ConfigError, match="a task of 101 bytes; accepted: up to 100"):
        Limits(1, 1600).check_message(101)
