"""The number of threads PyTorch may use is a matter of speed: the same seed gives the same bits."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.runs import PROWD, TIMEOUT, config_file, environment, expected, outcome

SETTINGS = {"rescale": "channel", "steps": 4, "batch": 16, "width": 1.0, "seed": 3}


@pytest.mark.parametrize("threads", ["2", "5"])
def test_threads_do_not_change_the_outcome(threads: str, tmp_path: Path) -> None:
    command = [PROWD, "run", config_file(tmp_path, **SETTINGS), "--out", "run", "--workers", "1"]
    env = {**environment(), "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PATH": os.environ["PATH"]}
    subprocess.run([str(part) for part in command], cwd=tmp_path, env=env, timeout=TIMEOUT, check=True)
    assert outcome(tmp_path / "run") == expected(**SETTINGS)
