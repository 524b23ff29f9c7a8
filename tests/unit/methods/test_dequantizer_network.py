"""φ by its formulas: the ladder, the coupling and its inverse, the two forms of a block, who passes through."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from prowd.errors import ConfigError, RunError
from prowd.methods.prowd.dequantizer import (
    Dequantizer,
    DequantizerSettings,
    Ladder,
    assemble,
    cut,
    dequantize,
    dequantize_in_stages,
)
from prowd.methods.prowd.dequantizer.network import Block, Coupling
from prowd.nets import Architecture, Conv, Flatten, Linear, MaxPool
from prowd.numbers.bits import FLOAT32, INT2, Bitwidth
from prowd.numbers.quantize import QTensor, quantize
from prowd.numbers.seeds import generator

LADDER = Ladder.parse("int2, int4, int8, float32")
SETTINGS = DequantizerSettings(module=4, growth=3)
NET = Architecture(
    (Conv("a", 1, 4), Conv("b", 4, 8), MaxPool(), Conv("c", 8, 4), Flatten(), Linear("d", 36, 3, relu=False)), (1, 6, 6)
)


def modules(count: int = 2, channels: int = 4) -> Tensor:
    return torch.rand(count, channels, 6, 6, generator=generator(1, "modules")) * 2 - 1


def net_weights(width: Bitwidth, scale: float = 1.0) -> dict[str, QTensor]:
    random = generator(2, "weights")
    shapes = NET.shapes.items()
    return {name: quantize((torch.rand(shape, generator=random) * 2 - 1) * scale, width) for name, shape in shapes}


# --- The ladder ------------------------------------------------------------------------------------------------------


def test_ladder_entry_points() -> None:
    assert [LADDER.entry(width) for width in LADDER.widths] == [0, 1, 2, 3]
    assert LADDER.blocks == 3
    assert LADDER.entry(FLOAT32) == LADDER.blocks
    assert str(LADDER) == "int2, int4, int8, float32"
    with pytest.raises(ConfigError, match="no rung for int6"):
        LADDER.entry(Bitwidth(6))


@pytest.mark.parametrize("text", ["int8", "int8, int8", "float32, int8", "int2, int9, int4"])
def test_ladders_that_do_not_climb(text: str) -> None:
    with pytest.raises(ConfigError, match="ascending"):
        Ladder.parse(text)


# --- Coupling and block ----------------------------------------------------------------------------------------------


def inverse(coupling: Coupling, w: Tensor) -> Tensor:
    w1, w2 = w[:, : coupling.first], w[:, coupling.first :]
    w2 = (w2 - coupling.gamma(w1)) * torch.exp(-0.8 * torch.tanh(coupling.beta(w1) / 2))
    return torch.cat([w1 - coupling.alpha(w2), w2], 1)


@pytest.mark.parametrize("channels", [4, 9])
def test_coupling_is_invertible(channels: int) -> None:
    coupling = Coupling(channels, 3, 5, generator(0, "coupling")).double()
    for parameter in coupling.parameters():  # far from the identity
        parameter.data.mul_(3).add_(0.05)
    w = torch.rand(2, channels, 9, 9, generator=generator(0, "w"), dtype=torch.float64) - 0.5
    with torch.no_grad():
        out = coupling(w)
        assert (out - w).abs().max() > 0.1
        torch.testing.assert_close(inverse(coupling, out), w, atol=1e-9, rtol=1e-9)


def test_dense_block_written_out() -> None:
    block = Coupling(4, 3, 3, generator(0, "dense")).alpha
    x = modules()[:, :2]
    k, b = list(block.kernels), list(block.biases)
    conv = torch.nn.functional.conv2d
    one = torch.nn.functional.leaky_relu(conv(x, k[0], b[0], padding=1), 0.2)
    two = torch.nn.functional.leaky_relu(conv(torch.cat([x, one], 1), k[1], b[1], padding=1), 0.2)
    expected = conv(torch.cat([x, one, two], 1), k[2], b[2], padding=1)
    torch.testing.assert_close(block(x), expected)
    assert [tuple(kernel.shape) for kernel in k] == [(3, 2, 3, 3), (3, 5, 3, 3), (2, 8, 3, 3)]


@pytest.mark.parametrize(("form", "factor"), [("residual", 1.0), ("printed", 1.1)])
def test_block_of_identity_couplings(form: str, factor: float) -> None:
    block = Dequantizer(LADDER, DequantizerSettings(module=4, growth=3, form=form), 0).blocks[0]  # type: ignore[arg-type]
    assert isinstance(block, Block)
    for parameter in block.parameters():
        parameter.data.zero_()
    torch.testing.assert_close(block(modules()), factor * modules())


def test_block_has_two_couplings_of_its_own() -> None:
    block = Block(4, 3, 5, 0.1, "residual", generator(0, "block"))
    w = modules()
    torch.testing.assert_close(block(w), w + 0.1 * (block.outer(block.inner(w)) - w))
    first, second = list(block.inner.parameters()), list(block.outer.parameters())
    assert not any(torch.equal(a, b) for a, b in zip(first, second, strict=True) if a.dim() > 1)


def test_phi_starts_near_the_identity() -> None:
    phi = Dequantizer(Ladder.parse("int2, int4, int8, int16, float32"), DequantizerSettings(module=4), 0)
    w = modules(8) * 0.75
    assert 0 < (phi(w) - w).abs().mean() < 0.05


# --- The whole -------------------------------------------------------------------------------------------------------


def test_phi_climbs_in_order() -> None:
    phi = Dequantizer(LADDER, SETTINGS, 0)
    w = modules()
    expected = phi.blocks[2](phi.blocks[1](phi.blocks[0](w)))
    assert torch.equal(phi(w), expected)
    assert torch.equal(phi(w, 1), phi.blocks[2](phi.blocks[1](w)))
    assert torch.equal(phi(w, 1, 2), phi.blocks[1](w))
    assert torch.equal(phi(w, 3), w)


@pytest.mark.parametrize("width", LADDER.widths, ids=str)
def test_weights_enter_at_their_own_width(width: Bitwidth) -> None:
    phi = Dequantizer(LADDER, SETTINGS, 0)
    weights = net_weights(width)
    dequantized = dequantize(phi, NET, weights)
    assert list(dequantized) == list(weights)
    for name, tensor in weights.items():
        value = tensor.value()
        if width != FLOAT32 and name in ("b.weight", "c.weight"):
            climbed = cut(value, 4)
            for block in list(phi.blocks)[LADDER.entry(width) :]:
                climbed = block(climbed)
            torch.testing.assert_close(dequantized[name], assemble(climbed, tensor.shape))
            assert not torch.equal(dequantized[name], value)
        else:
            assert torch.equal(dequantized[name], value)
        assert not dequantized[name].requires_grad


def test_a_mixed_message() -> None:
    """Gains and a Float32 tensor beside ternary ones: each by its own width."""
    phi = Dequantizer(LADDER, SETTINGS, 0)
    weights = {
        **net_weights(INT2),
        "c.weight": net_weights(FLOAT32)["c.weight"],
        "a.gain": QTensor(torch.ones(4), FLOAT32),
    }
    dequantized = dequantize(phi, NET, weights)
    assert torch.equal(dequantized["c.weight"], weights["c.weight"].codes)
    assert torch.equal(dequantized["a.gain"], torch.ones(4))
    assert not torch.equal(dequantized["b.weight"], weights["b.weight"].value())


@pytest.mark.parametrize("width", LADDER.widths[:-1], ids=str)
def test_stages_go_from_what_arrived_to_what_is_made_of_it(width: Bitwidth) -> None:
    phi, weights = Dequantizer(LADDER, SETTINGS, 0), net_weights(width)
    stages = dequantize_in_stages(phi, NET, weights)
    assert [list(stage) for stage in stages] == [["c.weight"]] * (LADDER.blocks - LADDER.entry(width) + 1)
    values = [stage["c.weight"] for stage in stages]
    assert torch.equal(values[0], weights["c.weight"].value())
    assert torch.equal(values[-1], dequantize(phi, NET, weights)["c.weight"])
    for number, value in enumerate(values[1:], LADDER.entry(width)):
        before = values[number - LADDER.entry(width)]
        torch.testing.assert_close(value, assemble(phi(cut(before, 4), number, number + 1), value.shape))
        assert not torch.equal(value, before)
        assert not value.requires_grad


def test_stages_are_those_of_the_last_tensor_that_passes_phi() -> None:
    phi = Dequantizer(LADDER, SETTINGS, 0)
    weights = {**net_weights(INT2), "c.weight": net_weights(FLOAT32)["c.weight"]}
    assert [list(stage) for stage in dequantize_in_stages(phi, NET, weights)] == [["b.weight"]] * 4
    del weights["c.weight"]
    assert len(dequantize_in_stages(phi, NET, weights)) == 4


def test_what_passes_no_block_has_no_stages() -> None:
    phi = Dequantizer(LADDER, SETTINGS, 0)
    assert dequantize_in_stages(phi, NET, net_weights(FLOAT32)) == []
    small = Dequantizer(LADDER, DequantizerSettings(module=9, growth=3), 0)
    assert dequantize_in_stages(small, NET, net_weights(INT2)) == [], "no layer falls into its modules"
    assert dequantize_in_stages(phi, NET, {}) == []


def test_parameters_come_from_the_seed_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, two, other = (Dequantizer(LADDER, SETTINGS, seed).state() for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in one if name.count("kernels"))


def test_state_is_plain_and_comes_back() -> None:
    one, two = Dequantizer(LADDER, SETTINGS, 0), Dequantizer(LADDER, SETTINGS, 1)
    state = one.state()
    assert all(type(tensor) is Tensor and not tensor.requires_grad for tensor in state.values())
    two.load(state)
    assert torch.equal(one(modules()), two(modules()))
    next(one.parameters()).data.zero_()
    assert not torch.equal(one.state()[next(iter(state))], state[next(iter(state))])  # state was a copy
    with pytest.raises(RunError, match="another φ"):
        Dequantizer(Ladder.parse("int2, float32"), SETTINGS, 0).load(state)


def test_module_must_be_square() -> None:
    with pytest.raises(ConfigError, match=r"dequantizer\.module: 5 channels"):
        Dequantizer(LADDER, DequantizerSettings(module=5), 0)
