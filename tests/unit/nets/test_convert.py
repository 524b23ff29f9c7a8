"""A user's own Sequential: what it is read as, and what becomes of its weights; other networks: test_tracing.py."""

from __future__ import annotations

import re
from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn

import prowd
from prowd.device.training import Examples, Model
from prowd.errors import ConfigError
from prowd.nets import Conv, Flatten, Linear, MaxPool, describe
from prowd.numbers.bits import FLOAT32, Bitwidth
from tests.unit.scenes import SHAPE, blobs


def conv(inputs: int, outputs: int, kernel: int | tuple[int, int] = 3, **options: object) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, bias=False, **options)  # type: ignore[arg-type]


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def net() -> nn.Sequential:
    """For images of 2×8×8; every α is 2, so that a scale left out or applied twice changes the function."""
    first = nn.Sequential(conv(2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(
        first, conv(3, 4, 2, padding=(1, 0)), nn.MaxPool2d(2, 1), nn.ReLU(), nn.Flatten(), linear(32, 3)
    )


def assert_learns(model: Model, examples: Examples, steps: int) -> None:
    """The mean loss of many steps is far below that of the first five."""
    for _ in range(5):
        model.step(examples.images, examples.labels)
    first = model.loss()
    for _ in range(steps - 5):
        model.step(examples.images, examples.labels)
    assert model.loss() < 0.85 * first


def test_names_kinds_and_options() -> None:
    described = describe(
        nn.Sequential(
            OrderedDict(
                stem=conv(1, 2, (3, 5), stride=(1, 2), padding=(0, 2)),
                act=nn.ReLU(),
                pool=nn.MaxPool2d((2, 1), stride=(1, 2)),
                bare=conv(2, 3, 1),
                flat=nn.Flatten(),
                hidden=linear(18, 4),
                act2=nn.ReLU(),
                logits=linear(4, 2),
            )
        ),
        (1, 5, 9),
    )
    assert described.layers == (
        Conv("stem", 1, 2, (3, 5), (1, 2), (0, 2), relu=True),
        MaxPool((2, 1), (1, 2)),
        Conv("bare", 2, 3, (1, 1), (1, 1), (0, 0), relu=False),
        Flatten(),
        Linear("hidden", 18, 4, relu=True),
        Linear("logits", 4, 2, relu=False),
    )
    assert described.input_shape == (1, 5, 9)


def test_nested_sequentials_are_joined_and_keep_their_path() -> None:
    described = describe(net(), SHAPE)
    assert [layer.name for layer in described.weight_layers] == ["0.0", "1", "5"]
    assert [layer.relu for layer in described.weight_layers] == [True, True, False]
    assert described.alphas == (2, 2, 2)  # fan-ins 18, 12 and 32, all within 10.7 to 42.7


@pytest.mark.parametrize(
    "between", [[nn.MaxPool2d(2)], [nn.Flatten()], [nn.MaxPool2d(2), nn.Flatten()]], ids=["pool", "flatten", "both"]
)
def test_relu_after_pooling_or_flattening_is_the_layers_own(between: list[nn.Module]) -> None:
    rest = [] if any(isinstance(module, nn.Flatten) for module in between) else [nn.Flatten()]
    pixels = 16 if any(isinstance(module, nn.MaxPool2d) for module in between) else 64
    given = nn.Sequential(conv(1, 1, padding=1), *between, nn.ReLU(), *rest, linear(pixels, 2))
    images = torch.randint(-128, 128, (5, 1, 8, 8)).to(torch.int8)
    assert describe(given, (1, 8, 8)).weight_layers[0].relu
    torch.testing.assert_close(prowd.convert(given, "float32", (1, 8, 8)).logits(images), given(images / 128))


def test_one_relu_module_may_serve_several_layers() -> None:
    relu = nn.ReLU()
    given = nn.Sequential(conv(1, 2, 1), relu, conv(2, 2, 1), relu, nn.Flatten(), linear(8, 2))
    assert [layer.relu for layer in describe(given, (1, 2, 2)).weight_layers] == [True, True, False]


def test_shared_weights_are_refused() -> None:
    shared = linear(4, 4)
    with pytest.raises(ConfigError, match="'1' is a layer used twice"):
        describe(nn.Sequential(nn.Flatten(), shared, nn.ReLU(), shared, linear(4, 2)), (1, 2, 2))


@pytest.mark.parametrize(
    "module",
    [
        conv(2, 2, dilation=2), conv(2, 2, (3, 2), padding="same"), conv(2, 2, padding=1, padding_mode="reflect"),
        nn.MaxPool2d(2, padding=1), nn.MaxPool2d(2, dilation=2), nn.MaxPool2d(2, ceil_mode=True),
        nn.BatchNorm2d(2), nn.Flatten(start_dim=2), nn.Sigmoid(), nn.AvgPool2d(2, padding=1),
        nn.AvgPool2d(2, ceil_mode=True), nn.AvgPool2d(2, divisor_override=3), nn.AdaptiveAvgPool2d(3), nn.MaxPool1d(2),
    ],
    ids=lambda value: re.sub(r"\W+", "-", str(value))[:40],
)  # fmt: skip
def test_modules_that_have_no_low_bit_twin_are_refused(module: nn.Module) -> None:
    given = nn.Sequential(conv(2, 2, 1), module, nn.Flatten(), linear(8, 2))
    with pytest.raises(ConfigError, match=rf"'1' is {re.escape(str(module))}; accepted: "):
        describe(given, SHAPE)


@pytest.mark.parametrize("before", [[], [nn.MaxPool2d(2)], [nn.Flatten()]], ids=["first", "pool", "flatten"])
def test_relu_with_no_layer_before_it_is_refused(before: list[nn.Module]) -> None:
    with pytest.raises(ConfigError, match=rf"ReLU '{len(before)}' has no layer before it"):
        describe(nn.Sequential(*before, nn.ReLU(), nn.Flatten(), linear(4, 2)), (1, 2, 2))


def test_a_bias_is_refused_or_dropped() -> None:
    biased = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten(), nn.Linear(8, 2))
    with pytest.raises(ConfigError, match=r"^bias: 0, 2 has a bias; low-bit layers have none; accepted: .*bias='drop'"):
        prowd.convert(biased, "float32", (1, 2, 2))
    with pytest.raises(ConfigError, match=r"^bias: 'keep' is wrong; accepted: refuse, drop"):
        prowd.convert(biased, "float32", (1, 2, 2), bias="keep")  # type: ignore[arg-type]
    model = prowd.convert(biased, "float32", (1, 2, 2), bias="drop")
    torch.testing.assert_close(model.logits(torch.zeros(1, 1, 2, 2, dtype=torch.int8)), torch.zeros(1, 2))


@pytest.mark.parametrize("seed", range(5))
def test_float32_twin_computes_the_same_function(seed: int) -> None:
    torch.manual_seed(seed)
    given, images = net(), blobs(6, seed).images
    torch.testing.assert_close(prowd.convert(given, "float32", SHAPE).logits(images), given(images / 128))


def test_float32_twin_shares_weight_space_and_trains() -> None:
    torch.manual_seed(0)
    given, examples = net(), blobs(12)
    before = [parameter.detach().clone() for parameter in given.parameters()]
    model = prowd.convert(given, FLOAT32, SHAPE)
    weights = model.weights()
    assert list(weights) == [*(f"{n}.weight" for n in ("0.0", "1", "5")), *(f"{n}.gain" for n in ("0.0", "1", "5"))]
    torch.testing.assert_close(weights["0.0.weight"].value(), 2 * before[0])  # v = α·w
    torch.testing.assert_close(weights["0.0.gain"].value(), before[0].flatten(1).norm(dim=1))  # g = ‖v‖/α = ‖w‖
    assert_learns(model, examples, 30)
    assert all(torch.equal(a, b) for a, b in zip(before, given.parameters(), strict=True)), "the user's net was changed"


def q(values: Tensor, bits: int) -> Tensor:
    """Q_s one number at a time, in Python; round() is half to even too."""
    top = 2 ** (bits - 1) - 1
    return torch.tensor([max(-top, min(top, round(value * (top + 1)))) for value in values.flatten().tolist()])


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_integer_twin_holds_the_quantized_weights_and_trains(bits: int) -> None:
    torch.manual_seed(1)
    given, examples = net(), blobs(30)
    model = prowd.convert(given, f"int{bits}", SHAPE)
    for name, parameter in given.named_parameters():
        found = model.weights()[name]
        assert (found.width, found.codes.dtype) == (Bitwidth(bits), torch.int16)
        assert torch.equal(found.codes.flatten().long(), q(2 * parameter.detach(), bits))  # all α are 2
    assert_learns(model, examples, 40)


def test_large_weights_saturate_at_integer_widths() -> None:
    only = linear(2, 2)
    only.weight.data = torch.tensor([[3.0, -3.0], [0.5, -0.25]])  # α is 1 at fan-in 2
    given = nn.Sequential(nn.Flatten(), only)
    assert prowd.convert(given, "int8", (1, 1, 2)).weights()["1.weight"].codes.tolist() == [[127, -127], [64, -32]]
