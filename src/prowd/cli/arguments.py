"""Arguments that several commands take."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

__all__ = ["complete_config", "read_pairs", "set_option"]

set_option = click.option(
    "-s",
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting; repeatable. Dotted names reach into tables.",
)


def complete_config(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Presets and files for a shell to offer."""
    from prowd.settings import presets

    files = [str(path) for path in Path().glob(f"{incomplete}*.toml")]
    names = [name for name in presets() if name.startswith(incomplete)]
    return [CompletionItem(value) for value in (*names, *files)]


def read_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """Read KEY=VALUE: the value as TOML where it is TOML, as text where it is not."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"-s {pair!r} is not a setting; accepted: KEY=VALUE, as in -s rounds=5")
        try:
            settings[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            settings[key.strip()] = text.strip()
    return settings
