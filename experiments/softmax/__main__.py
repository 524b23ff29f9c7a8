"""Integer cross-entropy against a float softmax, on validation data. Run with ``python -m experiments.softmax``.

The same federation twice for every seed: as it is, and with the errors of integer clients from a float32 softmax. All
else is the same, random words included. If the integers are as good, the differences are noise around zero.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

import prowd
from prowd.nets.lowbit import model
from prowd.nets.lowbit.loss import LOSS_BITS
from prowd.numbers.bits import Bitwidth
from prowd.numbers.exponential import ONE_BITS

DATA: dict[str, tuple[str, dict[str, Any], list[int]]] = {
    "digits": ("quick", {"validation": 300}, list(range(100, 110))),
    "cifar10": ("table1-50-50-cpu", {"validation": 5000}, [100, 101]),
}


def float_cross_entropy(logits: Tensor, labels: Tensor, width: Bitwidth, logit_scale: float) -> tuple[Tensor, Tensor]:
    """The loss of version 0.1: a float32 softmax, in the fixed point of the integer one."""
    scaled = logits * (logit_scale / width.steps)
    error = torch.softmax(scaled, 1) - F.one_hot(labels, logits.shape[1])
    loss = F.cross_entropy(scaled, labels, reduction="sum") * 2**LOSS_BITS
    return loss.to(torch.int64), (error.double() * 2**ONE_BITS).round().to(torch.int64)


def accuracies(preset: str, settings: dict[str, Any], seed: int, out: Path) -> dict[str, float]:
    """Accuracy after local training of every width, in %, with FedAvg."""
    if (out / "summary.json").exists():
        result = prowd.run(resume=out, workers=1)
    else:
        result = prowd.run(preset, out=out, workers=1, method="fedavg", seed=seed, **settings)
    return {width: 100 * value for width, value in result.summary["accuracy"]["trained"].items()}


def main() -> None:
    """Print the accuracies of both losses for every seed, and the mean difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=DATA, nargs="+", default=["digits"], help="cifar10 takes half an hour")
    parser.add_argument("--out", type=Path, help="where the runs are kept (default: nowhere)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.data:
            compare(name, arguments.out or Path(folder))


def compare(name: str, out: Path) -> None:
    """Print the table of one data set."""
    preset, settings, seeds = DATA[name]
    print(f"{name}, FedAvg, % after local training", "seed | integer | float", sep="\n", flush=True)
    differences: dict[str, list[float]] = {}
    for seed in seeds:
        whole = accuracies(preset, settings, seed, out / f"{name}-integer-{seed}")
        with patch.object(model, "cross_entropy_of", lambda _: float_cross_entropy):
            other = accuracies(preset, settings, seed, out / f"{name}-float-{seed}")
        shown = (" / ".join(f"{width} {value:.2f}" for width, value in found.items()) for found in (whole, other))
        print(seed, *shown, sep=" | ", flush=True)
        for width, value in whole.items():
            differences.setdefault(width, []).append(value - other[width])
    for width, values in differences.items():
        print(f"{width}: {statistics.mean(values):+.2f} ± {statistics.stdev(values):.2f} (standard deviation)")


if __name__ == "__main__":
    main()
