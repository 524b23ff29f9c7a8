"""An integer client's network: one step by hand, and that it learns at every width with either loss."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch

from prowd.device.training import accuracy
from prowd.methods.common import initial_state, quantized_model
from prowd.nets.lowbit.loss import Loss, cross_entropy, squared_error
from prowd.nets.lowbit.model import LowBitModel, LowBitSettings
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Weights
from prowd.numbers.streams import Stream
from tests.unit.scenes import INT8, blobs, codes, dot, network, scene

CPU = torch.device("cpu")


def start(bits: int) -> Weights:
    given = scene(Bitwidth(bits))
    return quantized_model(given, initial_state(given).model, given.clients[0])


def build(bits: int, settings: LowBitSettings | None = None, seed: int = 0) -> LowBitModel:
    width, local = Bitwidth(bits), settings or LowBitSettings()
    return LowBitModel(network(), width, start(bits), local, Stream.of(seed, "test"), local.rate_at(width))


def train(model: LowBitModel, steps: int) -> None:
    for number in range(steps):
        batch = blobs(12, seed=number)
        model.step(batch.images, batch.labels)


@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
@pytest.mark.parametrize("bits", [2, 4, 8, 16])
def test_learns(bits: int, loss: Loss) -> None:
    model, unseen = build(bits, LowBitSettings(loss=loss)), blobs(60, seed=99)
    assert accuracy(model, unseen, CPU) <= 0.5
    train(model, 10)
    first = model.loss()
    train(model, 50)
    assert model.loss() < 0.8 * first
    assert accuracy(model, unseen, CPU) >= (0.95 if bits > 2 else 0.7)


def test_a_step_by_hand() -> None:
    # Two inputs, two outputs, α = 1, S = 128. Q_Int2 of the codes is [[1, −1], [0, 0]]: 64/128 = ½, and 20/128 < ¼.
    weights = {"fc.weight": codes(INT8, 64, -64, 20, 0, shape=(2, 2))}
    image = torch.tensor([[[[64, -64]]]], dtype=torch.int8)
    for seed in range(10):
        settings = LowBitSettings(loss="squared")
        model = LowBitModel(dot(), INT8, weights, settings, Stream.of(seed, "test"), settings.rate_at(INT8))
        # Forward: Σ t·a = 128, over 2α is 64; the value ½ is shown times the logit scale 8.
        assert model.logits(image).tolist() == [[4.0, 0.0]]
        model.step(image, torch.tensor([1]))
        # The error is (64, −127): label 1 should give 127. Half the sum of squares, in units of 1/S².
        assert model.loss() == (64**2 + 127**2) / 2 / 128**2
        # Shift(127) = 128 leaves it as it is. g = e·a = [[4096, −4096], [−8128, 8128]], Shift(8128) = 8192, η = 8:
        # steps of ±4 exactly, and of 7.9375, which is 7 or 8.
        found = model.weights()["fc.weight"].codes.tolist()
        assert found[0] == [60, -60]
        assert found[1][0] in (27, 28)
        assert found[1][1] in (-7, -8)
    assert weights["fc.weight"].codes.tolist() == [[64, -64], [20, 0]], "what was received was changed"


@pytest.mark.parametrize(
    ("bits", "scaling", "expected"),
    [(2, "width", 0.125), (8, "width", 8), (16, "width", 2048), (2, "constant", 8), (16, "constant", 8)],  # 8·2^(s−8)
)
def test_rate_by_width(bits: int, scaling: Literal["width", "constant"], expected: float) -> None:
    width = Bitwidth(bits)
    assert LowBitSettings(rate_scaling=scaling).rate_at(width).value == expected
    assert LowBitSettings(rate=4.0, rate_scaling=scaling).rate_at(width).value == expected / 2


def test_the_stream_decides_the_rounding() -> None:
    one, again, other = (build(8, seed=seed) for seed in (0, 0, 1))
    for model in (one, again, other):
        train(model, 3)
    assert all(torch.equal(a, b) for a, b in zip(one.kernel.codes, again.kernel.codes, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one.kernel.codes, other.kernel.codes, strict=True))


def test_squared_error_by_hand_is_integers_only() -> None:
    logits = torch.tensor([[10.0, -20.0, 127.0], [0.0, 0.0, 0.0]])
    loss, error = squared_error(logits, torch.tensor([0, 2]), INT8)
    assert error.tolist() == [[10 - 127, -20, 127], [0, 0, -127]]
    assert int(loss) == 2**15 * (117**2 + 20**2 + 127**2 + 127**2) // 128**2  # both images, 16 fraction bits


def test_cross_entropy_by_hand() -> None:
    # Codes 16 and 0 at Int8 and logit scale 8 are the logits 1 and 0.
    loss, error = cross_entropy(torch.tensor([[16.0, 0.0]]), torch.tensor([1]), INT8, 8.0)
    p = math.e / (1 + math.e)
    assert int(loss) / 2**16 == pytest.approx(-math.log(1 - p), abs=2**-15)
    assert [e / 2**30 for e in error[0].tolist()] == pytest.approx([p, -p], abs=2**-28)


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
def test_weights_are_int16_codes_within_range(bits: int) -> None:
    model = build(bits, LowBitSettings(rate=300.0))  # 2.3 times the range of the weights in a step
    train(model, 5)
    top = 2 ** (bits - 1) - 1
    made = model.weights()
    assert {name: tensor.shape for name, tensor in made.items()} == network().shapes
    for tensor in made.values():
        assert (tensor.codes.dtype, tensor.width, tensor.scale) == (torch.int16, Bitwidth(bits), 1.0)
        assert int(tensor.codes.abs().max()) == top


def test_logit_scale_sharpens_the_loss_but_not_the_choice() -> None:
    examples = blobs(12)
    low, high = (build(8, LowBitSettings(logit_scale=scale)) for scale in (2.0, 16.0))
    assert torch.equal(8 * low.logits(examples.images), high.logits(examples.images))


def test_images_are_quantized_to_the_width() -> None:
    # Int2 sees −½, 0 and ½ only: what rounds to the same levels gives the same logits. Codes of int8 are 1/128.
    model = build(2)
    images = blobs(12).images
    levels = torch.where(images.short().abs() > 32, images.sign() * 64, 0).to(torch.int8)
    assert torch.equal(model.logits(images), model.logits(levels))
    assert not torch.equal(model.logits(images), model.logits(-levels))
