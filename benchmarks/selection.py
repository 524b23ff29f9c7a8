"""What the mask of selective weight aggregation costs. Run with ``python -m benchmarks.selection``.

Two ratios for each kind of data, so that they mean the same on any machine; one thread.

time      of one mask against one ``torch.sort`` of an array of as many float32 numbers, in turn in one process: the
          median over repeats of the ratio of processor times. Limit: 2.
memory    resident memory at its peak while the mask is made, beyond what is resident before, when both updates are
          there: a process for each, and the peak as the kernel keeps it (VmHWM after a reset, see proc_pid_clear_refs).
          In units of one update. Limit: 6.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from prowd.methods.prowd.selection import select

ENTRIES = 13_000_000
KINDS = {  # name: (signs, τ, sparsity)
    "random signs, no limit": ("random", 1.0, 1.0),
    "all agree, no limit": ("agree", 1.0, 1.0),
    "random signs, tau 0.3": ("random", 0.3, 1.0),
    "all agree, tau 0.3": ("agree", 0.3, 1.0),
    "all agree, tau 0.01": ("agree", 0.01, 1.0),
    "random signs, sparsity 0.2": ("random", 1.0, 0.2),
    "all agree, sparsity 0.2": ("agree", 1.0, 0.2),
    "a third is zero, sparsity 0.2": ("zeros", 1.0, 0.2),
}


def updates(entries: int, signs: str) -> tuple[Tensor, Tensor]:
    """Two updates that know nothing of each other, but for their signs, or the zeros of the first."""
    random = torch.Generator().manual_seed(0)
    low, high = torch.randn(entries, generator=random), torch.randn(entries, generator=random)
    if signs == "zeros":
        low[::3] = 0.0
    return (low.abs_(), high.abs_()) if signs == "agree" else (low, high)


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def kibibytes(field: str) -> int:
    """One line of what the kernel says of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def peak(kind: str, entries: int) -> float:
    """Peak of resident memory in this process, in updates."""
    signs, tau, sparsity = KINDS[kind]
    low, high = updates(entries, signs)
    select(low[:100_000], high[:100_000], tau, sparsity=sparsity)  # what is loaded at the first use is there
    Path("/proc/self/clear_refs").write_text("5")
    before = kibibytes("VmRSS")
    select(low, high, tau, sparsity=sparsity)
    return (kibibytes("VmHWM") - before) * 1024 / (low.numel() * low.element_size())


def main() -> None:
    """Measure and print both ratios for every kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=ENTRIES, help=f"of each update (default {ENTRIES:,})")
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each kind (default 5)")
    parser.add_argument("--peak", choices=KINDS, help=argparse.SUPPRESS)  # as the process of one measurement
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.peak:
        print(peak(arguments.peak, arguments.entries))
        return
    print(f"{arguments.entries:,} entries             time / sort   memory / update   kept   cosine before, after")
    for kind, (signs, tau, sparsity) in KINDS.items():
        low, high = updates(arguments.entries, signs)
        make = partial(select, low, high, tau, sparsity=sparsity)
        mask = make()
        ratios = [seconds(make) / seconds(partial(torch.sort, low)) for _ in range(arguments.repeats)]
        command = [sys.executable, "-m", "benchmarks.selection", "--entries", str(arguments.entries), "--peak", kind]
        memory = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        cosines = f"{mask.cosine_before:.3f}, {mask.cosine_after:.3f}"
        print(f"{kind:29} {statistics.median(ratios):10.2f} {memory:17.2f} {mask.kept_fraction:9.3f}   {cosines}")
    print("limits                              2.00              6.00")


if __name__ == "__main__":
    main()
