"""prowd export."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from prowd.cli.main import main

__all__ = ["export"]


@main.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN_DIR")
@click.option("--to", "target", type=click.Choice(["torch", "onnx", "c"]), required=True, help="What to write.")
@click.option("--width", metavar="WIDTH", help="float32, or int2 to int16. Default: float32, and int8 for c.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Where it goes. Default: export/ in the directory."
)
def export(run: Path, target: str, width: str | None, out: Path | None) -> None:
    """Take the model of a run away, for programs without prowd.

    \b
    --to torch   net.py, a module that needs PyTorch only, and net.pt, its state dict
    --to onnx    net.onnx, for onnxruntime and others (needs the extra onnx)
    --to c       net.h, for the C client of embedded/core: shapes, shifts, and weights as codes

    At integer widths all three compute the integers that prowd does.

    \b
    Examples:
      prowd export runs/quick-1 --to onnx
      prowd export runs/quick-1 --to c --width int4 --out firmware
    """
    from prowd.runs.export import export_c, export_torch
    from prowd.runs.onnx import export_onnx
    from prowd.runs.trained import load
    from prowd.views.console import say

    writers = {"torch": export_torch, "onnx": export_onnx, "c": export_c}
    trained = load(run, width or ("int8" if target == "c" else "float32"))
    for path in writers[target](trained, out or run / "export"):
        say(Console(highlight=False), f"{trained.width}: {path}")
