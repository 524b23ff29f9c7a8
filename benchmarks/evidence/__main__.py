"""Make the evidence, keep it, and see what it says of the paper's claims.

``python -m benchmarks.evidence`` runs what is missing under runs/evidence (resumable: interrupt it when you like),
copies what is finished to results/, and prints what was found, claim by claim. ``--claims`` only reads results/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import prowd
from benchmarks.evidence.claims import changes, claims, read_evidence, to_markdown
from benchmarks.evidence.plans import PLANS
from benchmarks.evidence.publish import publish


def main() -> None:
    """Run, keep, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PLANS, nargs="+", default=list(PLANS), help="some of the comparisons")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, help="runs at once (default: one a core)")
    parser.add_argument("--runs", type=Path, default=Path("runs/evidence"), help="where runs are made")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where what is kept of them goes")
    parser.add_argument("--claims", action="store_true", help="run nothing, judge what is there")
    arguments = parser.parse_args()
    for name in arguments.only:
        if not arguments.claims:
            _make(name, arguments)
    found = {name: read_evidence(path) for name in PLANS if (path := arguments.results / name).is_dir()}
    for name in arguments.only:
        if name in found:
            against = found.get(PLANS[name].against)
            print(to_markdown(changes(against, found[name]) if against else claims(found[name])), end="\n\n")


def _make(name: str, arguments: argparse.Namespace) -> None:
    plan, place = PLANS[name], arguments.runs / name
    prowd.compare(
        plan.preset,
        methods=plan.methods,
        seeds=arguments.seeds,
        out=place,
        workers=arguments.workers,
        progress=True,
        **plan.settings,
    )
    publish(place, arguments.results / name)


if __name__ == "__main__":
    main()
