"""The notebook runs as it is committed, and shows what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.tour import LONGEST, NOTEBOOK
from tests.runs import environment

PROGRAM = """
import sys
from pathlib import Path
import nbformat
from tests.e2e.tour import execute
nbformat.write(execute(Path(sys.argv[1])), Path(sys.argv[1]) / "tour.ipynb")
"""


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["cells"]
    return found


def kinds(path: Path) -> list[list[str]]:
    """What each cell gives: text or a picture."""
    outputs = [cell.get("outputs", []) for cell in cells(path)]
    return [[name for output in some for name in output.get("data", {"text": ""})] for some in outputs]


def text(path: Path) -> str:
    return "".join(
        "".join(output["text"]) for cell in cells(path) for output in cell.get("outputs", []) if "text" in output
    )


def test_it_is_committed_with_outputs_that_say_nothing_of_a_machine() -> None:
    code = [cell for cell in cells(NOTEBOOK) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert sum("image/png" in names for names in kinds(NOTEBOOK)) == 5
    assert NOTEBOOK.stat().st_size < 500_000
    shown = json.dumps([{**cell, "source": ""} for cell in cells(NOTEBOOK)])
    pictures = re.sub(r'"image/png": "[^"]*"', "", shown)
    assert re.findall(r"/(?:home|tmp|root|Users|private|usr)\b|[A-Z]:\\", pictures) == []
    assert "error" not in [output["output_type"] for cell in code for output in cell["outputs"]]


@pytest.mark.slow
def test_it_runs_and_its_words_hold(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    root = NOTEBOOK.parents[1]
    done = subprocess.run(
        command, cwd=root, env=environment(), capture_output=True, text=True, timeout=LONGEST, check=False
    )
    assert done.returncode == 0, done.stderr
    made = tmp_path / "tour.ipynb"
    assert kinds(made) == kinds(NOTEBOOK)
    here, run = re.findall(r"kept here (\S+), in the run (\S+)", text(made))[0]
    assert here == run, "the few lines of the notebook compute Eq. 8"
    shares = [int(share) for share in re.findall(r"'(\d+)%'", text(made))]
    assert shares[0] < 40
    assert shares[-1] > 80, "three peaks"
    titles = [line.split()[0] for line in text(made).splitlines() if line.startswith(("fedavg", "prowd"))]
    assert titles == ["fedavg", "prowd-swa", "prowd-plus"]
