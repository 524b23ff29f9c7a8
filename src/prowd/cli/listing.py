"""What there is: presets, methods, and shell completion."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import get_completion_class
from rich.console import Console
from rich.table import Table

from prowd.cli.main import main

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

    click.echo("method  what it does")
    for name, method in METHODS.items():
        click.echo(f"{name}  {method.summary}")
        parent = getattr(method.__base__, "name", None)
        is_variant = parent in METHODS and _options(method()) == _options(METHODS[parent]())
        for line in [f"options as {parent}"] if is_variant else _options(method()):
            click.echo(f"    {line}")


def _options(settings: Any, prefix: str = "options.") -> list[str]:
    """A method's options as they are written, those of a table within it by their dotted names."""
    found: list[str] = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        inner = dataclasses.is_dataclass(value)
        found += _options(value, f"{prefix}{field.name}.") if inner else [f"{prefix}{field.name}={value}"]
    return found


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
    """Print plain columns."""
    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, no_wrap=number == 0)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)
