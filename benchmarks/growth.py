"""How a run grows: time with cohort × steps, memory with the clients. ``python -m benchmarks.growth``.

time     a warm round of Int8 and Float32 clients, two workers, for cohorts and local steps twice and four times as
         large: seconds a client-step, in those of the first line. 1.00 everywhere would be perfectly linear.
memory   10, 100 and 1,000 registered clients of which 10 take part in a round: the most that server and workers held
         together (pages that they share counted once), and the largest worker, in megabytes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.peers.processes import held, tree

SETTINGS = {
    "model": "vgg7", "width": 0.125, "input_size": "native", "batch": 32, "augment": "none", "evaluate_every": 10**6,
    "buffer": 0, "test_examples": 10,
}  # fmt: skip
IMAGES = 20_000
ROUNDS = 6


def main() -> None:
    """Measure and print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="local steps of the smallest round (default 20)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "images.npz"
        random = np.random.default_rng(0)
        images = random.integers(0, 256, (IMAGES + 10, 3, 16, 16), dtype=np.uint8)
        labels = np.arange(IMAGES + 10) % 10
        np.savez(data, x_train=images[:-10], y_train=labels[:-10], x_test=images[-10:], y_test=labels[-10:])
        print("cohort  steps  client-steps  seconds a client-step, relative")
        first = 0.0
        for cohort, times in ((4, 1), (8, 1), (16, 1), (4, 2), (4, 4), (16, 4)):
            steps = arguments.steps * times
            seconds, _, _ = run(data, cohort, cohort, steps, watched=False)
            each = seconds / (cohort * steps)
            first = first or each
            print(f"{cohort:6}  {steps:5}  {cohort * steps:12}  {each / first:.2f}", flush=True)
        print("registered  cohort  all processes  largest worker")
        for registered in (10, 100, 1000):
            _, peak, worker = run(data, registered, 10, arguments.steps, watched=True)
            print(f"{registered:10}  {10:6}  {peak / 1e6:10.0f} MB  {worker / 1e6:11.0f} MB", flush=True)


def run(data: Path, registered: int, cohort: int, steps: int, *, watched: bool) -> tuple[float, int, int]:
    """Seconds of the quickest warm round, most bytes held by all processes, and by the largest worker.

    Watching memory takes some of the processor, so what is watched is not timed.
    """
    half = registered // 2
    settings = {
        **SETTINGS, "data": data, "clients": f"int8:{half}, float32:{registered - half}", "cohort": cohort,
        "steps": steps, "rounds": ROUNDS, "per_client": IMAGES // max(1000, registered),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        pairs = [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
        command = [
            str(Path(sys.executable).with_name("prowd")),
            "run",
            "quick",
            *pairs,
            "--workers",
            "2",
            "--out",
            str(out),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (Path(folder) / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
            together = largest = 0
            while watched and process.poll() is None:
                members = {member: held(member) for member in tree(process.pid)}
                together = max(together, sum(members.values()))
                largest = max([largest, *(size for member, size in members.items() if member != process.pid)])
                time.sleep(0.1)
            process.wait()
        if process.returncode:
            raise SystemExit((Path(folder) / "log").read_text())
        lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
        return min(line["seconds"] for line in lines[1:]), together, largest


if __name__ == "__main__":
    main()
