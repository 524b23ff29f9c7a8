"""A federation of separate processes on this machine: a SuperLink, its executor and SuperNodes, all of them stopped at
the end, whatever happens. The demo and the tests use it; real machines run the same commands (docs/deploy.md)."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from prowd.errors import RunError
from prowd.flower.control import Control
from prowd.flower.keys import make_certificates, make_node_key

__all__ = ["QUIET", "LocalFederation", "Values", "local_federation"]

Values = Mapping[str, str | int | float | bool]
"""What Flower takes as a configuration of a run or a node."""

HOST = "127.0.0.1"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "PYTHONUNBUFFERED": "1",
}
"""Environment of Flower's processes: no telemetry, no look for updates, nothing installed behind one's back."""
START = 60.0  # seconds in which a process must be ready
TERMINATE = 8.0  # seconds in which it must end


@dataclass
class LocalFederation:
    """The processes that were started, and where they write."""

    folder: Path
    port: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{HOST}:{self.port}"

    @property
    def authority(self) -> Path:
        """The certificate by which it is known."""
        return self.folder / "keys" / "ca.pem"

    def control(self) -> closing[Control]:
        """A connection to it."""
        return closing(Control(self.address, self.authority))

    def start_link(self) -> None:
        """Start the SuperLink, with TLS and node authentication, and wait until it listens."""
        keys = self.folder / "keys"
        tls = [f"--ssl-ca-certfile={self.authority}", f"--ssl-certfile={keys / 'server.pem'}"]
        self.start("superlink", [
            "flower-superlink", "--host", HOST, "--port", str(self.port), *tls, f"--ssl-keyfile={keys / 'server.key'}",
            "--enable-supernode-auth", "--isolation", "process", "--disable-runtime-dependency-installation",
            f"--database={self.folder / 'link.db'}",
        ])  # fmt: skip
        self._wait_until_it_listens()

    def start_executor(self) -> None:
        """Start the executor of the SuperLink's apps."""
        self.start("superexec", [
            "flower-superexec", f"--root-certificates={self.authority}", "--runtime-api-address", self.address,
            "--parent-pid", str(os.getpid()),
        ])  # fmt: skip

    def add_node(self, name: str) -> int:
        """Make a node's key and register it; returns the node's number, by which the server knows this key."""
        key = make_node_key(self.folder / "keys", name)
        with self.control() as control:
            return control.register(key.with_suffix(".pub"))

    def start_node(self, name: str, config: Values) -> None:
        """Start a SuperNode with its key and its own configuration."""
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        self.start(name, [
            "flower-supernode", "--superlink", self.address, f"--root-certificates={self.authority}",
            f"--auth-supernode-private-key={self.folder / 'keys' / name}", "--host", HOST, "--port", str(free_port()),
            "--isolation", "subprocess", "--node-config", pairs,
        ])  # fmt: skip

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a process in a session of its own; what it says goes to NAME.log."""
        home = self.folder / "home" / name
        home.mkdir(parents=True, exist_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        environment = {**os.environ, **QUIET, "FLWR_HOME": str(home), "PATH": path}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603 - our own command
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """End a process and all that it started."""
        process = self.processes.pop(name)
        _signal(process, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(TERMINATE)
        _signal(process, signal.SIGKILL)  # whatever is left of its group
        process.wait()

    @property
    def ended(self) -> list[str]:
        """Processes that have ended by themselves."""
        return [name for name, process in self.processes.items() if process.poll() is not None]

    def check(self) -> None:
        """Raise if a process has ended by itself."""
        for name in self.ended:
            raise RunError(f"{name} ended with exit code {self.processes[name].returncode}: {self.last_words(name)}")

    def last_words(self, name: str, lines: int = 5) -> str:
        """The end of a process's log."""
        text = (self.folder / f"{name}.log").read_text("utf-8", "replace").strip()
        return " | ".join(text.splitlines()[-lines:])

    def stop(self) -> None:
        """Stop everything that was started: nodes first, the SuperLink last."""
        for process in self.processes.values():
            _signal(process, signal.SIGTERM)
        for name in [*reversed(self.processes)]:
            self.kill(name, signal.SIGTERM)

    def _wait_until_it_listens(self) -> None:
        context = ssl.create_default_context(cafile=str(self.authority))
        end = time.monotonic() + START
        while "superlink" not in self.ended and time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"https://{self.address}/health", context=context, timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise RunError(f"the SuperLink is not ready in {START:g} s: {self.last_words('superlink')}")


@contextmanager
def local_federation(folder: Path) -> Iterator[LocalFederation]:
    """Yield a SuperLink that runs; everything that was started is stopped at the end."""
    make_certificates(folder / "keys", [HOST, "localhost"], days=2)
    federation = LocalFederation(folder, free_port())
    try:
        federation.start_link()
        federation.start_executor()
        yield federation
    finally:
        federation.stop()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # where all of its group have ended
        os.killpg(process.pid, number)
