"""What φ costs a round: ``python -m benchmarks.dequantizer [PRESET]``.

ProWD, and ProWD without φ (prowd-swa), take turns with the same clients and as many workers as there are cores. What is
printed is the time of ProWD's rounds in those of the other; the first round of a run, which starts workers, does not
count. Rounds in which accuracy is measured are longer for both, and shown apart. The processor time is that of whole
runs on all cores: it says the same where other programs want the processor too, but not who waits for whom.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import prowd
from prowd.config.files import read_pairs
from prowd.runs.read import read_record

WITH, WITHOUT = "prowd", "prowd-swa"


def main() -> None:
    """Take turns, and print how long rounds took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", nargs="?", default="table1-50-50-cpu", help="default: table1-50-50-cpu")
    parser.add_argument("--rounds", type=int, default=6, help="rounds a run; default: 6")
    parser.add_argument("--turns", type=int, default=2, help="runs of each; default: 2")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="default: one a core")
    parser.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="as for prowd run")
    arguments = parser.parse_args()
    settings = read_pairs(arguments.set)
    seconds: dict[tuple[str, bool], list[float]] = {}
    processor: dict[str, list[float]] = {}
    for _ in range(arguments.turns):
        for method in (WITHOUT, WITH):
            used = (
                settings
                if method == WITH
                else {key: value for key, value in settings.items() if key.partition(".")[0] != "options"}
            )
            before = sum(os.times()[:4])
            for measured, took in _rounds(arguments, method, used):
                seconds.setdefault((method, measured), []).append(took)
            processor.setdefault(method, []).append((sum(os.times()[:4]) - before) / arguments.rounds)
    for measured in (False, True):
        show(
            "measured rounds" if measured else "rounds", *(seconds.get((one, measured), []) for one in (WITHOUT, WITH))
        )
    show("processor time", processor[WITHOUT], processor[WITH])


def _rounds(arguments: argparse.Namespace, method: str, settings: dict[str, Any]) -> list[tuple[bool, float]]:
    """Whether each round but the first was measured, and how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        prowd.run(
            arguments.preset, method=method, rounds=arguments.rounds, workers=arguments.workers, out=path, **settings
        )
        return [(bool(line.accuracy.trained), line.seconds) for line in read_record(path).lines[1:]]


def show(what: str, without: list[float], with_: list[float]) -> None:
    """Print one ratio, of medians."""
    if without and with_:
        alone, both = statistics.median(without), statistics.median(with_)
        print(f"{what:<16} {alone:6.2f} s without φ  {both:6.2f} s with φ  ×{both / alone:.2f}  ({len(with_)} rounds)")


if __name__ == "__main__":
    main()
