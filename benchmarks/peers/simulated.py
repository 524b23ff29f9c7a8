"""An Int8 client as a user of torch writes one where nothing computes in integers: fake quantization in floats.

Weights and activations are rounded to 8 bits by the largest magnitude of each tensor, and gradients pass through the
rounding (a straight-through estimator). What is sent back is rounded too, as the device could hold nothing else.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.peers import work

LEAST, MOST = -127, 127


def rounded(values: Tensor) -> Tensor:
    """The nearest values of 8 bits; the gradient is that of the identity."""
    scale = float(values.detach().abs().max()) / MOST
    return torch.fake_quantize_per_tensor_affine(values, scale, 0, LEAST, MOST) if scale else values


class Rounded(nn.Module):
    """The layers of a network, with rounded weights and activations."""

    def __init__(self, net: nn.Sequential) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        for layer in self.net:
            if isinstance(layer, nn.Conv2d):
                x = F.conv2d(rounded(x), rounded(layer.weight), padding=1)
            elif isinstance(layer, nn.Linear):
                x = F.linear(rounded(x), rounded(layer.weight))
            else:
                x = layer(x)
        return x


def train(start: work.State, client: int, round_: int, steps: int) -> work.Trained:
    """One round of an Int8 client."""
    net = Rounded(work.network())
    own = {f"net.{name}": rounded(tensor) for name, tensor in start.items()}
    trained = work.train(net, own, client, round_, steps, work.FAINT)
    back = {name.removeprefix("net."): rounded(tensor) for name, tensor in trained.state.items()}
    return work.Trained(back, trained.loss, trained.steps)


@torch.no_grad()
def accuracy(state: work.State) -> float:
    """Of the shared weights on test images, the mean of a Float32 and of an Int8 client's."""
    net = work.network()
    net.load_state_dict(state)
    images, labels = work.test_examples()
    both = [(work.logits_of(used, images).argmax(1) == labels).double().mean() for used in (net, Rounded(net))]
    return float(sum(both)) / len(both)
