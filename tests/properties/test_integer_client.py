"""A whole local round of the package against the oracle in Python integers, from image bytes to codes and loss."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prowd.data.augment import COSINES, SINES
from prowd.device.scene import ClientSpec, LocalSettings, Scene
from prowd.device.training import Examples, build_model, fit
from prowd.nets.architecture import Add, Architecture, AvgPool, Conv, Flatten, Linear, MaxPool, Take
from prowd.nets.lowbit.model import LowBitSettings
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import QTensor
from prowd.wire import Task
from tests.reference import integer_client as oracle

TURNS = list(zip(COSINES, SINES, strict=True))
KERNELS = ("simulated", "int8", "c99")
NETS = {
    "odd shapes": Architecture(
        (
            Conv("a", 3, 5, kernel=(3, 2), stride=(2, 1), padding=(1, 0)),
            MaxPool((2, 2), (2, 2)),
            Flatten(),
            Linear("b", 5 * 2 * 3, 4),
            Linear("c", 4, 3, relu=False),
        ),
        (3, 8, 7),
    ),
    "overlapping windows": Architecture(
        (
            Conv("a", 1, 4),
            MaxPool((3, 3), (2, 2)),
            Conv("b", 4, 2, relu=False),
            Flatten(),
            Linear("c", 8, 2, relu=False),
        ),
        (1, 5, 5),
    ),
    "one channel": Architecture(
        (Conv("a", 1, 4), MaxPool((2, 1), (2, 2)), Conv("b", 4, 18), Flatten(), Linear("c", 108, 2, relu=False)),
        (1, 4, 5),
    ),
    "residual": Architecture(
        (
            Conv("a", 2, 4),
            Conv("b", 4, 4, relu=False, groups=4),
            Add(0, relu=True),
            Conv("c", 4, 6, stride=(2, 2), relu=False, groups=2),
            Take(2),
            Conv("d", 4, 6, (1, 1), (2, 2), (0, 0), relu=False),
            Add(3, relu=True),
            AvgPool((2, 2), (2, 2)),
            Flatten(),
            Linear("e", 6, 3, relu=False),
        ),
        (2, 4, 4),
    ),
    "rows only": Architecture(
        (Conv("a", 2, 3, (5, 1), padding=(2, 0)), MaxPool((2, 1), (2, 1)), Flatten(), Linear("b", 12, 3, relu=False)),
        (2, 8, 1),
    ),
    "one pixel": Architecture((Conv("a", 2, 3), Flatten(), Linear("b", 3, 3, relu=False)), (2, 1, 1)),
}

BEYOND_INT8 = ("overlapping windows", "residual")


def make_scene(net: str, width: Bitwidth, local: LocalSettings, seed: int, kernel: str) -> Scene:
    """A federation of one client."""
    return Scene(NETS[net], (ClientSpec(0, width, 5),), seed=seed, local=local, kernel=kernel)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("net", "kernel"),
    [(net, kernel) for net in NETS for kernel in KERNELS if kernel != "int8" or net not in BEYOND_INT8],
)
@settings(max_examples=25, deadline=None)
@given(
    bits=st.integers(2, 16),
    seed=st.integers(0, 2**64 - 1),
    batch=st.integers(1, 6),
    rate=st.sampled_from([0.01, 0.3, 1.0, 8.0, 13.0, 700.0]),
    loss=st.sampled_from(["cross-entropy", "cross-entropy", "squared"]),
    scale=st.sampled_from([0.5, 8.0, 64.0]),
    operations=st.sets(st.sampled_from(["crop", "flip", "rotate"])),
)
def test_a_round_is_the_oracles(
    net: str, kernel: str, bits: int, seed: int, batch: int, rate: float, loss: str, scale: float, operations: set[str]
) -> None:
    width = Bitwidth(bits)
    lowbit = LowBitSettings(rate=rate, loss=loss, logit_scale=scale)  # type: ignore[arg-type]
    local = LocalSettings(steps=3, batch=batch, augment=tuple(sorted(operations)), lowbit=lowbit)  # type: ignore[arg-type]
    scene = make_scene(net, width, local, seed, kernel)
    random = torch.Generator().manual_seed(seed >> 1)
    images = torch.randint(256, (5, *scene.architecture.input_shape), generator=random, dtype=torch.uint8)
    labels = torch.randint(scene.architecture.classes, (5,), generator=random)
    weights = {
        name: QTensor(
            torch.randint(-width.max_code, width.max_code + 1, shape, generator=random).to(torch.int16), width
        )
        for name, shape in scene.architecture.shapes.items()
    }
    task = Task(4, seed, 9, weights, work=scene.work(width, 4))
    model = build_model(scene, width, weights, task)
    found_loss = fit(model, Examples(images, labels), scene, task)
    eta = lowbit.rate_at(width)
    work = oracle.Work(
        seed, 4, 9, bits, 3, batch, (eta.mantissa, eta.exponent), int(scale * 2).bit_length() - 2, loss, local.augment
    )
    codes = [tensor.codes.flatten().tolist() for tensor in weights.values()]
    new, expected_loss = oracle.local_round(
        work, scene.architecture.layers, codes, images.tolist(), labels.tolist(), TURNS
    )
    assert [tensor.codes.flatten().tolist() for tensor in model.weights().values()] == new
    assert found_loss * 2**16 == expected_loss
