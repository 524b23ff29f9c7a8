"""Arguments that several commands take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

__all__ = ["config_argument", "read_pairs", "set_option", "track_option"]


def _complete_config(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Presets and files for a shell to offer."""
    from prowd.config.files import presets

    files = [str(path) for path in Path().glob(f"{incomplete}*.toml")]
    names = [name for name in presets() if name.startswith(incomplete)]
    return [CompletionItem(value) for value in (*names, *files)]


config_argument = click.argument(
    "config", required=False, metavar="[PRESET | FILE.toml]", shell_complete=_complete_config
)

set_option = click.option(
    "-s",
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting; repeatable. Dotted names reach into tables.",
)

track_option = click.option(
    "--track",
    "trackers",
    multiple=True,
    type=click.Choice(["tensorboard", "mlflow", "wandb"]),
    help="Send every round to a tracker too; repeatable. Each needs the extra of its name (docs/trackers.md).",
)


def read_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """The settings given with -s."""
    from prowd.config import files as settings
    from prowd.errors import ConfigError

    try:
        return settings.read_pairs(pairs)
    except ConfigError as error:
        raise click.UsageError(f"-s {error}") from None
