"""The command line: arguments → configuration → session. Heavy imports wait until a command needs them."""

from prowd.cli import compare, data, embed, embed_demo, export, flower, listing, report, run
from prowd.cli.main import main

__all__ = ["compare", "data", "embed", "embed_demo", "export", "flower", "listing", "main", "report", "run"]
