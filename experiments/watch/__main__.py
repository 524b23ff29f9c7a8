"""Choose the regime of the preset watch on validation people. Run with ``python -m experiments.watch``.

Every choice is the preset with some settings changed together, measured on two people who are never test people, with
seeds from 100. Runs are kept under --runs; interrupt when you like, the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import prowd
from prowd.comparison.formats import interval, to_markdown
from prowd.errors import ProwdError

METHODS = ("local", "fedavg", "prowd", "prowd-plus")
VALIDATION = {"validation_clients": 2, "evaluate_every": 1000}  # only the final accuracies are looked at
MORE_ROUNDS = {"rounds": 24, "steps": 40, "options.prowd.dequantizer.steps": 15}  # as many steps of everything
CHOICES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "steps 100": {"steps": 100},
    "twice the rounds, half the steps": MORE_ROUNDS,
    "twice the rounds and rescale": {**MORE_ROUNDS, "rescale": "layer"},
    "rescale by layer": {"rescale": "layer"},
    "shifted windows": {"augment": "crop"},
    "smaller steps at Float32": {"float32.lr": 0.01},
    "smaller steps at Int8": {"lowbit.rate": 4.0},
    "smaller steps at both": {"float32.lr": 0.01, "lowbit.rate": 4.0},
    "one and a half times as wide": {"width": 1.5},
    "nothing held out": {"own_test": 0.0},
}


def main() -> None:
    """Run the choices and print their table."""
    parser = argparse.ArgumentParser(
        "python -m experiments.watch", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=CHOICES, default=list(CHOICES), metavar="CHOICE")
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102])
    parser.add_argument("--workers", type=int)
    parser.add_argument("--runs", type=Path, default=Path("runs/experiments/watch-choices"))
    arguments = parser.parse_args()
    if min(arguments.seeds) < 100:
        parser.error(f"--seeds: {min(arguments.seeds)}; accepted: from 100 on, those below are for the test people")
    cells = [["choice", "method", "Int8", "Float32", "average", "against FedAvg"]]
    for name in arguments.only:
        made = prowd.compare(
            "watch",
            methods=arguments.methods,
            seeds=arguments.seeds,
            out=arguments.runs / name.replace(" ", "-"),
            workers=arguments.workers,
            progress=True,
            **{**VALIDATION, **CHOICES[name]},
        )
        for row in made.rows:
            widths = [interval(row.widths.get(width)) for width in ("int8", "float32")]
            cells.append([name, row.method, *widths, interval(row.average), interval(row.difference, signed=True)])
    print(to_markdown(cells))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from there")
    except ProwdError as error:
        sys.exit(f"error: {error}")
