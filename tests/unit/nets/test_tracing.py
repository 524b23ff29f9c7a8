"""Networks that are no Sequential: what torch.fx finds in them, and what is refused with its reason."""

from __future__ import annotations

import logging

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import prowd
from prowd.errors import ConfigError
from prowd.nets import Add, AvgPool, Conv, Flatten, Linear, MaxPool, Take, describe
from prowd.nets.tracing import read


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = conv(inputs, outputs, stride=stride), conv(outputs, outputs)
        same = stride == 1 and inputs == outputs
        self.short: nn.Module = nn.Identity() if same else conv(inputs, outputs, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        given = self.two(F.relu(self.one(x)))
        given += self.short(x)
        return F.relu(given)


class Net(nn.Module):
    """Residual blocks, a mean written out, and a view."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.drop = conv(2, 4), nn.Dropout(0.5)
        self.blocks = nn.Sequential(Block(4, 4, 1), Block(4, 6, 2))
        self.head = nn.Linear(6, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(torch.relu(self.stem(x)))
        x = x.mean((2, 3), keepdim=True)
        return self.head(self.drop(x.view(x.size(0), -1)))  # type: ignore[no-any-return]


LAYERS = (
    Conv("stem", 2, 4),
    Conv("blocks.0.one", 4, 4),
    Conv("blocks.0.two", 4, 4, relu=False),
    Add(0, relu=True),
    Conv("blocks.1.one", 4, 6, stride=(2, 2)),
    Conv("blocks.1.two", 6, 6, relu=False),
    Take(3),
    Conv("blocks.1.short", 4, 6, (1, 1), (2, 2), (0, 0), relu=False),
    Add(5, relu=True),
    AvgPool((4, 4), (4, 4)),
    Flatten(),
    Linear("head", 6, 3, relu=False),
)
SHAPE = (2, 8, 8)


def images(shape: tuple[int, int, int] = SHAPE, count: int = 5) -> Tensor:
    return torch.randint(-128, 128, (count, *shape), generator=torch.Generator().manual_seed(1)).to(torch.int8)


def test_a_module_with_shortcuts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert describe(Net(), SHAPE).layers == LAYERS
    assert "Identity 'blocks.0.short', Dropout 'drop' read as nothing" in caplog.text


def test_the_float32_twin_of_a_graph_computes_the_same_function() -> None:
    torch.manual_seed(0)
    net = Net().eval()
    torch.testing.assert_close(prowd.convert(net, "float32", SHAPE).logits(images()), net(images() / 128))


@pytest.mark.parametrize("width", ["int4", "int8"])
def test_an_integer_twin_of_a_graph_trains(width: str) -> None:
    torch.manual_seed(0)
    model = prowd.convert(Net(), width, SHAPE)
    before = model.weights()
    for _ in range(3):
        model.step(images(), torch.arange(5) % 3)
    assert not all(torch.equal(before[name].codes, tensor.codes) for name, tensor in model.weights().items())


class Sensor(nn.Module):
    """One dimension: a depthwise convolution, both poolings and a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(6, 8, 5, padding="same", bias=False),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(8, 8, 3, stride=2, padding=1, groups=8, bias=False),
            nn.AvgPool1d(2),
            nn.Conv1d(8, 4, 1, padding="valid", bias=False),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(4, 3, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)  # type: ignore[no-any-return]


def test_one_dimension_is_read_as_such() -> None:
    torch.manual_seed(0)
    shape, net = (6, 32, 1), Sensor()
    assert describe(net, shape).layers == (
        Conv("body.0", 6, 8, (5, 1), (1, 1), (2, 0)),
        MaxPool((2, 1), (2, 1)),
        Conv("body.3", 8, 8, (3, 1), (2, 1), (1, 0), relu=False, groups=8),
        AvgPool((2, 1), (2, 1)),
        Conv("body.5", 8, 4, (1, 1), (1, 1), (0, 0)),
        AvgPool((4, 1), (4, 1)),
        Flatten(),
        Linear("body.9", 4, 3, relu=False),
    )
    seen = images(shape)
    torch.testing.assert_close(prowd.convert(net, "float32", shape).logits(seen), net(seen.squeeze(-1) / 128))
    with pytest.raises(
        ConfigError, match=r"'body.0' is Conv1d.*images of shape \(C, L, 1\); here it receives \(6, 4, 8\)"
    ):
        describe(net, (6, 4, 8))


class Written(nn.Module):
    """What a function does to what a convolution gives, before a linear layer."""

    def __init__(self, function: object, width: int = 8) -> None:
        super().__init__()
        self.conv, self.head, self.function = conv(1, 2), nn.Linear(width, 2, bias=False), function

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.function(self.conv(x)).flatten(1))  # type: ignore[operator, no-any-return]


@pytest.mark.parametrize(
    ("function", "layer"),
    [
        (lambda x: F.max_pool2d(x, 2), MaxPool()),
        (lambda x: F.avg_pool2d(x, (2, 2), stride=2), AvgPool()),
        (lambda x: F.adaptive_avg_pool2d(x, (2, 2)), AvgPool()),
        (lambda x: F.max_pool2d(F.dropout(x), kernel_size=2).relu(), MaxPool()),
    ],
)
def test_functions_are_read_as_their_modules(function: object, layer: object) -> None:
    assert describe(Written(function), (1, 4, 4)).layers[1] == layer


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (torch.sigmoid, "'sigmoid' is sigmoid; accepted: Conv1d"),
        (lambda x: x + 1, "adds .*; accepted: the outputs of two layers"),
        (lambda x: torch.add(x, x, alpha=2), "adds"),
        (lambda x: x.mean(1), "a mean over dimensions 1"),
        (lambda x: x.view(-1, 4), r"view to \(-1, 4\)"),
        (lambda x: F.relu(x) + x, "ReLU 'relu' follows 'conv', which others use too"),
        (lambda x: F.relu(F.avg_pool2d(x, 2)), "ReLU 'relu' has no layer before it"),
        (lambda x: x if x.sum() > 0 else -x, "torch.fx cannot trace Written"),
        (lambda x: F.avg_pool2d(x, 3), "3×3 = 9 places; accepted: a power of two"),
    ],
)
def test_what_integers_have_not_is_refused(function: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        describe(Written(function), (1, 4, 4))


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"7 is no network; accepted: a name, or an nn\.Module"):
        describe(7, (1, 4, 4))  # type: ignore[arg-type]


# --- batch normalisation ---------------------------------------------------------------------------------------------


def normed() -> nn.Sequential:
    torch.manual_seed(2)
    net = nn.Sequential(conv(2, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2, bias=False))
    norm = net[1]
    assert isinstance(norm, nn.BatchNorm2d)
    norm.weight.data = torch.tensor([0.5, 2.0, -1.0])
    norm.running_var = torch.tensor([4.0, 0.25, 1.0])
    return net.eval()


def test_batch_norm_is_folded_into_a_trained_network() -> None:
    net = normed()
    with pytest.raises(ConfigError, match="bias: 0 has a bias, or one that a batch norm leaves when it is folded"):
        prowd.convert(net, "float32", (2, 4, 4))
    model = prowd.convert(net, "float32", (2, 4, 4), bias="drop")
    seen = images((2, 4, 4))
    torch.testing.assert_close(model.logits(seen), net(seen / 128))  # means and shifts are 0: nothing was dropped
    found = read(net, (2, 4, 4), "drop", trained=True).weights()["0.weight"]
    kernels = next(net.parameters()).detach()
    torch.testing.assert_close(found[1], kernels[1] * 4, rtol=1e-4, atol=0.0)


def test_batch_norm_is_refused_where_there_are_no_statistics() -> None:
    with pytest.raises(ConfigError, match=r"'1' is BatchNorm2d.*; accepted: no batch norm: integers have none"):
        describe(normed(), (2, 4, 4), "drop")
    apart = nn.Sequential(conv(2, 3), nn.ReLU(), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 2, bias=False))
    with pytest.raises(ConfigError, match=r"'2' is BatchNorm2d.* right after a convolution"):
        prowd.convert(apart, "float32", (2, 4, 4), bias="drop")
