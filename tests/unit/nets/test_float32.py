"""The Float32 network against weight normalization written out in float64: gradients, clipping and momentum."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.device.training import Examples
from prowd.nets import Architecture
from prowd.nets.float32 import FloatModel, FloatSettings, initial_gains
from prowd.numbers.bits import FLOAT32
from prowd.numbers.quantize import QTensor, Weights
from tests.unit.scenes import blobs, dot, network

CPU = torch.device("cpu")
ALPHAS = (2, 4)  # of scenes.network: fan-ins 18 and 64
V, G = ("conv.weight", "fc.weight"), ("conv.gain", "fc.gain")


def start(scale: float = 0.7) -> dict[str, QTensor]:
    random = torch.Generator().manual_seed(3)
    shapes = network().shapes
    return {name: QTensor((torch.rand(shapes[name], generator=random) * 2 - 1) * scale, FLOAT32) for name in V}


def build(weights: Weights, settings: FloatSettings, architecture: Architecture | None = None) -> FloatModel:
    return FloatModel(architecture or network(), weights, settings, CPU)


def rows(tensor: Tensor) -> Tensor:
    """Norms of the output channels, shaped to divide them."""
    return tensor.flatten(1).square().sum(1).sqrt().reshape([-1] + [1] * (tensor.dim() - 1))


def net(images: Tensor, conv: Tensor, fc: Tensor) -> Tensor:
    """scenes.network on effective weights, of int8 codes."""
    return F.linear(F.max_pool2d(F.relu(F.conv2d(images.to(conv.dtype) / 128, conv, padding=1)), 2).flatten(1), fc)


class Reference:
    """w = g·v/‖v‖; dL/dg = ⟨dL/dw, v⟩/‖v‖; dL/dv = g/‖v‖·(dL/dw − ⟨dL/dw, v⟩·v/‖v‖²); one norm clips them all."""

    def __init__(self, weights: Weights, settings: FloatSettings) -> None:
        self.settings = settings
        self.v = [weights[name].value().double() for name in V]
        self.g = [rows(v).flatten() / alpha for v, alpha in zip(self.v, ALPHAS, strict=True)]
        self.speed = [torch.zeros_like(p) for p in (*self.v, *self.g)]
        self.norms: list[float] = []

    def effective(self) -> list[Tensor]:
        return [g.reshape(rows(v).shape) * v / rows(v) for v, g in zip(self.v, self.g, strict=True)]

    def step(self, images: Tensor, labels: Tensor) -> float:
        weights = [w.requires_grad_() for w in self.effective()]
        loss = F.cross_entropy(net(images, *weights), labels)
        slopes = torch.autograd.grad(loss, weights)
        inner = [(dw * v).flatten(1).sum(1).reshape(rows(v).shape) for dw, v in zip(slopes, self.v, strict=True)]
        of_g = [(i / rows(v)).flatten() for i, v in zip(inner, self.v, strict=True)]
        of_v = [
            g.reshape(rows(v).shape) / rows(v) * (dw - i * v / rows(v).square())
            for dw, i, v, g in zip(slopes, inner, self.v, self.g, strict=True)
        ]
        norm = math.sqrt(sum(float(p.square().sum()) for p in (*of_v, *of_g)))
        self.norms.append(norm)
        shrink = min(1.0, self.settings.clip / norm)
        rates = [self.settings.lr * alpha**self.settings.update_exponent for alpha in ALPHAS]
        rates += [self.settings.gain_lr] * 2
        self.speed = [self.settings.momentum * b + p * shrink for b, p in zip(self.speed, (*of_v, *of_g), strict=True)]
        moved = [p - r * b for p, r, b in zip((*self.v, *self.g), rates, self.speed, strict=True)]
        self.v, self.g = moved[:2], moved[2:]
        return float(loss.detach())


@pytest.mark.parametrize("exponent", [0, 1, 2])
@pytest.mark.parametrize("clip", [0.05, 1000.0], ids=["clipped", "free"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_equal_the_written_out_formulas(exponent: int, clip: float, momentum: float) -> None:
    base = FloatSettings(lr=0.03, gain_lr=0.02, momentum=momentum, clip=clip)
    settings = replace(base, update_exponent=exponent)  # type: ignore[arg-type]
    model, reference, losses = build(start(), settings), Reference(start(), settings), []
    for number in range(6):
        examples = blobs(9, seed=number)
        model.step(examples.images, examples.labels)
        losses.append(reference.step(examples.images, examples.labels))
    assert model.loss() == pytest.approx(sum(losses) / 6, rel=1e-4)
    clipped = [norm > clip for norm in reference.norms]
    assert all(clipped) if clip < 1 else not any(clipped)
    found = model.weights()
    for name, expected in zip((*V, *G), (*reference.v, *reference.g), strict=True):
        torch.testing.assert_close(found[name].value().double(), expected, rtol=1e-4, atol=1e-5)
    # The comparison would notice a rate that is off by a factor: everything has moved by far more than the tolerance.
    origin = Reference(start(), settings)
    moved = [
        float((a - b).abs().max()) for a, b in zip((*reference.v, *reference.g), (*origin.v, *origin.g), strict=True)
    ]
    assert min(moved) > 5e-4


def test_fresh_gains_make_the_effective_weight_v_over_alpha() -> None:
    weights, images = start(), blobs(9).images
    gains = initial_gains(network(), {name: weights[name].value() for name in V})
    for name, v, alpha in zip(G, V, ALPHAS, strict=True):
        torch.testing.assert_close(gains[name], weights[v].value().flatten(1).norm(dim=1) / alpha)
    expected = net(images, weights[V[0]].value() / 2, weights[V[1]].value() / 4)
    torch.testing.assert_close(build(weights, FloatSettings()).logits(images), expected)


def test_received_gains_are_used() -> None:
    weights, images = start(), blobs(9).images
    twice = {name: QTensor(2 * QTensor.value(tensor), FLOAT32) for name, tensor in given_gains(weights).items()}
    plain, doubled = build(weights, FloatSettings()), build({**weights, **twice}, FloatSettings())
    torch.testing.assert_close(doubled.logits(images), 4 * plain.logits(images))  # two layers, ReLU in between


def given_gains(weights: Weights) -> dict[str, QTensor]:
    made = build(weights, FloatSettings()).weights()
    return {name: made[name] for name in G}


def test_weights_hold_v_and_the_gains() -> None:
    made = build(start(), FloatSettings()).weights()
    assert list(made) == [*V, *G]
    assert [made[name].shape for name in made] == [(4, 2, 3, 3), (3, 64), (4,), (3,)]
    assert all(
        (tensor.width, tensor.scale, tensor.codes.dtype) == (FLOAT32, 1.0, torch.float32) for tensor in made.values()
    )
    assert not any(tensor.codes.requires_grad for tensor in made.values())
    assert all(torch.equal(made[name].codes, start()[name].codes) for name in V)


def test_a_step_changes_neither_what_was_received_nor_weights_taken_before() -> None:
    received, examples = start(), blobs(9)
    model = build(received, FloatSettings())
    before = model.weights()
    model.step(examples.images, examples.labels)
    assert all(torch.equal(kept[name].codes, start()[name].codes) for kept in (received, before) for name in V)


@pytest.mark.parametrize("factor", [0.25, 3.0])
def test_the_scale_of_v_has_no_effect(factor: float) -> None:
    gains, images = given_gains(start()), blobs(9).images
    scaled = {name: QTensor(tensor.codes * factor, FLOAT32) for name, tensor in start().items()}
    plain, other = build({**start(), **gains}, FloatSettings()), build({**scaled, **gains}, FloatSettings())
    torch.testing.assert_close(other.logits(images), plain.logits(images))


def test_integer_weights_are_read_by_value() -> None:
    # Two outputs of one linear layer, fan-in 2 and so α = 1: codes of Int4 stand for eighths.
    received = {"fc.weight": QTensor(torch.tensor([[4, -6], [2, 0]], dtype=torch.int16), FLOAT32.parse("int4"))}
    model = build(received, FloatSettings(), dot())
    logits = model.logits(torch.tensor([[[[64, -32]]]], dtype=torch.int8))  # a half, minus a quarter
    torch.testing.assert_close(logits, torch.tensor([[0.25 + 0.1875, 0.125]]))


def assert_learns(model: FloatModel, examples: Examples) -> None:
    """The mean loss of twenty steps is below that of the first, and so far from it that most must be."""
    model.step(examples.images, examples.labels)
    first = model.loss()
    for _ in range(19):
        model.step(examples.images, examples.labels)
    assert model.loss() < first


def test_a_zero_row_of_v_is_a_silent_channel() -> None:
    weights, examples = start(), blobs(9)
    for name in V:
        weights[name].codes[1] = 0
    model = build(weights, FloatSettings())
    assert not model.logits(examples.images)[:, 1].any()
    assert_learns(model, examples)
    made = model.weights()
    assert all(bool(tensor.codes.isfinite().all()) for tensor in made.values())
    assert not made["fc.weight"].codes[1].any()


@pytest.mark.parametrize(("layer", "gain"), [("conv", 5.0), ("fc", 1.0), ("fc", 5.0)])
def test_a_zero_row_of_v_with_a_gain_of_its_own_is_silent_too(layer: str, gain: float) -> None:
    # Averaged weights vanish where all integer clients of a round have zeros; the gains are of earlier Float32 clients.
    weights, examples = start(), blobs(9)
    weights[f"{layer}.weight"].codes[1] = 0
    gains = given_gains(weights)
    gains[f"{layer}.gain"].codes[1] = gain
    model = build({**weights, **gains}, FloatSettings())
    assert bool(model.logits(examples.images).isfinite().all())
    assert_learns(model, examples)


def test_momentum_starts_from_rest_in_every_model() -> None:
    # Rebuilding from the weights (as every round does) forgets the momentum: the second step is a first step.
    settings, examples = FloatSettings(), blobs(9)
    once = build(start(), settings)
    once.step(examples.images, examples.labels)
    half_way = {name: QTensor(tensor.codes.clone(), FLOAT32) for name, tensor in once.weights().items()}
    rebuilt, plain = build(half_way, settings), build(half_way, replace(settings, momentum=0.0))
    for model in (rebuilt, plain, once):
        model.step(examples.images, examples.labels)
    assert torch.equal(rebuilt.weights()["fc.weight"].codes, plain.weights()["fc.weight"].codes)
    assert not torch.equal(rebuilt.weights()["fc.weight"].codes, once.weights()["fc.weight"].codes)


def test_gain_rate_zero_keeps_the_gains() -> None:
    model, examples = build(start(), FloatSettings(gain_lr=0.0)), blobs(9)
    model.step(examples.images, examples.labels)
    after = model.weights()
    assert all(torch.equal(after[name].codes, tensor.codes) for name, tensor in given_gains(start()).items())
    assert not torch.equal(after["fc.weight"].codes, start()["fc.weight"].codes)
