"""A federation of integer clients comes to the same bits whatever computes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from prowd.nets.lowbit.kernels import why_not_c99, why_not_int8
from tests.runs import TIMEOUT, TINY, arrays

RUN = """
import sys, numpy, prowd
if __name__ == "__main__":
    out, kernel, workers, method = sys.argv[1:]
    with numpy.load(out + ".npz") as data:
        arrays = dict(data)
    settings = dict(clients="int8:2, int6:2, int12:1", kernel=kernel, method=method, augment=["crop", "flip", "rotate"])
    result = prowd.run(out=out, workers=int(workers), data=arrays, **{**SETTINGS, **settings})
    print(result.summary["weights_sha256"])
"""
WAYS = [
    ("simulated", "default", 1),
    ("simulated", "avx512", 3),
    ("int8", "avx512", 1),
    ("c99", "default", 1),
    ("auto", "avx2", 3),
]


def weights(folder: Path, kernel: str, capability: str, workers: int, method: str) -> str:
    """Hash of the weights that a process with PyTorch's vector instructions comes to."""
    (folder / "script.py").write_text(RUN.replace("SETTINGS", repr(TINY)), "utf-8")
    out = folder / f"{kernel}-{capability}-{workers}"
    np.savez(out.with_suffix(".npz"), **arrays())  # type: ignore[arg-type]
    command = [sys.executable, str(folder / "script.py"), str(out), kernel, str(workers), method]
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    return str(done.stdout).strip()


@pytest.mark.parametrize("method", ["fedavg", "fedpaq", "prowd-plus"])
def test_integer_clients_come_to_the_same_bits_everywhere(method: str, tmp_path: Path) -> None:
    reasons = {"int8": why_not_int8(torch.device("cpu")), "c99": why_not_c99(torch.device("cpu"))}
    ways = WAYS if method == "fedavg" else WAYS[::3]
    found = {way: weights(tmp_path, *way, method) for way in ways if not reasons.get(way[0])}
    assert len(found) > 1
    assert len(set(found.values())) == 1, found
