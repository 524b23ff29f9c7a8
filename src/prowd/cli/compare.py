"""prowd compare."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from prowd.cli.arguments import config_argument, read_pairs, set_option, track_option
from prowd.cli.main import exit_interrupted, long_command, main
from prowd.cli.report import check_report, open_option, report_option, show_results

__all__ = ["compare"]


@main.command()
@config_argument
@click.option(
    "--methods",
    metavar="A,B,...",
    help="Methods by name, your own as FILE.py:CLASS, or 'all'. Default: what the preset suggests, or fedavg,prowd.",
)
@click.option(
    "--seeds",
    metavar="0,1,...",
    help="Seeds, as in 0,1,2 or 0-4; one run for each. Default: what the preset suggests, or 0,1,2.",
)
@set_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where the runs go. Default: runs/compare-NAME-HASH, the same for the same settings.",
)
@click.option(
    "--baseline", metavar="NAME", help="The method that others are compared with. Default: fedavg, or the first."
)
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes at work at once. Default: one a core.")
@track_option
@report_option
@open_option
def compare(
    config: str | None,
    methods: str | None,
    seeds: str | None,
    pairs: Sequence[str],
    out: Path | None,
    baseline: str | None,
    workers: int | None,
    trackers: Sequence[str],
    reports: bool,
    opens: bool,
) -> None:
    """Compare methods over seeds: make all runs, in parallel, and tabulate them.

    \b
    Examples:
      prowd compare quick --methods fedavg,prowd --seeds 0-4
      prowd compare quick --methods all --seeds 0,1
      prowd compare table1-50-50-cpu --methods local,fedavg,prowd -s rounds=5 --out runs/mine
      prowd compare ablation-80-20-cpu             with the methods and seeds that the preset suggests
      prowd compare quick --methods fedavg,examples/fedavgm.py:FedAvgM
      prowd compare quick -s options.prowd.dequantizer.epochs=4 -s lowbit.rate=4.0

    Called again with the same settings it makes only what is missing: finished runs are kept, interrupted ones go on
    from their last round, methods and seeds may be added. An option such as -s options.tau=0.3 is for every method
    that has it, -s options.prowd.tau=0.3 for prowd and its ablations.

    \b
    The directory holds:
      table.md, table.csv, table.tex   accuracy per width, gap (highest width − lowest), average, as mean ± 95 %
                                       confidence interval over seeds (Student's t); the paired difference to the
                                       baseline; bytes a round
      runs.csv                         a line for each run
      METHOD-seedN/                    the runs, as `prowd run` leaves them
      report/index.html                the page that shows it all (docs/report.md), with the extra report
      tensorboard/METHOD-seedN/        with --track tensorboard: the same for TensorBoard; others: docs/trackers.md
    """
    from prowd.api import make_comparison, plan_comparison
    from prowd.views.console import comparison_tables, download_bar, say
    from prowd.views.trackers import load_trackers

    console = long_command()
    settings = read_pairs(pairs)
    load_trackers(trackers)
    check_report(reports, opens)
    names, numbers = _names(methods) if methods else None, _seeds(seeds) if seeds else None
    with download_bar(console) as progress:
        plan = plan_comparison(
            config, settings, methods=names, seeds=numbers, out=out, baseline=baseline, progress=progress
        )
    try:
        found = make_comparison(plan, workers, console, track=trackers)
    except KeyboardInterrupt:
        exit_interrupted(console, "finished runs and rounds are saved", [Path(sys.argv[0]).name, *sys.argv[1:]])
    for table in comparison_tables(plan.config, found.rows, found.baseline) if found.rows else ():
        console.print(table)
    if found.rows:
        say(console, f"tables: {found.path} (table.md, table.csv, table.tex, runs.csv)")
    show_results(console, found.path, reports and bool(found.rows), opens, trackers)
    if found.failures:
        say(console, f"{len(found.failures)} of {len(plan.runs)} runs failed and are not in the tables:")
        for name, reason in found.failures.items():
            say(console, f"  {name}: {reason.strip().splitlines()[-1]}")
        sys.exit(1)


def _names(text: str) -> list[str]:
    from prowd.methods import METHODS

    return list(METHODS) if text.strip() == "all" else [name.strip() for name in text.split(",")]


def _seeds(text: str) -> list[int]:
    """Read 0,1,2 and 0-4, and both mixed."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        try:
            numbers = range(int(first), int(last if dash else first) + 1)
        except ValueError:
            numbers = range(0)
        if not numbers or numbers[10_000:]:
            raise click.UsageError(f"--seeds: {part.strip()!r} is not a seed; accepted: numbers, as in 0,1,2 or 0-4")
        seeds += numbers
    return seeds
