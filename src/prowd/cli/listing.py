"""What there is: presets, methods, and shell completion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class
from rich.console import Console
from rich.table import Table
from rich.text import Text

from prowd.cli.main import main

if TYPE_CHECKING:
    from prowd.methods import Method

__all__ = ["completion", "methods", "presets", "print_table"]


@main.command()
def presets() -> None:
    """List the built-in configurations."""
    from prowd.config import files as settings

    print_table(("preset", "what it runs"), list(settings.presets().items()))


@main.command()
def methods() -> None:
    """List the federated methods (choose one with -s method=NAME, its options with -s options.KEY=VALUE)."""
    from prowd.methods import METHODS

    widest = max(map(len, METHODS))
    click.echo(f"{'method':{widest}}  what it does")
    for name, method in METHODS.items():
        click.echo(f"{name:{widest}}  {method.summary}")
        for line in _alike(method) or _options(method):
            click.echo(f"    {line}")


def _alike(method: type[Method]) -> list[str]:
    """In place of options that are those of the method it is a variant of, or some of them."""
    from prowd.methods import METHODS

    parent = METHODS.get(getattr(method.__base__, "name", ""))
    if parent is None or not set(_options(method)) <= set(_options(parent)):
        return []
    unused = ", ".join(getattr(method, "unused", ()))
    return [f"options as {parent.name}, without {unused}" if unused else f"options as {parent.name}"]


def _options(method: type[Method]) -> list[str]:
    """A method's options as they are written, those of a table within it by their dotted names."""
    from prowd.config.options import all_options
    from prowd.config.tables import flat

    return [f"options.{name}={value}" for name, value in flat(all_options(method())).items()]


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


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print plain columns; brackets in a cell are brackets, not markup."""
    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, no_wrap=number == 0)
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)
