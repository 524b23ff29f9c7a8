"""What a run leaves behind: config.toml, provenance.json, rounds.jsonl, checkpoints, summary.json; holdings.json where
clients are simulated, devices.json where they are real devices. The only writer of run directories, but for the
samples of weights (snapshots).

A round is written to rounds.jsonl first and its checkpoint after it; a checkpoint counts once its JSON file, which
holds the hash of its tensors, is in place. Whenever a run is killed, the newest whole checkpoint and the lines up to
its round are a consistent state.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from prowd.errors import DiskError, RunError
from prowd.federation.report import RoundReport
from prowd.files import atomic_write, clear_leftovers, is_leftover, sha256
from prowd.methods import ServerState
from prowd.runs.holdings import FILE as HOLDINGS
from prowd.runs.holdings import Holdings
from prowd.runs.read import read_lines, read_sessions
from prowd.runs.roster import Roster

__all__ = ["START", "RunDir", "check_free", "last_state", "weights_hash"]

log = logging.getLogger(__name__)

START = "init.safetensors"
KEPT = 2  # checkpoints: the newest, and one before it in case the newest is damaged
FORMAT = 1


@dataclass(frozen=True)
class RunDir:
    """A run directory held by this process; nobody else can write to it until it is released."""

    path: Path
    lock: BaseFileLock

    @classmethod
    def create(cls, path: Path, config: str) -> RunDir:
        """Start a new run directory; one that already holds something is left alone."""
        check_free(path)
        try:
            (path / "checkpoints").mkdir(parents=True, exist_ok=True)
            rundir = cls(path, _locked(path))
            clear_leftovers(path)
        except OSError as error:
            raise DiskError.of(f"output directory {path} cannot be written", error) from error
        try:
            rundir.write_config(config)
        except BaseException:
            rundir.release()
            raise
        return rundir

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """Take an existing run directory up again."""
        if not (path / "config.toml").is_file():
            raise RunError(
                f"{path} is not a run directory: it has no config.toml; accepted: a directory made by prowd run"
            )
        rundir = cls(path, _locked(path))
        try:
            clear_leftovers(path)
        except OSError as error:
            rundir.release()
            raise DiskError.of(f"{path} cannot be written", error) from error
        return rundir

    def release(self) -> None:
        """Let another process write."""
        self.lock.release()

    @property
    def memories(self) -> Path:
        """Where the simulated devices keep their memories."""
        return self.path / "clients"

    def write_config(self, config: str) -> None:
        """Replace config.toml."""
        self._write("config.toml", config)

    def write_holdings(self, holdings: Holdings) -> None:
        """Write down who holds what in a run whose clients are simulated."""
        self._write(HOLDINGS, holdings.encode())

    def write_start(self, data: bytes) -> None:
        """Write down the weights that the run begins with, where they are not random."""
        atomic_write(self.path / START, data)

    def write_roster(self, roster: Roster) -> None:
        """Write down the devices of a run whose clients are real ones."""
        self._write("devices.json", roster.encode())

    def roster(self) -> Roster | None:
        """The devices of a run; None where its clients are simulated."""
        path = self.path / "devices.json"
        return Roster.decode(path.read_bytes(), path) if path.exists() else None

    def add_session(self, provenance: Mapping[str, Any]) -> None:
        """Add to provenance.json by what the run is made from now on."""
        path = self.path / "provenance.json"
        sessions = [*read_sessions(path), dict(provenance)]
        self._write(path.name, json.dumps({"sessions": sessions}, indent=2) + "\n")

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a round to rounds.jsonl and bring it to the disk."""
        with (self.path / "rounds.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def lines(self) -> list[RoundReport]:
        """The rounds reported so far; a last line that was cut off by a crash is dropped."""
        lines, damage = read_lines(self.path / "rounds.jsonl")
        for problem in damage:
            log.warning("%s: %s", self.path, problem)
        return lines

    def checkpoint(self, state: ServerState) -> None:
        """Save a state; older checkpoints are removed once it is safe."""
        tensors = {f"model/{name}": tensor for name, tensor in state.model.items()}
        tensors |= {f"memory/{name}": tensor for name, tensor in state.memory.items()}
        data = save({name: tensor.contiguous() for name, tensor in tensors.items()})
        path = self._checkpoint(state.round)
        path.parent.mkdir(exist_ok=True)
        atomic_write(path, data)
        facts = {
            "format": FORMAT,
            "round": state.round,
            "sha256": sha256(data),
            "weights_sha256": weights_hash(state.model),
        }
        atomic_write(path.with_suffix(".json"), json.dumps(facts, indent=2).encode())
        for round_ in self._rounds()[:-KEPT]:
            self._checkpoint(round_).with_suffix(".json").unlink(missing_ok=True)
            self._checkpoint(round_).unlink(missing_ok=True)

    def restore(self) -> ServerState | None:
        """Load the newest whole checkpoint, and cut rounds.jsonl back to it; None before the first."""
        rounds = self._rounds()
        if not rounds:
            if len(self.lines()) > 1:  # a crash can leave one line without a checkpoint, not more
                raise RunError(f"the checkpoints of {self.path} are missing; its rounds.jsonl is left as it is")
            self._keep_lines(0)
            return None
        problems: list[str] = []
        for round_ in reversed(rounds):
            try:
                state = self._load(round_)
            except RunError as error:
                problems.append(str(error))
                log.warning("%s", error)
                continue
            self._keep_lines(state.round)
            return state
        raise RunError(f"no checkpoint of {self.path} can be used: {'; '.join(problems)}")

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json."""
        self._write("summary.json", json.dumps(summary, indent=2) + "\n")

    def _keep_lines(self, last: int) -> None:
        """Cut rounds.jsonl back to the lines of rounds 1 to ``last``."""
        path = self.path / "rounds.jsonl"
        if len(self.lines()) < last:
            raise RunError(f"{path} lacks some of the rounds 1 to {last} that the checkpoint has seen; it was damaged")
        kept = path.read_bytes().splitlines()[:last] if path.exists() else []
        self._write(path.name, b"".join(line + b"\n" for line in kept))

    def _write(self, name: str, content: str | bytes) -> None:
        try:
            atomic_write(self.path / name, content.encode() if isinstance(content, str) else content)
        except OSError as error:
            raise DiskError.of(f"{self.path / name} cannot be written", error) from error

    def _load(self, round_: int) -> ServerState:
        path = self._checkpoint(round_)
        try:
            facts = json.loads(path.with_suffix(".json").read_text("utf-8"))
            if (facts["format"], facts["round"]) != (FORMAT, round_):
                found = f"format {facts['format']}, round {facts['round']}"
                raise RunError(f"checkpoint {path} says {found}; accepted: format {FORMAT}, round {round_}")
            data = path.read_bytes()
            if facts["sha256"] != sha256(data):
                raise RunError(f"checkpoint {path} is truncated or damaged: its content hash does not match")
            parts: dict[str, dict[str, Tensor]] = {"model": {}, "memory": {}}
            for key, tensor in load(data).items():
                part, _, name = key.partition("/")
                parts[part][name] = tensor
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise RunError(f"checkpoint {path} cannot be read: {error!r}") from error
        return ServerState(round_, parts["model"], parts["memory"])

    def _rounds(self) -> list[int]:
        files = (self.path / "checkpoints").glob("round-*.json")
        names = [path.stem.removeprefix("round-") for path in files]
        return sorted(int(name) for name in names if name.isdecimal())

    def _checkpoint(self, round_: int) -> Path:
        return self.path / "checkpoints" / f"round-{round_:06d}.safetensors"


def last_state(path: Path) -> ServerState:
    """The newest whole checkpoint of a run, only to look at: nothing is locked or written."""
    if not (path / "config.toml").is_file():
        raise RunError(f"{path} is not a run directory: it has no config.toml; accepted: a directory made by prowd run")
    rundir = RunDir(path, FileLock(path / ".lock"))
    problems: list[str] = []
    for round_ in reversed(rundir._rounds()):
        try:
            return rundir._load(round_)
        except RunError as error:
            problems.append(str(error))
    found = "; ".join(problems) or "no round is finished yet"
    raise RunError(f"{path} has no model that can be used: {found}")


def check_free(path: Path) -> None:
    """See that a run can be started in a directory."""
    if (path / "config.toml").exists():
        raise RunError(f"output directory {path} holds another run; continue it with --resume, or name another --out")
    if path.exists() and (not path.is_dir() or not all(_is_leftover(file) for file in path.iterdir())):
        raise RunError(f"output directory {path} is not an empty directory; name another --out")


def _is_leftover(file: Path) -> bool:
    """Whether a file is one of those that a run leaves which is killed before it begins."""
    if file.name == "checkpoints":
        return file.is_dir() and not any(file.iterdir())
    return file.name == ".lock" or (file.name.startswith(".config.toml.") and is_leftover(file))


def weights_hash(model: Mapping[str, Tensor]) -> str:
    """One hash of all weights, names and shapes included: equal hashes mean bit-identical models."""
    parts = [
        f"{name} {model[name].dtype} {tuple(model[name].shape)}".encode() + model[name].contiguous().numpy().tobytes()
        for name in sorted(model)
    ]
    return sha256(b"".join(parts))


def _locked(path: Path) -> BaseFileLock:
    lock = FileLock(path / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:  # which is an OSError too
        raise RunError(f"run directory {path} is in use by another process; wait for it or stop it first") from None
    except OSError as error:
        raise DiskError.of(f"{path} cannot be written", error) from error
    return lock
