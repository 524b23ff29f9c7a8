"""Run experiments, and say what they decide.

An experiment is a comparison: some methods of a preset, over seeds. Without --claims, runs that are missing are made
under --runs; interrupt when you like, the same command resumes. table.md, runs.csv and provenance.csv are written to
RUNS/results/NAME; only with --publish also to --results, where the documentation has its numbers from. Every claim is
judged by the 95 % interval of its difference, paired by the seeds that both methods have. What this command has not
made is read from --results; what is missing there is named at the end.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from experiments.claims import BASELINES, changes, claims, goal, to_markdown, together
from experiments.plans import ELSEWHERE, PLANS, Plan
from experiments.publish import lost_runs, publish
from experiments.reading import Evidence, read_evidence
from prowd.api import make_comparison, plan_comparison
from prowd.comparison import Comparison, Outcome
from prowd.comparison import Plan as Planned
from prowd.errors import ProwdError


def main() -> None:
    """Run, publish, judge."""
    arguments = _arguments()
    asked = {name: PLANS[name].narrowed(arguments.methods, arguments.seeds) for name in arguments.only}
    made = {} if arguments.claims else {name: plan for name, plan in asked.items() if plan.methods}
    failures: dict[str, str] = {}
    for name, plan in made.items():
        failures |= {f"{name}, {what}": reason for what, reason in _make(name, plan, arguments).items()}
    folders = {name: (_drafts(arguments) if name in made else arguments.results) / name for name in PLANS}
    found = {name: read_evidence(folder) for name, folder in folders.items() if folder.is_dir()}
    for name in arguments.only:
        if name in found:
            print(_judged(name, found), end="\n\n")
    missing = {name: _missing(PLANS[name], found.get(name)) for name in arguments.only}
    print("\n".join(f"{name} lacks {what}" for name, what in missing.items() if what) or "nothing is missing")
    sys.exit("".join(f"{run} failed: {reason}\n" for run, reason in failures.items()) or None)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m experiments",
        description=__doc__,
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", choices=PLANS, nargs="+", default=list(PLANS), metavar="NAME", help="some of the experiments below"
    )
    parser.add_argument("--claims", action="store_true", help="run nothing, judge what is in --results")
    parser.add_argument("--seeds", type=int, nargs="+", help="default: those of each plan, 0 1 2 and for some 3 4")
    parser.add_argument("--methods", nargs="+", help="default: those of each plan; of a plan without them, nothing")
    parser.add_argument("--workers", type=int, help="runs at once (default: one a core)")
    parser.add_argument(
        "--publish",
        action="store_true",
        help="write to --results; runs that are there stay if one is made again to the bit",
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/experiments"), help="default: %(default)s")
    parser.add_argument("--results", type=Path, default=Path("results"), help="default: %(default)s")
    return parser.parse_args()


def _epilog() -> str:
    examples = """examples:
  python -m experiments --claims                    judge all that is published, in seconds
  python -m experiments --only table1-50-50-cpu     Table 1, half Int8: about an hour on two cores
  python -m experiments --only one-model --seeds 0 --workers 1
"""
    listed = "\n".join(f"  {name:33} {plan.question}" for name, plan in PLANS.items())
    return f"{examples}\nexperiments (what each found: experiments/README.md):\n{listed}"


def _make(name: str, plan: Plan, arguments: argparse.Namespace) -> Mapping[str, str]:
    """Run what is asked of a comparison and write down what is finished; returns what failed, with its reason."""
    place = arguments.runs / name
    made = _run(plan, PLANS[name], place, arguments.workers)
    draft, published = _drafts(arguments) / name, arguments.results / name
    publish(place, draft)
    if not arguments.publish:
        return made.failures
    if (lost := lost_runs(place, published)) and _missing(PLANS[name], read_evidence(draft)):
        accepted = f"accepted: all {len(PLANS[name].runs)} runs of the plan, or one of these to the bit"
        return {**made.failures, "publishing": f"{published} has {', '.join(lost)} as well; {accepted}"}
    publish(place, published)
    return made.failures


def _run(asked: Plan, whole: Plan, place: Path, workers: int | None) -> Comparison:
    """The runs that are asked for, and what is finished of the others, as one comparison."""
    planned, others = _planned(asked, place), _planned(whole, place).runs
    paths = {run.path for run in planned.runs}
    finished = [run for run in others if run.is_finished and run.path not in paths]
    return make_comparison(replace(planned, runs=(*planned.runs, *finished)), workers, Console())


def _planned(plan: Plan, place: Path) -> Planned:
    """All runs of a plan as one comparison, those with seeds of their own last."""
    settings = dict(plan.settings)
    data = settings.pop("data", None)
    parts = [(plan.methods, plan.seeds), *(([method], seeds) for method, seeds in plan.more.items())]
    planned = [
        plan_comparison(plan.preset, settings, methods=methods, seeds=seeds, out=place, data=data)
        for methods, seeds in parts
    ]
    return replace(planned[0], runs=tuple(run for part in planned for run in part.runs))


def _drafts(arguments: argparse.Namespace) -> Path:
    """Where results are until they are published, in folders like those of --results."""
    runs: Path = arguments.runs
    return runs / "results"


def _judged(name: str, found: Mapping[str, Evidence]) -> str:
    """What a comparison says: of the paper's claims, or of what its settings change, and of our own goal."""
    plan = PLANS[name]
    if plan.against and plan.against not in found:
        return f"{name}: what it changes cannot be said without {plan.against}"
    rows = changes(found[plan.against], found[name], plan.rivals) if plan.against else claims(found[name])
    rivals = _rivals(name, found) if "prowd-plus" in found[name].outcomes else {}
    own = goal(found[name], rivals)
    said = to_markdown([*rows, *own])
    verdict = f"prowd-plus above {', '.join(rivals)} at every width, all at once: {together(own)}"
    return f"{said}\n\n{verdict}" if own else said


def _rivals(name: str, found: Mapping[str, Evidence]) -> dict[str, Mapping[int, Outcome]]:
    """The paper's methods as a plan has them; where FedPAQ sends more than the others, it is taken from elsewhere."""
    elsewhere = ELSEWHERE.get(name, {})
    own = [one for one in (*BASELINES, "prowd") if one in PLANS[name].methods and not (elsewhere and one == "fedpaq")]
    nothing = Evidence(name, {})
    others = {label: found.get(where, nothing).outcomes.get(one, {}) for label, (where, one) in elsewhere.items()}
    return {**{one: found[name].outcomes.get(one, {}) for one in own}, **others}


def _missing(plan: Plan, found: Evidence | None) -> str:
    """The runs of a plan that are not there, by method."""
    if found is None:
        return "all its runs"
    lacking: dict[str, list[str]] = {}
    for method, seed in plan.runs:
        if seed not in found.outcomes.get(method, {}):
            lacking.setdefault(method, []).append(str(seed))
    return "; ".join(f"{method} with seed {', '.join(seeds)}" for method, seeds in lacking.items())


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from there")
    except ProwdError as error:
        sys.exit(f"error: {error}")
