"""Where the time of a run goes: ``python -m benchmarks.shares [PRESET] [--method NAME]``.

A run in one process under Python's profiler, its time shared out among the parts that do the work. Each part is all
the processor time spent in it, calls included, which other programs hardly change; parts do not overlap, and what is
left is the engine. The most memory that the process held is printed too.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import sys
import tempfile
import time
from pathlib import Path

import torch

import prowd

PARTS = {
    "Float32 clients' steps": [("float32.py", "step")],
    "integer clients' steps": [("model.py", "step")],
    "augmentation and batches": [("augment.py", "augment"), ("training.py", "batches")],
    "evaluation": [("training.py", "accuracy")],
    "codec": [("messages.py", name) for name in ("encode_task", "encode_update", "decode_task", "decode_update")],
    "fitting φ": [("fitting.py", "fit")],
    "lifting by φ": [("lifting.py", "lift")],
    "masks": [("mask.py", "select")],
    "checkpoints": [("directory.py", "checkpoint")],
    "loading the data": [("build.py", "load_data"), ("build.py", "as_used")],
}


def main() -> None:
    """Run and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", nargs="?", default="table1-50-50-cpu", help="default: table1-50-50-cpu")
    parser.add_argument("--method", default="prowd", help="default: prowd")
    parser.add_argument("--kernel", default="auto", help="default: auto")
    parser.add_argument("--rounds", type=int, default=2, help="default: 2")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    profiler = cProfile.Profile(time.process_time)
    with tempfile.TemporaryDirectory() as folder:
        profiler.enable()
        prowd.run(
            arguments.preset, method=arguments.method, kernel=arguments.kernel, rounds=arguments.rounds, workers=1,
            out=Path(folder) / "run",
        )  # fmt: skip
        profiler.disable()
    show(pstats.Stats(profiler))


def show(stats: pstats.Stats) -> None:
    """Print each part's share of the whole."""
    total: float = stats.total_tt  # type: ignore[attr-defined]
    calls: dict[tuple[str, int, str], tuple[int, int, float, float, object]] = stats.stats  # type: ignore[attr-defined]
    left = total
    for part, functions in PARTS.items():
        spent = sum(
            cumulative
            for (file, _, name), (_, _, _, cumulative, _) in calls.items()
            if (Path(file).name, name) in functions and "prowd" in Path(file).parts
        )
        left -= spent
        print(f"{part:<26} {spent:7.1f} s  {100 * spent / total:5.1f} %")
    print(f"{'all else':<26} {left:7.1f} s  {100 * left / total:5.1f} %")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(f"{'whole run':<26} {total:7.1f} s; peak memory {peak / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
