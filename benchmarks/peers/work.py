"""The work that prowd and every peer do: data, network, local training, averaging, and the report of a run.

Torch and numpy only, so that the environments of the peers can import it without prowd. The network is what prowd
calls ``vgg7`` at ``width = 0.125``, trained as prowd trains a Float32 client, in the terms of an ordinary torch
program: an ``nn.Sequential`` under torch's weight normalization, ``torch.optim.SGD``, ``clip_grad_norm_``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

CLIENTS, EXAMPLES, BATCH = 10, 500, 32
SIDE, CLASSES = 16, 10
CHANNELS, HIDDEN = (16, 16, 32, 32, 64, 64), 128
LOW = tuple(range(CLIENTS // 2))  # the Int8 clients of the mixed federation; the others are Float32 as all else
ENOUGH = 0.7  # the accuracy, the mean of both widths, that the mixed federation is to reach
TESTED = 500  # images on which the server of the mixed federation measures its model after every round
LR, GAIN_LR, MOMENTUM, CLIP = 0.03, 0.02, 0.9, 2.0
CONTRAST, NOISE = 50.0, 60.0  # grey levels of what tells the classes apart, and of what does not
FAINT = 10.0  # the contrast in the mixed federation, whose accuracy is to take some rounds
WRONG = 0.4  # of the labels

State = Mapping[str, Tensor]


@cache
def examples(contrast: float = CONTRAST) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Every client's examples in a row: noise on a pattern for each class, some with a wrong label.

    The patterns can be learnt, so that a loss tells who has trained from who has not; the wrong labels keep it from
    vanishing, so that those who have are alike.
    """
    random = np.random.default_rng(0)
    classes = np.arange(CLIENTS * EXAMPLES) % CLASSES
    random.choice((-1.0, 1.0), (CLASSES, 3, 4, 4))  # those of the patterns, which the same seed draws
    grey = random.normal(127.5, NOISE, (len(classes), 3, SIDE, SIDE)) + contrast * patterns()[classes]
    labels = np.where(random.random(len(classes)) < WRONG, random.permutation(classes), classes)
    return grey.clip(0, 255).astype(np.uint8), labels


@cache
def test_examples() -> tuple[Tensor, Tensor]:
    """More of the same, of which no label is wrong."""
    random = np.random.default_rng(1)
    classes = np.arange(TESTED) % CLASSES
    grey = random.normal(127.5, NOISE, (TESTED, 3, SIDE, SIDE)) + FAINT * patterns()[classes]
    return torch.from_numpy(grey.clip(0, 255).astype(np.uint8)), torch.from_numpy(classes)


def patterns() -> NDArray[np.float64]:
    """What tells the classes apart: squares of 4×4 pixels that are lighter or darker."""
    random = np.random.default_rng(0)
    return random.choice((-1.0, 1.0), (CLASSES, 3, 4, 4)).repeat(SIDE // 4, 2).repeat(SIDE // 4, 3)


@cache
def data_of(client: int, contrast: float = CONTRAST) -> tuple[Tensor, Tensor]:
    """One client's images and labels."""
    images, labels = examples(contrast)
    rows = slice(client * EXAMPLES, (client + 1) * EXAMPLES)
    return torch.from_numpy(images[rows]), torch.from_numpy(labels[rows])


def batches(client: int, round_: int, steps: int) -> Tensor:
    """Rows of full batches from a stream of reshuffled epochs."""
    random = torch.Generator().manual_seed(round_ * CLIENTS + client)
    epochs = -(-steps * BATCH // EXAMPLES)
    stream = torch.cat([torch.randperm(EXAMPLES, generator=random) for _ in range(epochs)])
    return stream[: steps * BATCH].reshape(steps, BATCH)


@cache
def network() -> nn.Sequential:
    """VGG-7 at 1/8 width without biases, w = g·v/‖v‖ per output channel, g = ‖v‖/α at the start; one a process."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    inputs = 3
    for index, outputs in enumerate(CHANNELS):
        layers += [_normalised(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)), nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(2)] if index % 2 else []
        inputs = outputs
    flat = inputs * (SIDE // 8) ** 2
    hidden, last = _normalised(nn.Linear(flat, HIDDEN, bias=False)), _normalised(nn.Linear(HIDDEN, CLASSES, bias=False))
    return nn.Sequential(*layers, nn.Flatten(), hidden, nn.ReLU(inplace=True), last)


def _normalised(layer: nn.Conv2d | nn.Linear) -> nn.Module:
    fan_in = math.prod(layer.weight.shape[1:])
    limit = max(0.75, math.sqrt(3 / fan_in))
    nn.init.uniform_(layer.weight, -limit, limit)
    weight_norm(layer)
    with torch.no_grad():
        layer.get_parameter("parametrizations.weight.original0").div_(_alpha(fan_in))
    return layer


def _alpha(fan_in: int) -> float:
    return max(1.0, 2.0 ** round(math.log2(0.75 / math.sqrt(3 / fan_in))))


def optimizer(net: nn.Module) -> torch.optim.Optimizer:
    """SGD with fresh momentum; the rate of v in a layer goes with α², that of the gains is the same everywhere."""
    groups = []
    for name, parameter in net.named_parameters():
        is_gain = name.endswith("original0")
        rate = GAIN_LR if is_gain else LR * _alpha(math.prod(parameter.shape[1:])) ** 2
        groups.append({"params": [parameter], "lr": rate})
    return torch.optim.SGD(groups, lr=LR, momentum=MOMENTUM)


def logits_of(net: nn.Module, images: Tensor) -> Tensor:
    """Logits of uint8 images, scaled to [−1, 1]."""
    scaled: Tensor = net(images.to(torch.float32, memory_format=torch.channels_last).div_(127.5).sub_(1.0))
    return scaled


def loss_of(net: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy on a batch of uint8 images."""
    return F.cross_entropy(logits_of(net, images), labels)


@dataclass(frozen=True)
class Trained:
    """What a client brings back from a round."""

    state: State
    loss: float
    steps: int


def train(net: nn.Module, start: State, client: int, round_: int, steps: int, contrast: float = CONTRAST) -> Trained:
    """One client's round: load the shared weights, take the steps, hand back copies of the weights."""
    net.load_state_dict(start)
    sgd, parameters = optimizer(net), list(net.parameters())
    images, labels = data_of(client, contrast)
    total, done = torch.zeros(()), 0
    for rows in batches(client, round_, steps):
        sgd.zero_grad()
        loss = loss_of(net, images[rows], labels[rows])
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, CLIP)
        sgd.step()
        total += loss.detach()
        done += 1
    return Trained(copied(net), float(total) / done, done)


def copied(net: nn.Module) -> State:
    """The weights as they are now, to be kept while the network goes on training."""
    return {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}


def average(states: Sequence[State]) -> State:
    """FedAvg over clients that have as many examples each."""
    return {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}


@dataclass
class Report:
    """What a run says of itself: when its rounds ended, the mean local loss of the last, all local steps taken.

    In the mixed federation also the accuracy after each round, the mean of both widths, and the bytes up and down.
    """

    ends: list[float] = field(default_factory=list)
    loss: float = math.nan
    steps: int = 0
    accuracy: list[float] = field(default_factory=list)
    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)

    def begin(self) -> None:
        """The first round begins now."""
        self.ends = [time.perf_counter()]

    def round_ended(self) -> None:
        """A round is over, and the next begins."""
        self.ends.append(time.perf_counter())

    def write(self, path: Path) -> None:
        """Leave the report where the benchmark looks for it."""
        rounds = [end - begin for begin, end in itertools.pairwise(self.ends)]
        said = {name: value for name, value in vars(self).items() if name != "ends"}
        path.write_text(json.dumps({**said, "rounds": rounds}))


@dataclass(frozen=True)
class Arguments:
    """What the benchmark asks of one process."""

    steps: int
    rounds: int
    threads: int
    report: Path
    mixed: bool


def arguments() -> Arguments:
    """Read the command line that all contestants share."""
    parser = argparse.ArgumentParser(description="One run of one contestant; `python -m benchmarks.peers` starts it.")
    parser.add_argument("--steps", type=int, required=True, help="local steps a client takes in a round")
    parser.add_argument("--rounds", type=int, required=True, help="rounds to run")
    parser.add_argument("--threads", type=int, required=True, help="torch threads of each process that trains")
    parser.add_argument("--report", type=Path, required=True, help="JSON file to write the report to")
    parser.add_argument("--mixed", action="store_true", help="half of the clients Int8, accuracy after every round")
    return Arguments(**vars(parser.parse_args()))
