"""The fit of φ against Algorithm 2 written out in plain loops, and what must hold of any fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.bits import FLOAT32, INT2, Bitwidth
from prowd.dequantizer import Dequantizer, DequantizerSettings, Ladder, Losses, Net, Source, dequantize, fit, losses
from prowd.errors import ConfigError, RunError
from prowd.models import Architecture, Conv, Flatten, Linear, MaxPool
from prowd.quantize import QTensor, quantize
from prowd.seeds import generator

CPU, INT8 = torch.device("cpu"), Bitwidth(8)
LADDER = Ladder.parse("int2, int4, int8, float32")
SMALL = DequantizerSettings(module=4, growth=3, batch=16, images=8, epochs=1)
NET = Architecture(
    (Conv("a", 1, 4), Conv("b", 4, 8), MaxPool(), Conv("c", 8, 4), Flatten(), Linear("d", 36, 3, relu=False)), (1, 6, 6)
)
OTHER = Architecture(
    (Conv("a", 1, 8), Conv("z", 8, 8, stride=(2, 2)), Flatten(), Linear("d", 72, 3, relu=False)), (1, 6, 6)
)
IMAGES = torch.rand(8, 1, 6, 6, generator=generator(0, "images")) * 2 - 1


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


# --- Algorithm 2, in loops, for one net whose modules all fit one batch -----------------------------------------------

State = dict[str, Tensor]


def naive_dense(state: State, name: str, x: Tensor) -> Tensor:
    features, depth = [x], 5
    for layer in range(depth):
        kernel, bias = state[f"{name}.kernels.{layer}"], state[f"{name}.biases.{layer}"]
        out = F.conv2d(torch.cat(features, 1), kernel, bias, padding=1)
        features.append(torch.where(out > 0, out, 0.2 * out) if layer < depth - 1 else out)
    return features[-1]


def naive_block(state: State, j: int, module: Tensor) -> Tensor:
    """w + 0.1·(ρρ(w) − w) of one module."""
    w = module[None]
    for rho in ("inner", "outer"):
        w1, w2 = w[:, :2], w[:, 2:]
        w1 = w1 + naive_dense(state, f"blocks.{j}.{rho}.alpha", w2)
        exponent = 0.8 * (2 / (1 + torch.exp(-naive_dense(state, f"blocks.{j}.{rho}.beta", w1))) - 1)
        w = torch.cat([w1, w2 * torch.exp(exponent) + naive_dense(state, f"blocks.{j}.{rho}.gamma", w1)], 1)
    return module + 0.1 * (w[0] - module)


def naive_modules(weight: Tensor) -> list[tuple[int, int, Tensor]]:
    """(first output, first input, 4×6×6 module), kernel by kernel."""
    found = []
    for o in range(0, weight.shape[0], 4):
        for i in range(0, weight.shape[1], 4):
            rows = [
                torch.cat([torch.cat([weight[o + c, i + 2 * y + x] for x in (0, 1)], 1) for y in (0, 1)])
                for c in range(4)
            ]
            found.append((o, i, torch.stack(rows)))
    return found


def naive_network(net: Net, weights: State) -> Tensor:
    """softmax f(u; weights), layer by layer for NET; α is 1, 2, 4, 2 for fan-ins 9, 36, 72, 36."""
    effective = {}
    for name, alpha in zip("abcd", (1, 2, 4, 2), strict=True):
        weight = weights[f"{name}.weight"]
        if net.width == FLOAT32:
            gain = net.weights[f"{name}.gain"].codes
            channels = [gain[o] * weight[o] / weight[o].square().sum().sqrt() for o in range(len(weight))]
            effective[name] = torch.stack(channels)
        else:
            effective[name] = weight / alpha
    x = F.relu(F.conv2d(IMAGES, effective["a"], padding=1))
    x = F.max_pool2d(F.relu(F.conv2d(x, effective["b"], padding=1)), 2)
    x = F.relu(F.conv2d(x, effective["c"], padding=1)).flatten(1) @ effective["d"].T
    return torch.exp(x) / torch.exp(x).sum(1, keepdim=True)


def naive_losses(state: State, net: Net, chosen: set[int]) -> tuple[Tensor, Tensor]:
    """Lines 1 to 6 of Algorithm 2 for the chosen modules, numbered through the layers b and c."""
    j = LADDER.widths.index(net.width)
    true = {name: net.weights[name].value() for name in NET.shapes}
    recon, count, number = torch.zeros(()), 0, 0
    exchanged = {name: weight.clone() for name, weight in true.items()}
    for name in ("b.weight", "c.weight"):
        for o, i, module in naive_modules(true[name]):
            if number in chosen:
                q = [quantize(module, width).value() for width in LADDER.widths[:j]] + [module.clamp(-1, 1)]
                for rung, (low, high) in enumerate(pairwise(q)):
                    recon = recon + (high - naive_block(state, rung, low)).abs().mean()
                climbing = q[0]
                for rung in range(j):
                    climbing = naive_block(state, rung, climbing)
                for c in range(4):
                    for kernel in range(4):
                        y, x = 3 * (kernel // 2), 3 * (kernel % 2)
                        exchanged[name][o + c, i + kernel] = climbing[c, y : y + 3, x : x + 3]
                count += 1
            number += 1
    target, predicted = naive_network(net, true), naive_network(net, exchanged)
    cosines = [torch.dot(p, q) / (p.norm() * q.norm()) for p, q in zip(target, predicted, strict=True)]
    return recon / count, -torch.stack(cosines).mean()


@pytest.mark.parametrize("width", [FLOAT32, INT8, Bitwidth(4)], ids=str)
@pytest.mark.parametrize("chosen", [[0, 1, 2, 3], [3, 0], [1]], ids=str)
def test_losses_of_algorithm_2(width: Bitwidth, chosen: list[int]) -> None:
    phi, net = make(), received(width)
    with torch.no_grad():
        found = losses(phi, Source(net, LADDER, 4, CPU), torch.tensor(chosen), IMAGES)
        expected = naive_losses(phi.state(), net, set(chosen))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", [FLOAT32, INT8], ids=str)
def test_one_step_of_algorithm_2(width: Bitwidth) -> None:
    settings = replace(SMALL, optimizer="sgd", lr=0.5, momentum=0.0, noise=0.0, lam=0.7)
    phi, net = make(settings), received(width)
    state = {name: tensor.requires_grad_() for name, tensor in phi.state().items()}
    recon, distill = naive_losses(state, net, {0, 1, 2, 3})
    torch.autograd.backward(recon + 0.7 * distill)
    report = fit(phi, [net], IMAGES, generator(0, "fit"))
    assert list(report.recon) == pytest.approx([recon.item()], rel=1e-5)
    assert list(report.distill) == pytest.approx([distill.item()], rel=1e-5)
    for name, parameter in phi.state().items():
        block = int(name.split(".")[1])
        gradient = state[name].grad
        if block >= LADDER.entry(width):
            assert gradient is None
            assert torch.equal(parameter, state[name].detach())
        else:
            assert gradient is not None
            torch.testing.assert_close(parameter, state[name].detach() - 0.5 * gradient, rtol=1e-5, atol=2e-6)


# --- What holds of any fit -------------------------------------------------------------------------------------------


def test_true_weights_give_distillation_minus_one() -> None:
    source = Source(received(FLOAT32), LADDER, 4, CPU)
    torch.testing.assert_close(source.predict(IMAGES, source.truth), source.predict(IMAGES))
    assert source.truth.abs().max() > 1 == source.rungs[-1].abs().max()  # the target is clipped, f is not


def test_no_gradient_reaches_the_true_weights() -> None:
    net = received(FLOAT32)
    for tensor in net.weights.values():
        tensor.codes.requires_grad_()
    phi = make()
    recon, distill = losses(phi, Source(net, LADDER, 4, CPU), torch.tensor([0, 2]), IMAGES)
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
        assert changed == (["b.weight", "c.weight"] if net.architecture is NET else ["z.weight"])


def test_every_module_of_every_net_comes_once_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    from prowd.dequantizer import fitting

    seen: list[tuple[int, int]] = []
    real = fitting.losses

    def spy(phi: Dequantizer, source: Source, rows: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        seen.extend((len(source.rungs), row) for row in rows.tolist())
        assert len(rows) <= 3
        assert len(images) == 5
        return real(phi, source, rows, images)

    monkeypatch.setattr(fitting, "losses", spy)
    fit(
        make(replace(SMALL, batch=3, images=5, epochs=2)),
        [received(FLOAT32), received(INT8)],
        IMAGES,
        generator(0, "x"),
    )
    assert sorted(seen) == sorted([(rungs, row) for rungs in (3, 4) for row in range(4)] * 2)


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
