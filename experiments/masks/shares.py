"""How much a mask of ProWD may drop, on validation data. Run with ``python -m experiments.masks.shares``.

The default of ``sparsity`` was chosen on this table (experiments/masks/README.md): the digits of the preset ``quick``,
300 of the 1,438 training images set aside to validate on, and seeds that are reported nowhere else.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import prowd
from prowd.data import load

VALIDATION, SPLIT = 300, 12345
SHARES = (1.0, 0.5, 0.35, 0.2, 0.1, 0.05)
LIMITED = f"{Path(__file__).with_name('method.py')}:LimitedProWD"


def split() -> dict[str, NDArray[Any]]:
    """The training digits, in two parts."""
    digits = load("digits")
    order = torch.randperm(len(digits.y_train), generator=torch.Generator().manual_seed(SPLIT))
    train, rest = order[:-VALIDATION], order[-VALIDATION:]
    parts = {"x_train": digits.x_train[train], "y_train": digits.y_train[train]}
    parts |= {"x_test": digits.x_train[rest], "y_test": digits.y_train[rest]}
    return {name: np.asarray(tensor) for name, tensor in parts.items()}


def main() -> None:
    """Print a line for each method and share: accuracies of every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101])
    parser.add_argument("--out", type=Path, help="where the runs are kept, to go on with later (default: nowhere)")
    arguments = parser.parse_args()
    data = split()
    plans: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in ("local", "fedavg", "prowd-deq")}
    plans |= {f"prowd, sparsity {share:g}": (LIMITED, {"sparsity": share}) for share in SHARES}
    with tempfile.TemporaryDirectory() as folder:
        out = arguments.out or Path(folder)
        for name, (method, options) in plans.items():
            place = out / name.replace(", sparsity ", "-")
            found = prowd.compare(
                "quick", methods=[method], seeds=arguments.seeds, out=place, data=data, options=options
            )
            shown = [
                f"{one.average:.2f} ({' / '.join(f'{value:.1f}' for value in one.trained.values())})"
                for one in found.outcomes
            ]
            print(f"{name:22}", *shown, sep="   ", flush=True)


if __name__ == "__main__":
    main()
