"""The steps of φ's fit against torch.optim's, to the bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import nn

from prowd.methods.prowd.dequantizer.descent import Descent
from prowd.methods.prowd.dequantizer.settings import DequantizerSettings


@pytest.mark.parametrize("momentum", [0.0, 0.8, 0.9])
@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_steps_are_those_of_torch_optim(kind: Literal["sgd", "adam"], momentum: float) -> None:
    """Thirty steps; in every third one parameter has no gradient and rests."""
    random = torch.Generator().manual_seed(1)
    start = [torch.randn(shape, generator=random) for shape in ((5, 3, 3, 3), (5,), (40,))]
    ours, theirs = ([nn.Parameter(tensor.clone()) for tensor in start] for _ in range(2))
    settings = replace(DequantizerSettings(), optimizer=kind, lr=0.01, momentum=momentum)
    peer = (
        torch.optim.SGD(theirs, lr=0.01, momentum=momentum)
        if kind == "sgd"
        else torch.optim.Adam(theirs, lr=0.01, betas=(momentum, 0.999))
    )
    descent = Descent(ours, settings)
    for step in range(30):
        peer.zero_grad()
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if number or step % 3:
                one.grad = torch.randn(one.shape, generator=random)
                other.grad = one.grad.clone()
        descent.step()
        peer.step()
        assert all(one.grad is None for one in ours)
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True)), step
