"""prowd embed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from prowd.cli.arguments import read_pairs, set_option
from prowd.cli.listing import print_table
from prowd.cli.main import main

__all__ = ["embed", "memory"]

UNITS = {"": 1, "K": 1024, "M": 1024**2}


class _Group(click.Group):
    """Takes whatever is none of its commands for a run or a preset."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = args and args[0] in self.commands
        return super().resolve_command(ctx, args if known else ["write", *args])


def memory(text: str) -> int:
    """Bytes, as in 64K."""
    found = re.fullmatch(r"([0-9]{1,9})([KM]?)B?", text.strip().upper())
    if found is None:
        raise click.BadParameter(f"{text!r} is no size; accepted: bytes, as in 65536, 64K or 1M")
    return int(found[1]) * UNITS[found[2]]


@main.group(cls=_Group, subcommand_metavar="[RUN_DIR | PRESET | FILE.toml] [OPTIONS]")
def embed() -> None:
    """Make the C client of a federation, for a microcontroller without an operating system (docs/embedded.md).

    \b
    Examples:
      prowd embed watch --ram 64K --out firmware
      prowd embed runs/watch-prowd-HASH --check
    """


@embed.command(hidden=True)
@click.argument("config", metavar="RUN_DIR | PRESET | FILE.toml")
@click.option("--width", metavar="WIDTH", help="Of the device: int2 to int16. Default: the only one of its clients.")
@click.option("--ram", type=memory, metavar="SIZE", help="Memory that the device has, as in 64K. Default: as needed.")
@click.option("--client", type=click.IntRange(0), metavar="N", help="Whose examples are written as a card.")
@click.option(
    "--check", "checks", is_flag=True, help="Compile it here, and compare a round of it with the Python client."
)
@click.option(
    "--target", metavar="NAME", help="Compile a program for it, by zig: aarch64, armv7, riscv64, cortex-m3, ..."
)
@click.option("--steps", type=click.IntRange(1), default=2, show_default=True, metavar="N", help="Of that round.")
@set_option
@click.option("--out", type=click.Path(path_type=Path), default=Path("firmware"), show_default=True, metavar="DIR")
def write(
    config: str,
    width: str | None,
    ram: int | None,
    client: int | None,
    checks: bool,
    target: str | None,
    steps: int,
    pairs: Sequence[str],
    out: Path,
) -> None:
    """Write net.h, net.c, the C sources, a Makefile and a card with a client's examples; show the memory by part.

    \b
    Examples:
      prowd embed watch --ram 64K --out firmware
      prowd embed quick --width int8 -s method=prowd-plus -s width=0.25 --check
      prowd embed watch --target aarch64 --out pi
    """
    from prowd.embedded.build import build, check_target, run_command
    from prowd.embedded.check import check
    from prowd.embedded.plan import kilobytes
    from prowd.runs.firmware import write_firmware
    from prowd.views.console import say

    console = Console(highlight=False)
    name = target or "posix"
    check_target(name, to_run=checks)
    firmware = write_firmware(config, read_pairs(pairs), width=width, client=client, ram=ram, folder=out)
    print_table(("memory for", "bytes"), [(part.name, f"{part.size:,}") for part in firmware.plan.parts])
    asked = "" if ram is None else f" of {kilobytes(ram)}"
    say(console, f"{kilobytes(firmware.plan.total)}{asked} for {firmware.plan.width} and {firmware.plan.method}")
    say(console, f"written: {out} (net.h, net.c, Makefile, client/, {firmware.card.name})")
    if checks or target:
        program = build(out.resolve(), name)
        say(console, f"compiled: {out / program.name} ({program.stat().st_size:,} bytes)")
    if checks:
        found = check(run_command(program, name, firmware.card.resolve()), firmware.runtime, steps)
        say(console, f"checked: {steps} steps give the {len(found.update):,} bytes of the Python client's update")
