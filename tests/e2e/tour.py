"""Runs the notebook examples/tour.ipynb and writes its outputs into it: ``python -m tests.e2e.tour``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

__all__ = ["NOTEBOOK", "execute"]

NOTEBOOK = Path(__file__).parents[2] / "examples/tour.ipynb"
LONGEST = 900  # seconds of a cell; half a minute on two cores


def execute(folder: Path) -> Any:
    """The notebook with the outputs of a run in a folder; an error of a cell is raised."""
    notebook = nbformat.read(NOTEBOOK, 4)
    metadata = dict(notebook.metadata)  # what the kernel adds is of this machine
    client = NotebookClient(
        notebook,
        timeout=LONGEST,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    notebook.metadata = nbformat.from_dict(metadata)
    return notebook


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(execute(Path(folder)), NOTEBOOK)
