"""A device that is not Python: client 0 is the C client for microcontrollers, as a program at the end of two pipes.

    python examples/board.py        # needs make and a C compiler

A board is another address: "serial:/dev/ttyUSB0", or "tcp:HOST:PORT". The same seed comes to the same weights.
"""  # fmt: skip

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import prowd

SETTINGS: dict[str, Any] = {
    "clients": "int8:2, float32:1",
    "method": "prowd-plus",
    "width": 0.25,
    "rounds": 3,
    "steps": 5,
}

if __name__ == "__main__":  # worker processes import this file
    folder = Path("runs/board").resolve()
    pairs = [part for key, value in SETTINGS.items() for part in ("-s", f"{key}={value}")]
    embed = [str(Path(sys.executable).with_name("prowd")), "embed", "quick", "--client", "0", "--out", str(folder)]
    subprocess.run([*embed, *pairs], check=True)  # the C sources of client 0, a Makefile, and its examples
    subprocess.run(["make", "-s", "-C", str(folder), "posix"], check=True)
    address = "exec:" + shlex.join([str(folder / "posix"), str(folder / "client-0.card")])
    board = prowd.run("quick", **SETTINGS, links={0: address})
    alone = prowd.run("quick", **SETTINGS)
    hashes = {run.summary["weights_sha256"] for run in (board, alone)}
    print("the same weights with the C client and without" if len(hashes) == 1 else f"different weights: {hashes}")
