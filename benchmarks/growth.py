"""How a run grows: time with cohort × steps, memory with the clients. ``python -m benchmarks.growth``.

time     a warm round of Int8 and Float32 clients, two workers, for cohorts and local steps twice and four times as
         large: seconds a client-step, in those of the first line. 1.00 everywhere would be perfectly linear.
clients  10 to 10,000 registered clients, of which 10 or 100 take part in a round: the same time; the most that server
         and workers held together (pages that they share counted once), and the largest worker, in megabytes; a line of
         rounds.jsonl for each client asked, and a checkpoint, in bytes. Everybody has ten images of the same file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.peers.processes import held, tree

SETTINGS = {
    "model": "vgg7", "width": 0.125, "input_size": "native", "batch": 32, "augment": "none", "evaluate_every": 10**6,
    "buffer": 0, "test_examples": 10,
}  # fmt: skip
REGISTERED = ((10, 10), (100, 10), (1_000, 10), (10_000, 10), (10_000, 100))  # and how many of them are asked
EACH = 10  # images of a client where many are registered
IMAGES = EACH * max(registered for registered, _ in REGISTERED)
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
            grown = run(data, cohort, cohort, steps, per_client=1000)
            each = grown.seconds / (cohort * steps)
            first = first or each
            print(f"{cohort:6}  {steps:5}  {cohort * steps:12}  {each / first:.2f}", flush=True)
        print("registered  cohort  time  all processes  largest worker  line a client  checkpoint")
        first = 0.0
        for registered, cohort in REGISTERED:
            grown = run(data, registered, cohort, arguments.steps, per_client=EACH)
            watched = run(data, registered, cohort, arguments.steps, per_client=EACH, watched=True)
            each = grown.seconds / cohort
            first = first or each
            print(
                f"{registered:10}  {cohort:6}  {each / first:.2f}  {watched.together / 1e6:10.0f} MB  "
                f"{watched.largest / 1e6:11.0f} MB  {grown.line / cohort:13.0f}  {grown.checkpoint:10}",
                flush=True,
            )


@dataclass(frozen=True)
class Grown:
    """One run: seconds of its quickest warm round, and what is watched and written, in bytes."""

    seconds: float
    together: int
    largest: int
    line: int
    checkpoint: int


def run(data: Path, registered: int, cohort: int, steps: int, *, per_client: int, watched: bool = False) -> Grown:
    """Run it once. Watching memory takes some of the processor, so what is watched is not to be timed."""
    half = registered // 2
    settings = {
        **SETTINGS, "data": data, "clients": f"int8:{half}, float32:{registered - half}", "cohort": cohort,
        "steps": steps, "rounds": ROUNDS, "per_client": per_client,
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
        lines = (out / "rounds.jsonl").read_text().splitlines()
        seconds = min(json.loads(line)["seconds"] for line in lines[1:])
        longest = max(len(line) for line in lines)
        (*_, checkpoint) = sorted((out / "checkpoints").glob("*.safetensors"))
        return Grown(seconds, together, largest, longest, checkpoint.stat().st_size)


if __name__ == "__main__":
    main()
