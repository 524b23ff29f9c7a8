"""prowd watch."""

from __future__ import annotations

import io
import signal
import sys
from pathlib import Path

import click
from rich.console import Console

from prowd.cli.main import INTERRUPTED, main

__all__ = ["watch"]

LEAST, MOST = 0.1, 3600.0


@main.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--every", type=float, default=1.0, show_default=True, metavar="SECONDS", help="Look this often.")
@click.option("--once", is_flag=True, help="Show how things stand, and end.")
def watch(folder: Path, every: float, once: bool) -> None:
    """Follow a run, or a whole comparison, from another terminal.

    DIR is what `prowd run` or `prowd compare` writes to, or a folder that holds such directories. Nothing in it is
    changed, and the run does not notice. Where the output is no terminal there is a line for each new round.

    \b
    Examples:
      prowd watch runs/mine
      prowd watch runs/compare-quick-0a1b2c3d --every 5
      prowd watch runs/mine --once

    It ends by itself, with the final figures, as soon as everything is finished. A run that was stopped is waited for:
    when it is resumed, it is followed on. Ctrl-C ends the watching, not the run.

    \b
    Exit code:
      0      everything is finished, or --once
      1      DIR is no run, or runs of the comparison failed
      130    Ctrl-C
    """
    if not LEAST <= every <= MOST:
        raise click.UsageError(f"--every: {every:g} is not accepted; accepted: {LEAST} to {MOST:.0f} seconds")
    from prowd.console import say
    from prowd.console.watch import watch as follow

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no blocks shows question marks
    console = Console(highlight=False)
    try:
        picture = follow(folder, console, every=every, once=once)
    except KeyboardInterrupt:
        say(console, "no longer watching; a run that is under way goes on")
        sys.exit(INTERRUPTED)
    if not once and any(run.state in ("failed", "unreadable") for run in picture.runs):
        sys.exit(1)
