"""Run experiments, and say what they decide.

An experiment is a comparison: some methods of a preset, over seeds. Without --claims, runs that are missing are made
under --runs; interrupt when you like, the same command resumes. table.md, runs.csv and provenance.csv are written to
RUNS/results/NAME; only with --publish also to --results, where the documentation has its numbers from. Every claim is
judged by the 95 % interval of its difference, paired by seed. What this command has not made is read from --results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import prowd
from experiments.claims import changes, claims, goal, to_markdown, together
from experiments.plans import EQUALS, PLANS, SCREENED
from experiments.publish import lost_seeds, publish
from experiments.reading import Evidence, read_choices, read_evidence
from experiments.suspects.plan import overview
from prowd.errors import ProwdError


def main() -> None:
    """Run, publish, judge."""
    arguments = _arguments()
    wanted = [name for name in PLANS if any(name == one or name.startswith(f"{one}/") for one in arguments.only)]
    made = [name for name in wanted if PLANS[name].methods and not arguments.claims]
    failures: dict[str, str] = {}
    for name in made:
        failures |= {f"{name}, {what}": reason for what, reason in _make(name, arguments).items()}
    folders = {name: (_drafts(arguments) if name in made else arguments.results) / name for name in PLANS}
    found = {name: read_evidence(folder) for name, folder in folders.items() if folder.is_dir()}
    for name in wanted:
        if name in found:
            print(_judged(name, found), end="\n\n")
    if any(name.startswith(SCREENED) for name in wanted):
        drafts = read_choices(_drafts(arguments) / SCREENED)
        own = {choice: draft for choice, draft in drafts.items() if f"{SCREENED}{choice}" in made}
        print(overview({**read_choices(arguments.results / SCREENED), **own}), end="\n\n")
    sys.exit("".join(f"{run} failed: {reason}\n" for run, reason in failures.items()) or None)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m experiments",
        description=__doc__,
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [SCREENED.rstrip("/"), *PLANS]
    parser.add_argument(
        "--only", choices=names, nargs="+", default=list(PLANS), metavar="NAME", help="some of the experiments below"
    )
    parser.add_argument("--claims", action="store_true", help="run nothing, judge what is in --results")
    parser.add_argument("--seeds", type=int, nargs="+", help="default: those of each plan, mostly 0 1 2")
    parser.add_argument("--workers", type=int, help="runs at once (default: one a core)")
    parser.add_argument("--publish", action="store_true", help="replace what --results has of these experiments")
    parser.add_argument("--runs", type=Path, default=Path("runs/experiments"), help="default: %(default)s")
    parser.add_argument("--results", type=Path, default=Path("results"), help="default: %(default)s")
    return parser.parse_args()


def _epilog() -> str:
    examples = """examples:
  python -m experiments --claims                    judge all that is published, in seconds
  python -m experiments --only table1-50-50-cpu     Table 1, half Int8: one to three hours on two cores
  python -m experiments --only suspects             every choice that the paper leaves open, one seed each
  python -m experiments --only random-masks-80-20 --seeds 0 --workers 1
"""
    listed = "\n".join(f"  {name:33} {plan.question}" for name, plan in PLANS.items())
    return f"{examples}\nexperiments (what each found: experiments/README.md):\n{listed}"


def _make(name: str, arguments: argparse.Namespace) -> Mapping[str, str]:
    """Run a comparison and write down what is finished of it; returns what failed, with its reason."""
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
    choice = name.removeprefix(SCREENED) if name.startswith(SCREENED) else ""
    draft, published = (folder / name.removesuffix(choice) for folder in (_drafts(arguments), arguments.results))
    _write(place, draft, choice)
    if not arguments.publish:
        return made.failures
    if lost := lost_seeds(published, draft, plan.seeds, choice=choice):
        reason = f"{published} has seeds {lost} as well; accepted: all seeds of the plan, {list(plan.seeds)}"
        return {**made.failures, "publishing": reason}
    _write(place, published, choice)
    return made.failures


def _drafts(arguments: argparse.Namespace) -> Path:
    """Where results are until they are published, in folders like those of --results."""
    runs: Path = arguments.runs
    return runs / "results"


def _write(place: Path, target: Path, choice: str) -> None:
    publish(place, target, choice=choice)
    if choice:
        (target / "table.md").write_text(overview(read_choices(target)) + "\n", "utf-8")


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
