"""prowd run."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from prowd.cli.arguments import complete_config, read_pairs, set_option, tensorboard_option
from prowd.cli.main import INTERRUPTED, main
from prowd.cli.report import check_report, closing_page, open_option, report_option

__all__ = ["run"]


@main.command()
@click.argument("config", default="quick", metavar="[PRESET | FILE.toml]", shell_complete=complete_config)
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
@tensorboard_option
@report_option
@open_option
@click.pass_context
def run(
    ctx: click.Context,
    config: str,
    pairs: Sequence[str],
    out: Path | None,
    resume: Path | None,
    workers: int | None,
    tensorboard: bool,
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
      prowd run quick --tensorboard --out runs/mine

    \b
    The run directory holds:
      config.toml      every setting, with version and seed; `prowd run DIR/config.toml` repeats the run
      rounds.jsonl     a line a round: accuracy per width, loss, bytes, clients lost and refused, what explains it
      summary.json     the outcome, with a hash of the final weights
      provenance.json  which code made it, on what machine, by what command
      report/          the page that shows it all (docs/report.md), with prowd[report]
      snapshots/       samples of weights for its figures
      checkpoints/     what --resume continues from
      tensorboard/     with --tensorboard: all rounds, for TensorBoard (docs/tensorboard.md)

    All settings with their defaults: config.toml of any run has them, docs/configuration.md explains them.
    """
    given = ctx.get_parameter_source("config") is not click.core.ParameterSource.DEFAULT
    if resume is not None and (out is not None or given):
        raise click.UsageError("--resume continues a run as it was begun: it goes with neither a preset nor --out")
    from prowd.runs.observe import Observers
    from prowd.runs.run import Session
    from prowd.views.console import RunView, download_bar, result_table, say
    from prowd.views.tensorboard import FOLDER, TensorBoard

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(highlight=False)
    settings = read_pairs(pairs)
    boards = [TensorBoard()] if tensorboard else []
    check_report(reports, opens)
    with download_bar(console) as progress:
        if resume is not None:
            session = Session.resume(resume, settings, progress=progress)
        else:
            session = Session.start(config, settings, out=out, progress=progress)
    try:
        result = session.run(workers, Observers(RunView(console), *boards))
    except KeyboardInterrupt:
        again = shlex.join(["prowd", "run", "--resume", str(session.rundir.path), *["--tensorboard"] * tensorboard])
        say(console, f"\nstopped; finished rounds are saved. Continue with: {again}")
        sys.exit(INTERRUPTED)
    console.print(result_table(result))
    say(console, f"results: {result.path} (config.toml, rounds.jsonl, summary.json, checkpoints/)")
    closing_page(console, result.path, reports, opens)
    if tensorboard:
        say(console, shlex.join(["tensorboard", "--logdir", str(result.path / FOLDER)]))
