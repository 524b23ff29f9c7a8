"""prowd run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from prowd.cli.arguments import config_argument, read_pairs, set_option, track_option
from prowd.cli.main import exit_interrupted, long_command, main
from prowd.cli.report import check_report, open_option, report_option, show_results
from prowd.errors import DiskError, RunError

__all__ = ["run"]


@main.command()
@config_argument
@set_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Run directory to make. Default: a new one under runs/.",
)
@click.option(
    "--resume", type=click.Path(path_type=Path), metavar="DIR", help="Continue the run in DIR from its last checkpoint."
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Processes that train clients. Default: one a core. Results do not depend on it.",
)
@track_option
@report_option
@open_option
def run(
    config: str | None,
    pairs: Sequence[str],
    out: Path | None,
    resume: Path | None,
    workers: int | None,
    trackers: Sequence[str],
    reports: bool,
    opens: bool,
) -> None:
    """Run a federation and write its results to a run directory.

    \b
    Examples:
      prowd run quick -s seed=1 --workers 2
      prowd run quick -s clients="int6:3, int8:3, int12:2, int16:2" -s uplink=native
      prowd run table1-50-50-cpu -s rounds=3
      prowd run my.toml -s float32.lr=0.1 -s data=my.npz --out runs/mine
      prowd run --resume runs/mine
      prowd run quick --track tensorboard --out runs/mine

    \b
    The run directory holds:
      config.toml      every setting, with version and seed; `prowd run DIR/config.toml` repeats the run
      rounds.jsonl     a line a round: accuracy per width, loss, bytes, clients lost and refused, what explains it
      summary.json     the outcome, with a hash of the final weights
      provenance.json  which code made it, on what machine, by what command
      report/          the page that shows it all (docs/report.md), with the extra report
      snapshots/       samples of weights for its figures
      checkpoints/     what --resume continues from
      tensorboard/     with --track tensorboard: all rounds, for TensorBoard; others: docs/trackers.md

    All settings with their defaults: config.toml of any run has them, docs/configuration.md explains them.
    """
    if resume is not None and (out, config) != (None, None):
        raise click.UsageError("--resume continues a run as it was begun: it goes with neither a preset nor --out")
    from prowd.api import observers_for, open_session
    from prowd.views.console import download_bar, result_table, say

    console = long_command()
    settings = read_pairs(pairs)
    observers = observers_for(console, trackers)
    check_report(reports, opens)
    with download_bar(console) as progress:
        session = open_session(config, settings, out=out, resume=resume, progress=progress)
    tracked = [part for name in trackers for part in ("--track", name)]
    again = ["prowd", "run", "--resume", str(session.rundir.path), *tracked]
    try:
        result = session.run(workers, *observers)
    except KeyboardInterrupt:
        exit_interrupted(console, "finished rounds are saved", again)
    except DiskError as error:
        raise RunError(f"{error}; finished rounds are saved; then continue with: {shlex.join(again)}") from error
    console.print(result_table(result))
    say(console, f"results: {result.path} (config.toml, rounds.jsonl, summary.json, checkpoints/)")
    show_results(console, result.path, reports, opens, trackers)
