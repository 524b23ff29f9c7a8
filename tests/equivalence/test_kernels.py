"""The kernel of s-bit clients is a matter of speed: the same seed gives the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from prowd.config.schema import load_config
from prowd.nets.architecture import Architecture, Conv, Flatten, Linear, MaxPool
from prowd.nets.lowbit.kernels import KernelChoice
from prowd.nets.lowbit.loss import Loss
from prowd.nets.lowbit.model import LowBitModel, LowBitSettings
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import QTensor
from prowd.numbers.streams import Stream
from prowd.runs.run import Session
from tests.kernels import needs_c99, needs_int8
from tests.runs import expected, outcome, run_tiny

pytestmark = [needs_int8, needs_c99]
FRONT = (Conv("a", 3, 20), MaxPool(), Conv("b", 20, 7, (3, 2), (2, 1), (1, 0), relu=False), Flatten())
NET = Architecture((*FRONT, Linear("c", 28, 33), Linear("d", 33, 5, relu=False)), (3, 8, 7))


@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
@pytest.mark.parametrize("pull", [0.0, 0.3])
@pytest.mark.parametrize("bits", [2, 3, 5, 8, 9, 12, 16])
def test_a_local_round_is_the_same_with_any_kernel(bits: int, pull: float, loss: Loss) -> None:
    random, width = torch.Generator().manual_seed(bits), Bitwidth(bits)
    floats = {name: (2 * torch.rand(shape, generator=random) - 1) * width.steps for name, shape in NET.shapes.items()}
    received = {name: QTensor(tensor.to(torch.int16), width) for name, tensor in floats.items()}
    sizes = [(size, *NET.input_shape) for size in [8] * 15 + [3] * 5]
    images = [torch.randint(256, size, generator=random, dtype=torch.uint8) for size in sizes]
    labels = [torch.randint(NET.classes, (len(batch),), generator=random) for batch in images]

    def correction(values: Sequence[Tensor]) -> list[Tensor]:
        return [pull * (value - tensor.value()) for value, tensor in zip(values, received.values(), strict=True)]

    def train(kernel: KernelChoice) -> tuple[list[float], list[list[int]]]:
        local = LowBitSettings(rate=5.3, loss=loss)
        model = LowBitModel(NET, width, received, local, Stream.of(3, "test"), local.rate_at(width), kernel)
        losses = []
        for batch in zip(images, labels, strict=True):
            model.step(*batch, correction if pull else None)
            losses.append(model.loss())
        return losses, [tensor.codes.flatten().tolist() for tensor in model.weights().values()]

    losses, weights = train("simulated")
    assert (losses, weights) == train("c99")
    assert (losses, weights) == train("int8")
    assert len(set(losses)) > 5
    assert all(
        codes != tensor.codes.flatten().tolist() for codes, tensor in zip(weights, received.values(), strict=True)
    )


@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_a_run_is_the_same_with_any_kernel(method: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"clients": "int4:1, int8:2, int12:1, float32:1", "method": method, "rounds": 2}
    for kernel in ("int8", "c99", "simulated"):
        run_tiny(tmp_path / kernel, kernel=kernel, steps=3, **settings)
    assert outcome(tmp_path / "int8") == outcome(tmp_path / "c99") == outcome(tmp_path / "simulated")


@pytest.mark.parametrize("model", ["resnet8", "dscnn"])
def test_a_run_with_shortcuts_or_depthwise_layers_is_the_same_with_any_kernel(model: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"clients": "int4:1, int8:2, float32:1", "model": model, "rounds": 2, "steps": 3}
    for kernel in ("auto", "c99", "simulated"):  # auto leaves such networks to c99, with a line in the log
        run_tiny(tmp_path / kernel, kernel=kernel, **settings)
    assert outcome(tmp_path / "auto") == outcome(tmp_path / "c99") == outcome(tmp_path / "simulated")


def test_a_run_may_be_resumed_with_another_kernel(tmp_path: Path) -> None:
    for number, (first, second) in enumerate([("int8", "c99"), ("simulated", "int8"), ("c99", "auto")]):
        path = run_tiny(tmp_path / str(number), kernel=first, rounds=1).path
        Session.resume(path, {"kernel": second, "rounds": 2}).run(workers=1)
        assert load_config(path / "config.toml").kernel == second
        assert outcome(path) == expected(rounds=2)
