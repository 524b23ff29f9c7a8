"""The fit of φ against Algorithm 2 transcribed naively, and what must hold of any fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from prowd.errors import ConfigError, RunError
from prowd.methods.prowd.dequantizer import (
    Dequantizer,
    DequantizerSettings,
    Ladder,
    Losses,
    Net,
    Source,
    dequantize,
    fit,
    lift,
    losses,
)
from prowd.nets import Architecture, Conv, Flatten, Linear, MaxPool
from prowd.numbers.bits import FLOAT32, INT2, Bitwidth
from prowd.numbers.quantize import QTensor, quantize
from prowd.numbers.seeds import generator
from tests.reference import naive_dequantizer

CPU, INT8 = torch.device("cpu"), Bitwidth(8)
LADDER = Ladder.parse("int2, int4, int8, float32")
SMALL = DequantizerSettings(module=4, growth=3, batch=16, images=8, epochs=1)
CONVOLUTIONS = (Conv("a", 1, 4), Conv("b", 4, 8), MaxPool(), Conv("c", 8, 4), Flatten())
NET = Architecture((*CONVOLUTIONS, Linear("d", 36, 4), Linear("e", 4, 3, relu=False)), (1, 6, 6))
OTHER = Architecture(
    (Conv("a", 1, 8), Conv("z", 8, 8, stride=(2, 2)), Flatten(), Linear("d", 72, 3, relu=False)), (1, 6, 6)
)
IMAGES = torch.rand(8, 1, 6, 6, generator=generator(0, "images")) * 2 - 1
LOSSES, WEIGHTS = 2e-6, 2e-5
"""What float32 may differ by from the oracle's float64: losses relatively, weights in ±1 absolutely; ten times what is
seen. Steps amplify it, those of Adam the most where a gradient is hardly there."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small only lose by threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def received(width: Bitwidth, seed: int = 0, architecture: Architecture = NET, *, gains: bool = True) -> Net:
    """A net with weights in ±1.2 (so that some are clipped) and gains unlike the initial ones."""
    random = generator(seed, "received")
    weights = {
        name: quantize((torch.rand(shape, generator=random) * 2 - 1) * 1.2, width)
        for name, shape in architecture.shapes.items()
    }
    if width.is_float and gains:
        for layer in architecture.weight_layers:
            weights[f"{layer.name}.gain"] = QTensor(0.5 + torch.rand(layer.outputs, generator=random), FLOAT32)
    return Net(architecture, width, weights)


def make(settings: DequantizerSettings = SMALL, seed: int = 0) -> Dequantizer:
    """φ away from the identity, so that every parameter has a gradient."""
    phi = Dequantizer(LADDER, settings, seed)
    for parameter in phi.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=generator(9, "shake")), alpha=0.02)
    return phi


def agree(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """The same tensors, entry by entry within the tolerance."""
    assert list(found) == list(expected)
    for name, tensor in found.items():
        torch.testing.assert_close(tensor.double(), expected[name], rtol=0.0, atol=WEIGHTS)


# --- Algorithm 2 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [FLOAT32, INT8, Bitwidth(4)], ids=str)
@pytest.mark.parametrize(
    ("kernel", "chosen"), [((3, 3), [0, 1, 2, 3]), ((3, 3), [3, 0]), ((1, 1), [8, 1]), ((1, 1), [4])], ids=str
)
def test_losses_of_algorithm_2(width: Bitwidth, kernel: tuple[int, int], chosen: list[int]) -> None:
    phi, before, net = make(), make(seed=1), received(width)
    source = Source(net, LADDER, 4, CPU)
    with torch.no_grad():
        found = losses(phi, source, kernel, torch.tensor(chosen), IMAGES, lift(before, source))
        theta, earlier = ({name: tensor.double() for name, tensor in one.state().items()} for one in (phi, before))
        others = naive_dequantizer.lifted(earlier, net, LADDER, SMALL)
        expected = naive_dequantizer.losses(theta, net, kernel, chosen, IMAGES, others, LADDER, SMALL)
    torch.testing.assert_close(found, expected, rtol=LOSSES, atol=0.0, check_dtype=False)


@pytest.mark.parametrize("form", ["residual", "printed"])
@pytest.mark.parametrize(("optimizer", "lr", "seed"), [("sgd", 0.2, 5), ("adam", 0.01, 1)])
def test_a_whole_fit_is_algorithm_2(
    form: Literal["residual", "printed"], optimizer: Literal["sgd", "adam"], lr: float, seed: int
) -> None:
    """Twelve steps, on networks of three widths and two architectures, that move every tensor of φ.

    Gradients jump where a LeakyReLU or a difference in L_recon is zero, and a step that float32 and float64 take on
    different sides of such a place parts them for good. With SGD's seed none comes near one: nudged by 1e-6 either way,
    the oracle's own fit moves in proportion, to 1e-8. With seed 1 its steps jump, for some processors' float32 as well.
    """
    settings = DequantizerSettings(
        4, 2, 3, 0.3, form, optimizer, lr, momentum=0.8, batch=3, epochs=2, lam=0.7, noise=0.2, images=5
    )
    nets = [received(FLOAT32, 1), received(INT2, 2), received(INT8, 3), received(FLOAT32, 4, OTHER, gains=False)]
    phi = make(settings, seed=1)
    start, naive = phi.state(), naive_dequantizer.Fit(phi.state(), LADDER, settings)
    naive.run(nets, IMAGES, generator(seed, "fit"))
    report = fit(phi, nets, IMAGES, generator(seed, "fit"))
    assert report.recon == pytest.approx(naive.recon, rel=LOSSES)
    assert report.distill == pytest.approx(naive.distill, rel=LOSSES)
    assert all((parameter - start[name]).abs().max() > 10 * WEIGHTS for name, parameter in phi.state().items())
    agree(phi.state(), naive.theta)
    for net in nets:
        expected = naive_dequantizer.dequantize(naive.theta, net, LADDER, settings)
        agree(dequantize(phi, net.architecture, net.weights), expected)


@pytest.mark.parametrize("width", [INT8, Bitwidth(4)], ids=str)
def test_blocks_above_a_width_rest(width: Bitwidth) -> None:
    phi = make(replace(SMALL, batch=2))
    before = phi.state()
    fit(phi, [received(width)], IMAGES, generator(0, "fit"))
    for name, parameter in phi.state().items():
        rests = int(name.split(".")[1]) >= LADDER.entry(width)
        assert torch.equal(parameter, before[name]) == rests


# --- What holds of any fit -------------------------------------------------------------------------------------------


def test_true_weights_give_distillation_minus_one() -> None:
    net = received(FLOAT32)
    source = Source(net, LADDER, 4, CPU)
    true = {name: net.weights[name].value() for name in NET.shapes}
    torch.testing.assert_close(source.predict(IMAGES, true), source.predict(IMAGES))
    for kernel, group in source.groups.items():  # the target is clipped, f is not
        assert max(true[name].abs().max() for name in group.shapes) > 1 == group.rungs[-1].abs().max(), kernel


def test_no_gradient_reaches_the_true_weights() -> None:
    net = received(FLOAT32)
    for tensor in net.weights.values():
        tensor.codes.requires_grad_()
    phi = make()
    source = Source(net, LADDER, 4, CPU)
    recon, distill = losses(phi, source, (3, 3), torch.tensor([0, 2]), IMAGES, lift(phi, source))
    torch.autograd.backward(recon + distill)
    assert all(tensor.codes.grad is None for tensor in net.weights.values())
    assert all(parameter.grad is not None for parameter in phi.parameters())


def test_kept_gains_are_taken_as_initial_ones() -> None:
    kept = received(FLOAT32, gains=False)
    plain = [kept.weights[name].codes / alpha for name, alpha in zip(NET.shapes, NET.alphas, strict=True)]
    for effective, expected in zip(Source(kept, LADDER, 4, CPU).effective, plain, strict=True):
        torch.testing.assert_close(effective, expected)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_fitting_lowers_both_losses(optimizer: str) -> None:
    settings = replace(SMALL, epochs=20, optimizer=optimizer, lr=0.004 if optimizer == "adam" else 0.3, noise=0.05)  # type: ignore[arg-type]
    report = fit(make(settings), [received(FLOAT32), received(FLOAT32, 1)], IMAGES, generator(0, "fit"))
    assert len(report.recon) == len(report.distill) == 20
    assert sum(report.recon[-5:]) < 0.97 * sum(report.recon[:5])
    assert sum(report.distill[-5:]) < sum(report.distill[:5])


def test_same_seed_same_bits() -> None:
    settings = replace(SMALL, batch=2, epochs=2)
    nets = [received(FLOAT32), received(INT8, 1)]
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    runs = []
    for stream in (0, 0, 1):
        phi = make(settings)
        report = fit(phi, nets, IMAGES, generator(stream, "fit"))
        runs.append((report, phi.state()))
    (one, first), (two, second), (_, other) = runs
    assert one == two
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_two_architectures_share_one_phi() -> None:
    phi = make(replace(SMALL, epochs=2))
    before = phi.state()
    nets = [received(FLOAT32), received(FLOAT32, 1, OTHER)]
    report = fit(phi, nets, IMAGES, generator(0, "fit"))
    assert all(math.isfinite(loss) for loss in (*report.recon, *report.distill))
    assert not any(torch.equal(before[name], after) for name, after in phi.state().items())
    for net in nets:
        ternary = {name: quantize(tensor.value(), INT2) for name, tensor in net.weights.items()}
        dequantized = dequantize(phi, net.architecture, ternary)
        changed = [name for name, value in dequantized.items() if not torch.equal(value, ternary[name].value())]
        assert changed == (["b.weight", "c.weight", "d.weight"] if net.architecture is NET else ["z.weight"])


def test_every_module_of_every_net_comes_once_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    from prowd.methods.prowd.dequantizer import fitting

    seen: list[tuple[int, tuple[int, int], int]] = []
    real = fitting.losses

    def spy(phi: Dequantizer, source: Source, kernel: tuple[int, int], rows: Tensor, *rest: Any) -> Any:
        seen.extend((source.entry, kernel, row) for row in rows.tolist())
        assert len(rows) <= 3
        return real(phi, source, kernel, rows, *rest)

    monkeypatch.setattr(fitting, "losses", spy)
    nets, settings = [received(FLOAT32), received(INT8)], replace(SMALL, batch=3, images=5, epochs=2)
    fit(make(settings), nets, IMAGES, generator(0, "x"))
    counts = {(3, 3): 4, (1, 1): 9}
    every = [(entry, kernel, row) for entry in (2, 3) for kernel in counts for row in range(counts[kernel])]
    assert sorted(seen) == sorted(every * 2)
    del seen[:]
    report = fit(make(replace(settings, steps=12)), nets, IMAGES, generator(0, "x"))  # ten in an epoch
    assert len(report.recon) == 2
    assert 26 < len(seen) <= 26 + 2 * 3


def test_nothing_to_learn_from() -> None:
    phi = make()
    before = phi.state()
    linear = Architecture((Flatten(), Linear("d", 36, 3, relu=False)), (1, 6, 6))
    nets = [received(INT2), received(FLOAT32, 0, linear)]
    assert fit(phi, nets, IMAGES, generator(0, "fit")) == Losses((), ())
    assert fit(phi, [], IMAGES, generator(0, "fit")) == Losses((), ())
    assert all(torch.equal(before[name], after) for name, after in phi.state().items())


def test_without_distillation_no_buffer_is_needed() -> None:
    report = fit(make(replace(SMALL, lam=0.0)), [received(FLOAT32)], IMAGES[:0], generator(0, "fit"))
    assert report.distill == (0.0,)
    with pytest.raises(ConfigError, match="buffer"):
        fit(make(), [received(FLOAT32)], IMAGES[:0], generator(0, "fit"))


def test_a_fit_that_diverges_is_refused() -> None:
    wild = replace(SMALL, optimizer="sgd", lr=1e6, epochs=5)
    with pytest.raises(RunError, match="diverged at lr 1e"):
        fit(make(wild), [received(FLOAT32)], IMAGES, generator(0, "fit"))
