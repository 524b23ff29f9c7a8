"""One run from beginning to end: its directory, its workers, its results. ``prowd.run`` and the command line use it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from prowd import __version__
from prowd.config.schema import RunConfig, load_config, validate
from prowd.config.tables import override
from prowd.data import Dataset, Progress
from prowd.device.memory import forget_after
from prowd.errors import ConfigError, RunError, disk_fault
from prowd.federation import engine
from prowd.federation.engine import Federation
from prowd.federation.pool import ProcessPool
from prowd.federation.processes import available_cores
from prowd.federation.transport import InProcess, Transport
from prowd.methods import ServerState, find_method
from prowd.runs.build import (
    as_arrays,
    as_used,
    assemble,
    check_same,
    elsewhere,
    load_data,
    prepare,
    warn_if_slow,
)
from prowd.runs.directory import RunDir, check_free, weights_hash
from prowd.runs.holdings import holdings_of
from prowd.runs.observe import Recorder, RunObserver
from prowd.runs.provenance import provenance
from prowd.runs.roster import Roster, mix_of
from prowd.runs.snapshots import Snapshots
from prowd.runs.summary import summarise

__all__ = ["RunResult", "Session", "default_workers", "fresh_path"]

log = logging.getLogger(__name__)
REAL = "a run of real devices; accepted: to go on with it on Flower (docs/deploy.md)"
SIMULATED = "a run of simulated clients; accepted: prowd run --resume"


@dataclass(frozen=True)
class RunResult:
    """The results of a run: its directory, its rounds as in rounds.jsonl, its summary, the global weights."""

    path: Path
    rounds: list[dict[str, Any]]
    summary: dict[str, Any]
    weights: Mapping[str, Tensor]


@dataclass(frozen=True)
class Session:
    """A run that is ready to start or to go on."""

    config: RunConfig
    federation: Federation
    dataset: Dataset
    rundir: RunDir
    state: ServerState

    @classmethod
    def start(
        cls,
        source: str | Path,
        settings: Mapping[str, Any],
        *,
        out: Path | None = None,
        data: object = None,
        model: nn.Module | None = None,
        progress: Progress | None = None,
    ) -> Session:
        """Prepare a new run: everything that can be wrong is found before the directory is made."""
        if out is not None:
            check_free(out)
        config, dataset = prepare(source, settings, data=data, model=model, progress=progress)
        session = cls.begin(config, dataset, out or fresh_path(config))
        warn_if_slow(session.federation.scene)
        return session

    @classmethod
    def begin(cls, config: RunConfig, dataset: Dataset, out: Path, roster: Roster | None = None) -> Session:
        """Make the directory of a run whose configuration is complete and whose data is as it is used."""
        if roster is not None:
            config = config.model_copy(update={"clients": mix_of(client.width for client in roster.clients)})
        federation, _, parts = assemble(config, dataset, roster.clients if roster else None)
        state = federation.method.init(federation.scene)
        rundir = RunDir.create(out, config.toml())
        if roster is not None:
            rundir.write_roster(roster)
        else:
            by_person = config.partition == "natural"
            rundir.write_holdings(holdings_of(dataset, parts, federation.scene.clients, by_person=by_person))
        return cls(config, federation, dataset, rundir, state)

    @classmethod
    def resume(
        cls,
        path: Path,
        settings: Mapping[str, Any],
        *,
        data: object = None,
        progress: Progress | None = None,
        devices: bool = False,
    ) -> Session:
        """Take up a run where its last whole checkpoint is; only what leaves finished rounds as they are may change.

        The run must be one of simulated clients, or, where ``devices`` says so, one of real devices.
        """
        other = sorted(set(settings) - {"rounds", "kernel"})
        if other:
            accepted = "rounds, to make a run longer, and kernel"
            raise ConfigError(f"{other[0]}: cannot be changed on resume; accepted: {accepted}")
        rundir = RunDir.open(path)
        try:
            config = load_config(path / "config.toml")
            roster = rundir.roster()
            if devices != (roster is not None):
                raise RunError(f"{path} is {REAL if roster else SIMULATED}")
            _check_unchanged(config, rundir)
            if not rundir.lines():  # nothing was made yet with the method as it was
                config = config.model_copy(update={"method_sha256": ""})
            if config.version != __version__:
                log.warning("%s was begun by prowd %s and goes on with %s", path, config.version, __version__)
            if config.decay != "none" and settings.get("rounds", config.rounds) != config.rounds:
                found = f"{settings['rounds']}, but the learning rates fall in the course of {config.rounds}"
                raise ConfigError(f"rounds: {found}; accepted: {config.rounds}, or a new run")
            raw = load_data(config, as_arrays(data), progress)
            config = check_same(validate(override(config.model_dump(), settings)), raw)
            dataset = as_used(config, raw)
            federation = assemble(config, dataset, roster.clients if roster else None).federation
            fresh = federation.method.init(federation.scene)
            state = rundir.restore() or fresh
            _check_fits(state, fresh, rundir.path)
            state = replace(state, model={name: state.model[name] for name in fresh.model})  # a file forgets the order
            forget_after(rundir.memories, state.round)
            if config.rounds < state.round:
                raise ConfigError(
                    f"rounds: {config.rounds}, but {state.round} are done; accepted: {state.round} or more"
                )
            rundir.write_config(config.toml())
            warn_if_slow(federation.scene)
        except OSError as error:
            rundir.release()
            raise RunError(disk_fault(error, path)) from error
        except BaseException:
            rundir.release()
            raise
        return cls(config, federation, dataset, rundir, state)

    def run(self, workers: int | None = None, *observers: RunObserver, transport: Transport | None = None) -> RunResult:
        """Run the rounds that are left; each is on the disk before the next begins.

        Clients are simulated by ``workers`` processes, unless there is a transport that reaches them elsewhere.
        """
        began = time.perf_counter()
        try:
            transport = transport or self._transport(default_workers(self.federation) if workers is None else workers)
            recorder = Recorder(self.rundir, self.federation, self.snapshots, observers)
            recorder.began(self.config, self.state, provenance())
            state = engine.run(self.federation, self.state, transport, recorder)
            lines = self.rundir.lines()
            summary = summarise(self.config, self.federation.scene, lines, weights_hash(state.model))
            summary["session_seconds"] = round(time.perf_counter() - began, 3)
            self.rundir.write_summary(summary)
            return RunResult(self.rundir.path, [line.line() for line in lines], summary, state.model)
        except OSError as error:
            raise RunError(disk_fault(error, self.rundir.path)) from error
        finally:
            if transport is not None:
                transport.close()
            self.rundir.release()
            for observer in observers:
                observer.close()

    @property
    def snapshots(self) -> Snapshots:
        """Where samples of weights are kept for figures."""
        config, folder = self.config, self.rundir.path / "snapshots"
        return Snapshots(folder, config.snapshots, config.rounds, config.snapshot_entries, self.federation.cohort)

    def _transport(self, workers: int) -> Transport:
        if workers == 1:
            return InProcess(assemble(self.config, self.dataset).clients(self.rundir.memories, self.snapshots))
        return ProcessPool(workers, elsewhere(self.config, self.dataset, self.rundir.memories, self.snapshots))


def default_workers(federation: Federation) -> int:
    """One worker for each core, no more than there are clients; one on an accelerator, which they would share."""
    return max(1, min(available_cores(), federation.cohort)) if federation.scene.device.type == "cpu" else 1


def _check_unchanged(config: RunConfig, rundir: RunDir) -> None:
    """See that config.toml says what the rounds so far were made with: it is not where a run's settings are changed."""
    if not rundir.lines() or not rundir.kept_config.exists():  # older runs kept none
        return
    now, kept = (one.model_dump(mode="json") for one in (config, load_config(rundir.kept_config)))
    for key in now:
        if key not in ("rounds", "kernel", "version") and now[key] != kept[key]:
            found = f"{now[key]!r} in {rundir.path / 'config.toml'}, but the run was made with {kept[key]!r}"
            raise ConfigError(f"{key}: {found}; accepted: {kept[key]!r}, or a new run")


def _check_fits(state: ServerState, fresh: ServerState, path: Path) -> None:
    """See that a checkpoint is of the model that the configuration describes."""
    found, accepted = ({name: tuple(tensor.shape) for name, tensor in s.model.items()} for s in (state, fresh))
    if found != accepted:
        name = next(iter(set(found.items()) ^ set(accepted.items())))[0]
        raise RunError(
            f"the checkpoint of {path} does not fit its config.toml: {name!r} has shape {found.get(name)}; "
            f"accepted: {accepted.get(name)}"
        )


def fresh_path(config: RunConfig) -> Path:
    """A directory under runs/ that is not there yet."""
    stem = f"{config.name}-{find_method(config.method).name}-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
    path, number = Path("runs") / stem, 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{stem}-{number}"
    return path
