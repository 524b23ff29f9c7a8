"""prowd flower."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from prowd.cli.arguments import read_pairs, set_option
from prowd.cli.listing import print_table
from prowd.cli.main import long_command, main
from prowd.errors import ProwdError

__all__ = ["flower"]


class _Group(click.Group):
    """Says what is missing where Flower is not installed."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in {"flwr", "cryptography", "httpx"}:
                raise
            install = "in a clone of prowd, pip install '.[flower]'"
            raise ProwdError(f"prowd flower needs {error.name}; install it with: {install}") from None
        except OSError as error:
            raise ProwdError(str(error)) from error


@main.group(cls=_Group)
def flower() -> None:
    """The same federation on separate machines, over Flower (docs/deploy.md)."""


@flower.command()
@click.option("--clients", default="int8:2, float32:1", show_default=True, metavar="WIDTH:COUNT,...", help="Devices.")
@click.option("--method", default="prowd", show_default=True, metavar="NAME", help="A built-in method.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, metavar="N", help="Rounds.")
@set_option
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Run directory. Default: one under runs/.")
@click.option("--logs", type=click.Path(path_type=Path), metavar="DIR", help="Keep the logs of all processes here.")
def demo(clients: str, method: str, rounds: int, pairs: Sequence[str], out: Path | None, logs: Path | None) -> None:
    """Try it: a SuperLink and a SuperNode for each client, as separate processes on this machine.

    TLS and node authentication are on; keys and certificates are made for the occasion in a temporary directory. Each
    node holds its share of the handwritten digits and states its own width. Everything that was started is stopped at
    the end, after Ctrl-C too.

    \b
    Examples:
      prowd flower demo
      prowd flower demo --clients "int4:1, int8:1, float32:2" --method fedavg --rounds 5
    """
    from prowd.flower.demo import Demo
    from prowd.views.console import result_table, say

    console = long_command()
    settings = {"clients": clients, "method": method, "rounds": rounds, **read_pairs(pairs)}
    with tempfile.TemporaryDirectory(prefix="prowd-flower-") as temporary:
        folder = logs.resolve() if logs else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = Demo(settings, out).run(folder, lambda text: say(console, text))
    console.print(result_table(result))
    say(console, f"results: {result.path}; its devices: prowd flower status {result.path}")


@flower.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="DIR")
def status(run: Path) -> None:
    """What the devices of a run did so far: DIR is its run directory on the server."""
    from prowd.flower.status import read_status
    from prowd.views.console import size

    devices, lines = read_status(run)
    rows = [
        (
            str(device.client), device.width, device.node or "-", f"{device.used}/{device.asked}", str(device.lost),
            str(device.refused), f"{device.seconds / max(device.asked - device.lost, 1):.1f} s", size(device.up),
            device.trouble or "-",
        )
        for device in devices
    ]  # fmt: skip
    print_table(("client", "width", "node", "used", "lost", "refused", "a round", "sent", "last trouble"), rows)
    up, down = (size(sum(getattr(device, way) for device in devices)) for way in ("up", "down"))
    click.echo(f"{len(lines)} rounds, {up} up, {down} down")


@flower.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
def app(folder: Path) -> None:
    """Write the app directory that `flwr run` takes to DIR."""
    from prowd.flower.settings import write_app

    click.echo(f"{write_app(folder)} is an app; start it with: flwr run {folder} NAME --run-config ...")


@flower.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--host", "hosts", multiple=True, required=True, metavar="NAME", help="Name or address of the server.")
@click.option(
    "--days", type=click.IntRange(1, 36_500), default=365, show_default=True, metavar="N", help="Valid so long."
)
def certificates(folder: Path, hosts: Sequence[str], days: int) -> None:
    """Make ca.pem (for every node), server.pem and server.key (for the server) in DIR."""
    from prowd.flower.keys import make_certificates

    make_certificates(folder, hosts, days)
    click.echo(f"{folder}: ca.pem for every machine; server.pem and server.key for the server alone")


@flower.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("name")
def key(folder: Path, name: str) -> None:
    """Make a node's key NAME and NAME.pub in DIR: on the node itself, so that the private key never travels."""
    from prowd.flower.keys import make_node_key

    path = make_node_key(folder, name)
    click.echo(f"{path} stays on the node; register {path}.pub with the server: flwr supernode register {name}.pub")
