"""Small runs for the tests: a tiny data set, settings that take moments, and the command line as a process."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from click.testing import CliRunner
from numpy.typing import NDArray

import prowd
from prowd.cli import main
from prowd.runs.run import RunResult
from prowd.runs.snapshots import Snapshots

PROWD = Path(sys.executable).with_name("prowd")
TIMEOUT = 120.0  # seconds; nothing here takes as long, unless it hangs

TINY: dict[str, Any] = {
    "clients": "int8:2, float32:2",
    "rounds": 3,
    "steps": 2,
    "batch": 8,
    "width": 0.25,
    "buffer": 6,
}
"""Settings that make a round of the data below a matter of milliseconds."""

ROUND_KEYS = {
    "": {"round", "accuracy", "loss", "bytes", "clients", "notes", "seconds"},
    "accuracy": {"received", "trained", "server", "clients"},
    "bytes": {"up", "down", "clients"},
    "clients": {"asked", "lost", "refused", "limited"},
}
"""What a line of rounds.jsonl holds, and its inner tables."""


def arrays(seed: int = 0) -> dict[str, NDArray[Any]]:
    """Three classes of noisy 8×8 images, told apart by the row that is bright."""
    random = np.random.default_rng(seed)

    def images(labels: NDArray[np.int64]) -> NDArray[np.uint8]:
        made = random.integers(0, 120, (len(labels), 1, 8, 8), dtype=np.uint8)
        made[np.arange(len(labels)), 0, 2 * labels + 1] += 120
        return made

    y_train, y_test = np.arange(90) % 3, np.arange(18) % 3
    return {"x_train": images(y_train), "y_train": y_train, "x_test": images(y_test), "y_test": y_test}


def data_file(folder: Path) -> Path:
    """The tiny data set as a file; its name is the same every time, for runs in different places to be comparable."""
    path = folder / "tiny.npz"
    if not path.exists():
        np.savez(path, allow_pickle=False, **arrays())
    return path


def config_file(folder: Path, **settings: Any) -> Path:
    """A configuration of a tiny run on the tiny data set, the data beside it."""
    path = folder / "tiny.toml"
    path.write_text(tomli_w.dumps({**TINY, "data": str(data_file(folder)), **settings}), "utf-8")
    return path


def run_tiny(out: Path, *, workers: int = 1, **settings: Any) -> RunResult:
    """Make a tiny run through the Python interface, the configuration and the data beside its directory."""
    return prowd.run(config_file(out.parent, **settings), out=out, workers=workers)


def rounds(path: Path) -> list[dict[str, Any]]:
    """The lines of rounds.jsonl without what may differ from run to run, the seconds."""
    lines = [json.loads(line) for line in (path / "rounds.jsonl").read_text("utf-8").splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def summary(path: Path) -> dict[str, Any]:
    """What summary.json says."""
    found: dict[str, Any] = json.loads((path / "summary.json").read_text("utf-8"))
    return found


def samples(path: Path) -> dict[str, str]:
    """The samples of weights, by their hashes. A run that was made longer has those of its former end too."""
    wanted = Snapshots(path / "snapshots", last=len(rounds(path))).wants
    found = {path.stem: path.read_bytes() for path in sorted((path / "snapshots").glob("*.safetensors"))}
    return {name: hashlib.sha256(data).hexdigest() for name, data in found.items() if wanted(int(name[6:12]))}


def outcome(path: Path) -> dict[str, Any]:
    """Everything a run may be judged by: its rounds, its final weights, the newest memory of every client, samples."""
    newest = {file.parent.name: file for file in sorted((path / "clients").glob("*/round-*.bin"))}
    memories = {name: (file.stem, hashlib.sha256(file.read_bytes()).hexdigest()) for name, file in newest.items()}
    weights = summary(path)["weights_sha256"]
    return {"rounds": rounds(path), "weights": weights, "memories": memories, "samples": samples(path)}


@functools.cache
def expected(**settings: Any) -> dict[str, Any]:
    """The outcome of the same run made in one process without interruption."""
    with tempfile.TemporaryDirectory() as folder:
        run_tiny(Path(folder) / "run", **settings)
        return outcome(Path(folder) / "run")


def sets(**settings: Any) -> list[str]:
    """Settings as arguments of the command line."""
    return [argument for key, value in settings.items() for argument in ("-s", f"{key}={value}")]


def environment() -> dict[str, str]:
    """One thread a process, plain output, wide enough that nothing is wrapped."""
    kept = {key: value for key, value in os.environ.items() if key not in {"FORCE_COLOR", "CLICOLOR_FORCE"}}
    return {**kept, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "NO_COLOR": "1"}


def call(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Call the command-line program and wait for it."""
    command = [str(part) for part in (PROWD, *arguments)]
    return subprocess.run(
        command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


def ask(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Call the command line in this process, which has PyTorch at hand: for what starts no other."""
    command = [str(part) for part in arguments]
    before = signal.getsignal(signal.SIGTERM)
    try:
        with contextlib.chdir(cwd):
            done = CliRunner(env=environment()).invoke(main, command, prog_name="prowd")
    finally:
        signal.signal(signal.SIGTERM, before)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)


def start(*arguments: str | Path, cwd: Path) -> subprocess.Popen[str]:
    """Start the command-line program as a shell does: in a process group of its own, which Ctrl-C reaches.

    Tests that were themselves started in the background ignore SIGINT, and so would all that they start.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            [str(part) for part in (PROWD, *arguments)],
            cwd=cwd,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for the end of a program *and of its workers*: they hold the same pipes, which close with the last."""
    try:
        return process.communicate(timeout=TIMEOUT)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, 9)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Look every few milliseconds until something holds."""
    end = time.monotonic() + TIMEOUT
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.005)


def wait_for_rounds(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Wait until a run has reported so many rounds."""
    file = path / "rounds.jsonl"

    def reached() -> bool:
        if process.poll() is not None:
            raise AssertionError(f"ended early with exit code {process.returncode}: {process.communicate()}")
        return file.exists() and file.read_bytes().count(b"\n") >= count

    wait_until(reached, f"{count} rounds in {file}")


def on_a_terminal(*arguments: object, cwd: Path, rows: int, columns: int) -> tuple[subprocess.Popen[bytes], int]:
    """The command line in a terminal of its own: the process, and our end of the terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    env = {key: value for key, value in environment().items() if key not in {"COLUMNS", "NO_COLOR"}}
    process = subprocess.Popen(
        [PROWD, *map(str, arguments)],
        cwd=cwd,
        env={**env, "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    return process, ours


def read_to_the_end(terminal: int) -> bytes:
    """All that is still written to a terminal."""
    written = b""
    with contextlib.suppress(OSError):  # Linux reports the end of a terminal as an error
        while chunk := os.read(terminal, 65536):
            written += chunk
    os.close(terminal)
    return written


def refused(*arguments: str | Path, cwd: Path, code: int = 1) -> str:
    """Call with something wrong in it, and return the one line that says what."""
    done = ask(*arguments, cwd=cwd)
    assert done.returncode == code, done
    assert "Traceback" not in done.stdout + done.stderr
    if code == 1:
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr
