"""Make the evidence, publish it, and see what it says of the paper's claims.

``python -m benchmarks.evidence`` runs what is missing under runs/evidence (resumable: interrupt it when you like),
copies what is finished to results/, and prints a table of claims. ``--claims`` only reads results/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import prowd
from benchmarks.evidence.claims import claims, read_evidence, to_markdown
from benchmarks.evidence.publish import publish
from prowd.settings import read_suggestion

FEW = ["local", "fedavg", "fedpaq", "fedgroupedavg-asymmetric", "prowd"]
MORE = ["prowd-deq", "prowd-swa", "prowd-plus"]
METHODS = {
    "table1-50-50-cpu": [*read_suggestion("table1-50-50-cpu").methods, *MORE],
    "table1-80-20-cpu": [*read_suggestion("table1-80-20-cpu").methods, *MORE],
    "table2-cpu": FEW,
    "multibit-cpu": FEW,
}


def main() -> None:
    """Run, publish, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=METHODS, nargs="+", default=list(METHODS), help="some of the comparisons")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, help="runs at once (default: one a core)")
    parser.add_argument("--runs", type=Path, default=Path("runs/evidence"), help="where runs are made")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where what is kept of them goes")
    parser.add_argument("--claims", action="store_true", help="run nothing, judge what is there")
    arguments = parser.parse_args()
    for name in arguments.only:
        if not arguments.claims:
            place = arguments.runs / name
            seeds, workers = arguments.seeds, arguments.workers
            prowd.compare(name, methods=METHODS[name], seeds=seeds, out=place, workers=workers, progress=True)
            publish(place, arguments.results / name)
    there = [arguments.results / name for name in arguments.only if (arguments.results / name).is_dir()]
    print(to_markdown(claim for folder in there for claim in claims(read_evidence(folder))))


if __name__ == "__main__":
    main()
