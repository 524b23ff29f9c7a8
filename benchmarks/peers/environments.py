"""A virtual environment for each peer, with the torch and numpy that prowd is developed with. Made once."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.measure import PeerError, tail

__all__ = ["prepare", "requirements"]

ROOT = Path(__file__).resolve().parents[2]
SHARED = ("torch", "numpy")  # a peer is to compute with what prowd computes with


def requirements(peer: Sequence[str]) -> list[str]:
    """What pip is asked for: the peer, and the exact torch and numpy of constraints.txt."""
    pins = (ROOT / "constraints.txt").read_text("utf-8").split()
    return [*peer, *(pin for pin in pins if pin.partition("==")[0] in SHARED)]


def prepare(name: str, peer: Sequence[str], cache: Path) -> Path:
    """The Python of a peer's environment, which is made where it is not there or was made for other requirements."""
    folder = cache / name
    python, stamp, log = folder / "bin" / "python", folder / "installed", cache / f"{name}.log"
    wanted = requirements(peer)
    mark = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()
    if stamp.exists() and stamp.read_text("utf-8") == mark and python.exists():
        return python
    print(f"making an environment for {name} in {folder}: {', '.join(wanted)}", file=sys.stderr, flush=True)
    cache.mkdir(parents=True, exist_ok=True)
    commands = (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "--disable-pip-version-check", *wanted],
    )
    for command in commands:
        with log.open("w", encoding="utf-8") as output:
            code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
        if code:
            raise PeerError(
                f"`{' '.join(command[1:])}` ended with {code}; all it said is in {log}. The end:\n{tail(log)}"
            )
    stamp.write_text(mark, "utf-8")
    return python
