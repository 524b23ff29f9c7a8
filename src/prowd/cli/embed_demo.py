"""prowd embed demo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from prowd.cli.arguments import read_pairs, set_option
from prowd.cli.embed import embed, memory
from prowd.cli.listing import print_table
from prowd.cli.main import long_command

__all__ = ["demo"]


@embed.command()
@click.option("--method", "methods", multiple=True, metavar="NAME", help="Default: prowd, then prowd-plus.")
@click.option("--ram", type=memory, default="64K", show_default=True, metavar="SIZE", help="Memory that a watch has.")
@set_option
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder to make. Default: one under runs/.")
def demo(methods: Sequence[str], ram: int, pairs: Sequence[str], out: Path | None) -> None:
    """Try it: four watches as Cortex-M3 boards in QEMU, each with one person's recordings, and four Float32 phones.

    Each method is run twice, first with all clients simulated, then with the boards; both must come to the same
    weights. Needs QEMU for ARM, and the compiler zig (pip install ziglang==0.15.2).

    \b
    Examples:
      prowd embed demo
      prowd embed demo --method fedavg -s rounds=1 -s steps=5
    """
    from prowd.config.schema import load_config
    from prowd.errors import RunError
    from prowd.runs.boards import METHODS, PRESET, SETTINGS, check_tools, show
    from prowd.runs.run import fresh_path
    from prowd.views.console import RunView, result_table, say, size

    check_tools()
    console, given = long_command(), read_pairs(pairs)
    folder = out or fresh_path(load_config(PRESET, {**SETTINGS, **given, "name": "embed-demo"}))
    wrong = []
    for method in methods or METHODS:
        settings = {**SETTINGS, **given, "method": method}
        shown = show(settings, folder / method, ram, lambda text: say(console, text), RunView(console))
        rounds = shown.result.summary["rounds"]
        console.print(result_table(shown.result))
        rows = [
            (
                str(client), board.who.name if board.who else "-", str(board.who.examples if board.who else "-"),
                f"{board.tally.ram:,}", f"{board.tally.stack:,}", size(board.tally.sent / rounds),
                size(board.tally.received / rounds), str(board.tally.repeats),
            )
            for client, board in shown.boards.items()
        ]  # fmt: skip
        print_table(("client", "board", "examples", "RAM", "stack", "link down", "link up", "resent"), rows)
        found = shown.result.summary["weights_sha256"]
        how = "equal" if shown.same else "NOT EQUAL"
        say(console, f"{method}: weights_sha256 {found}: {how} with and without boards")
        if not shown.same:
            wrong.append(f"{method} ({shown.missing} updates were left out)")
    if wrong:
        raise RunError(f"boards and simulation differ: {', '.join(wrong)}; look into {folder}")
    say(console, f"results: {folder}")
