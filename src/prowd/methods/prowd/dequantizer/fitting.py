"""Fitting φ on the weights of a round (Algorithm 2)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from prowd.errors import ConfigError, RunError
from prowd.methods.prowd.dequantizer.descent import Descent
from prowd.methods.prowd.dequantizer.modules import Kernel
from prowd.methods.prowd.dequantizer.network import Dequantizer
from prowd.methods.prowd.dequantizer.source import Net, Source

__all__ = ["Losses", "fit", "lift", "losses"]


@dataclass(frozen=True)
class Losses:
    """L_recon and L_distill, the mean of each epoch of a fit; empty when no net was above the foot of the ladder."""

    recon: tuple[float, ...]
    distill: tuple[float, ...]


def fit(phi: Dequantizer, nets: Sequence[Net], buffer: Tensor, random: torch.Generator) -> Losses:
    """Fit φ, in place, to one round's networks and the server's buffer U, images in [−1, 1].

    A step takes modules of one network and one kernel shape; an epoch takes every module of every network once, in
    random order, unless the steps of the fit are used up before. Only the blocks below a network's width learn from
    it, the others and their momentum rest; networks at the foot of the ladder teach nothing. The parameters go on from
    where they are; the optimizer starts afresh.

    For each epoch are drawn an order of each network's modules, shape by shape, and one of the batches, for each batch
    an order of the buffer, whose first images are u, and their noise.
    """
    settings = phi.settings
    device = next(phi.parameters()).device
    if settings.lam > 0 and not len(buffer):
        raise ConfigError("buffer: no images to distill with; accepted: 1 or more, or dequantizer.lam = 0")
    sources = [Source(net, phi.ladder, settings.module, device) for net in nets]
    sources = [source for source in sources if source.entry > 0 and source.groups]
    descent, left = Descent(phi.parameters(), settings), settings.steps or sys.maxsize
    means: list[Tensor] = []
    for _ in range(settings.epochs if sources else 0):
        batches = _epoch(sources, settings.batch, random)[:left]
        drawn = {number for number, _, _ in batches} if settings.lam > 0 else set()
        lifted = [lift(phi, source) if number in drawn else {} for number, source in enumerate(sources)]
        steps: list[Tensor] = []
        for number, kernel, rows in batches:
            images = _noisy(buffer, settings.images if settings.lam > 0 else 0, settings.noise, random)
            recon, distill = losses(phi, sources[number], kernel, rows.to(device), images.to(device), lifted[number])
            torch.autograd.backward(recon + settings.lam * distill)
            descent.step()
            steps.append(torch.stack([recon.detach(), distill.detach()]))
        left -= len(steps)
        means += [torch.stack(steps).mean(0)] if steps else []
    _check(phi)
    recons, distills = torch.stack(means).cpu().T.tolist() if means else ((), ())
    return Losses(tuple(recons), tuple(distills))


@torch.no_grad()
def lift(phi: Dequantizer, source: Source) -> dict[Kernel, Tensor]:
    """φ(q_0) of all modules of a net: what its network is made of in L_distill, next to those of a batch."""
    return {kernel: phi(group.rungs[0], 0, source.entry) for kernel, group in source.groups.items()}


def losses(
    phi: Dequantizer, source: Source, kernel: Kernel, rows: Tensor, images: Tensor, lifted: Mapping[Kernel, Tensor]
) -> tuple[Tensor, Tensor]:
    """L_recon of some modules of a net (Algorithm 2, line 5), and L_distill (line 6) with all its modules lifted.

    Gradients reach φ through the modules of the batch only. Block j reads q_j (for L_recon) and what came up from q_0
    (for L_distill) in one pass; at block 0 they are the same.
    """
    recon = torch.zeros((), device=images.device)
    rungs = [rung[rows] for rung in source.groups[kernel].rungs]
    climbing = rungs[0]
    for j, (low, high) in enumerate(pairwise(rungs)):
        twice = j > 0 and len(images) > 0
        both = phi(torch.cat([low, climbing]) if twice else low, j, j + 1)
        recon = recon + (high - both[: len(rows)]).abs().mean()
        climbing = both[-len(rows) :]
    if not len(images):
        return recon, torch.zeros_like(recon)
    with torch.no_grad():
        target = source.predict(images)
    modules = {**lifted, kernel: lifted[kernel].index_copy(0, rows, climbing)}
    exchanged = {
        name: weight for shape, group in source.groups.items() for name, weight in group.tensors(modules[shape]).items()
    }
    return recon, -F.cosine_similarity(target, source.predict(images, exchanged)).mean()


def _check(phi: Dequantizer) -> None:
    """Refuse a φ that has diverged, before it spoils the model."""
    if not all(bool(parameter.isfinite().all()) for parameter in phi.parameters()):
        raise RunError(f"dequantizer: the fit diverged at lr {phi.settings.lr:g}; accepted: a smaller dequantizer.lr")


def _epoch(sources: list[Source], batch: int, random: torch.Generator) -> list[tuple[int, Kernel, Tensor]]:
    """Batches of one epoch, each of one network and one kernel shape."""
    steps: list[tuple[int, Kernel, Tensor]] = []
    for number, source in enumerate(sources):
        for kernel, group in source.groups.items():
            order = torch.randperm(len(group), generator=random)
            steps += [(number, kernel, order[start : start + batch]) for start in range(0, len(order), batch)]
    return [steps[index] for index in torch.randperm(len(steps), generator=random).tolist()]


def _noisy(buffer: Tensor, count: int, noise: float, random: torch.Generator) -> Tensor:
    """A minibatch u of the buffer with Gaussian noise; the draws do not depend on the device."""
    rows = torch.randperm(len(buffer), generator=random)[:count]
    images = buffer[rows.to(buffer.device)].cpu()
    return images + noise * torch.randn(images.shape, generator=random)
