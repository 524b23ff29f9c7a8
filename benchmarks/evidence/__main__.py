"""Make the evidence, keep it, and see what it says of the paper's claims.

``python -m benchmarks.evidence`` runs what is missing under runs/evidence (resumable: interrupt it when you like),
copies what is finished to results/, and prints what was found, claim by claim. ``--claims`` only reads results/.
``--only suspects`` makes all those under that name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import prowd
from benchmarks.evidence.claims import changes, claims, goal, to_markdown, together
from benchmarks.evidence.plans import EQUALS, PLANS, SCREENED
from benchmarks.evidence.publish import publish
from benchmarks.evidence.reading import Evidence, read_evidence
from benchmarks.evidence.suspects import overview
from prowd.errors import ProwdError


def main() -> None:
    """Run, keep, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [SCREENED.rstrip("/"), *PLANS]
    parser.add_argument("--only", choices=names, nargs="+", default=list(PLANS), help="some of the comparisons")
    parser.add_argument("--seeds", type=int, nargs="+", help="default: those of each comparison's plan, mostly 0 1 2")
    parser.add_argument("--workers", type=int, help="runs at once (default: one a core)")
    parser.add_argument("--runs", type=Path, default=Path("runs/evidence"), help="where runs are made")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where what is kept of them goes")
    parser.add_argument("--claims", action="store_true", help="run nothing, judge what is there")
    arguments = parser.parse_args()
    wanted = [name for name in PLANS if any(name == one or name.startswith(f"{one}/") for one in arguments.only)]
    failures: dict[str, str] = {}
    for name in wanted:
        if not arguments.claims:
            failures |= {f"{name}, {run}": reason for run, reason in _make(name, arguments).items()}
    found = {name: read_evidence(path) for name in PLANS if (path := arguments.results / name).is_dir()}
    for name in wanted:
        if name in found and not name.startswith(SCREENED):
            print(_judged(name, found), end="\n\n")
    if any(name.startswith(SCREENED) for name in wanted):
        print(overview({name.removeprefix(SCREENED): runs for name, runs in found.items()}), end="\n\n")
    sys.exit("".join(f"{run} failed: {reason}\n" for run, reason in failures.items()) or None)


def _make(name: str, arguments: argparse.Namespace) -> Mapping[str, str]:
    """Run a comparison and keep what is finished of it; returns what failed."""
    plan, place = PLANS[name], arguments.runs / name
    made = prowd.compare(
        plan.preset,
        methods=plan.methods,
        seeds=arguments.seeds or plan.seeds,
        out=place,
        workers=arguments.workers,
        progress=True,
        **plan.settings,
    )
    publish(place, arguments.results / name)
    return made.failures


def _judged(name: str, found: Mapping[str, Evidence]) -> str:
    """What a comparison says: of the paper's claims, or of what its settings change, and of our own goal."""
    against, own = PLANS[name].against, goal(found[name], [found[one] for one in EQUALS.get(name, ()) if one in found])
    if against and against not in found:
        return f"{name}: what it changes cannot be said without {against}"
    rows = changes(found[against], found[name], PLANS[name].rivals) if against else claims(found[name])
    said = to_markdown([*rows, *own])
    rivals = ", ".join(dict.fromkeys(claim.what.rpartition(" ")[2] for claim in own))
    return f"{said}\n\nprowd-plus above {rivals} at every width, all at once: {together(own)}" if own else said


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from there")
    except ProwdError as error:
        sys.exit(f"error: {error}")
