"""The program itself: its help, and how it answers to errors and to Ctrl-C."""

from __future__ import annotations

import logging
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click
from rich.console import Console

from prowd import __version__
from prowd.errors import ClientError, ProwdError

__all__ = ["exit_interrupted", "long_command", "main"]

INTERRUPTED = 130


class _Group(click.Group):
    """Turns the errors prowd raises on purpose into one line and exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ProwdError as error:
            click.echo(click.style("error:", fg="red", bold=True) + f" {error}", err=True)
            if isinstance(error, ClientError):
                click.echo(
                    "This is a fault in client code, not in your input; the traceback above says where.", err=True
                )
            sys.exit(1)
        except KeyboardInterrupt:
            click.echo("\nstopped", err=True)
            sys.exit(INTERRUPTED)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="prowd")
def main() -> None:
    """Federated learning for devices of unequal precision.

    Clients train in Float32, or exactly as integer arithmetic of 2 to 16 bits would; what they exchange with the
    server is bit-packed and counted in bytes.

    \b
    Start here:
      prowd run                                  the default federation, about a minute
      prowd run quick -s seed=1 -s rounds=5      the same with other settings
      prowd run --resume runs/DIR                continue a run that was stopped
      prowd report runs/DIR                      its page, figures and tables
      prowd compare quick                        FedAvg against ProWD, with confidence intervals
      prowd presets                              what else can be run
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")


def long_command() -> Console:
    """The console of a command that takes its time: SIGTERM ends it as Ctrl-C does, with what is done saved."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return Console(highlight=False)


def exit_interrupted(console: Console, saved: str, again: Sequence[str]) -> NoReturn:
    """End a command that was interrupted: what is saved, and the command that goes on from there."""
    from prowd.views.console import say

    say(console, f"\nstopped; {saved}. Continue with: {shlex.join(again)}")
    sys.exit(INTERRUPTED)
