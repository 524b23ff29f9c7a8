"""What is to be compared: one run for every method and seed, each with its configuration and its directory."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import nn

from prowd import __version__
from prowd.config.files import read_settings
from prowd.config.options import option_names
from prowd.config.schema import NO_MATTER, RANDOM, RunConfig, load_config, validate, with_full_paths
from prowd.config.tables import layered, override
from prowd.data import Dataset, Progress
from prowd.errors import ConfigError, RunError, near
from prowd.files import atomic_write
from prowd.methods import METHODS, Method, find_method
from prowd.nets.tracing import read
from prowd.runs.build import Arrays, Start, as_used, assemble, check_same, load_data, make_architecture
from prowd.runs.directory import START, weights_hash
from prowd.runs.read import read_summary
from prowd.runs.run import warn_if_slow
from prowd.runs.start import checked, encode, of_network, start_of, with_given

__all__ = ["Plan", "PlannedRun", "make_plan"]

log = logging.getLogger(__name__)

Item = TypeVar("Item")

DATA = "data.npz"
FILES = {"data": DATA, "init": START}  # where arrays and weights given through the Python API are kept, for all runs
PARTS = {"accuracy", "average_accuracy", "bytes", "weights_sha256"}  # of a summary, that tables are made of
DEFAULT_BASELINE = "fedavg"
OWN = {"method": "--methods", "seed": "--seeds"}  # what a comparison decides itself
LATER = (  # settings that came later: at their defaults they leave a comparison where it was
    "validation",
    "decay",
    "weighting",
    "cap_examples",
    "clip_movement",
    "robust",
    "test_clients",
    "validation_clients",
    "own_test",
    "window",
    "window_step",
    "measure",
    "bias",
    "init",
)


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run of a comparison."""

    method: str
    seed: int
    config: RunConfig
    path: Path

    @property
    def is_finished(self) -> bool:
        """Whether all its rounds are made and summed up."""
        return self.summary() is not None

    def summary(self) -> dict[str, Any] | None:
        """What its summary.json says, if it is that of the whole run."""
        found = read_summary(self.path / "summary.json", damage=[])
        return found if found and found.get("rounds") == self.config.rounds and set(found) >= PARTS else None


@dataclass(frozen=True)
class Plan:
    """All runs of a comparison, seed by seed, and the directory that holds them."""

    path: Path
    runs: tuple[PlannedRun, ...]
    baseline: str = "fedavg"

    @property
    def config(self) -> RunConfig:
        """What all runs have in common (and the method and seed of the first)."""
        return self.runs[0].config


def make_plan(
    source: str | Path,
    settings: Mapping[str, Any],
    methods: Sequence[str],
    seeds: Sequence[int],
    *,
    out: Path | None = None,
    baseline: str | None = None,
    arrays: Arrays | None = None,
    model: nn.Module | None = None,
    keep_weights: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """Plan a comparison: everything that can be wrong is found before the first run begins.

    The same settings lead to the same directory, in which what was already made is found again; methods and seeds may
    be added later.
    """
    for key, option in OWN.items():
        if key in settings:
            raise ConfigError(f"{key}: a comparison sets it for each run; accepted: {option}")
    values = layered(read_settings(source), with_given(settings, model) if keep_weights else settings)
    if values.get("links"):
        raise ConfigError("links: a comparison makes several runs at once, a device does one; accepted: prowd run")
    classes = [find_method(name) for name in _unique("methods", methods)]
    names = _unique("methods", [found.name for found in classes])
    if baseline is not None and baseline not in names:
        accepted = f"{', '.join(names)}{near(baseline, names)}"
        raise ConfigError(f"baseline: {baseline!r} is not compared; accepted: {accepted}")
    configs = [_config(values, name, 0, classes) for name in methods]
    raw = load_data(with_full_paths(configs[0]), arrays, progress)
    values, start = _with_network(values, with_full_paths(configs[0]), as_used(configs[0], raw), model, keep_weights)
    if out is not None and out.exists() and not out.is_dir():
        raise RunError(f"{out} is not a directory; name another --out")
    given = {"data": raw.digest()} if arrays is not None else {}
    given |= {"init": weights_hash(start)} if keep_weights else {}
    path = out or _place(configs[0].name, {**values, **given})
    values = override(values, {key: str(path / FILES[key]) for key in given})
    runs = []
    for seed in _unique("seeds", seeds):
        for name, found in zip(methods, classes, strict=True):
            config = with_full_paths(_config(values, name, seed, classes))
            complete = check_same(config.model_copy(update={"version": __version__}), raw)
            runs.append(PlannedRun(found.name, seed, checked(complete, start), path / f"{found.name}-seed{seed}"))
    for run in runs[: len(methods)]:  # every method as far as its first round
        federation = assemble(run.config, as_used(run.config, raw), start=start).federation
        federation.method.init(federation.scene)
    warn_if_slow(federation.scene)
    for run in runs:
        _check_same(run)
    _write(path, arrays, start if keep_weights else {})
    return Plan(path, tuple(runs), baseline or (DEFAULT_BASELINE if DEFAULT_BASELINE in names else names[0]))


def _with_network(
    values: Mapping[str, Any], config: RunConfig, dataset: Dataset, model: nn.Module | None, keep_weights: bool
) -> tuple[dict[str, Any], Start]:
    """The settings with the layers of a network given in Python, and the weights that all runs begin with."""
    if model is None:
        start = {} if config.init == RANDOM else start_of(config, make_architecture(config, dataset))
        return dict(values), start
    reading = read(model, dataset.image_shape, config.bias, trained=keep_weights)
    values = override(values, {"model": "custom", "layers": reading.architecture.layers})
    return values, of_network(reading) if keep_weights else start_of(config, reading.architecture)


def _write(path: Path, arrays: Arrays | None, start: Start) -> None:
    """Keep what was given in Python, for all runs to read."""
    if arrays is not None or start:
        path.mkdir(parents=True, exist_ok=True)
    if arrays is not None:
        np.savez(path / DATA, allow_pickle=False, **arrays)
    if start:
        atomic_write(path / START, encode(start))


def _config(values: Mapping[str, Any], method: str, seed: int, classes: Sequence[type[Method]]) -> RunConfig:
    """The configuration of one run. An option without a method's name is for every method that has it."""
    options = values.get("options", {})
    if isinstance(options, Mapping):
        chosen = find_method(method)
        names = {*METHODS, *(found.name for found in classes)}
        somebody = {name for found in classes for name in option_names(found)}
        for key in options:
            if key not in names and key not in somebody:
                raise ConfigError(
                    f"options.{key}: none of the methods has such an option; "
                    f"accepted: {', '.join(sorted(somebody)) or 'none'}"
                )
        own = {*METHODS, chosen.name, *option_names(chosen)}
        options = {key: value for key, value in options.items() if key in own}
    return validate({**values, "method": method, "seed": seed, "options": options})


def _unique(field: str, found: Sequence[Item]) -> Sequence[Item]:
    twice = [item for number, item in enumerate(found) if item in found[:number]]
    if twice or not found:
        what = f"{twice[0]} is there twice" if twice else "there are none"
        raise ConfigError(f"{field}: {what}; accepted: one or more, each once")
    return found


def _place(name: str, values: Mapping[str, Any]) -> Path:
    """A directory for these settings: other settings have another one."""
    base = validate({key: value for key, value in values.items() if key not in ("method", "options")})
    filled_in = {*OWN, *NO_MATTER, "options", "data_sha256", "method_sha256", "init_sha256"}
    unused = {name for name in LATER if getattr(base, name) == RunConfig.model_fields[name].default}
    decisive = {**base.model_dump(mode="json", exclude=filled_in | unused), "options": values.get("options", {})}
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True, default=str).encode()).hexdigest()
    return Path("runs") / f"compare-{name}-{digest[:8]}"


def _check_same(run: PlannedRun) -> None:
    """See that what is in a run's place is that run."""
    if not (run.path / "config.toml").exists():
        return
    found = load_config(run.path / "config.toml")
    if found.version != __version__:
        log.warning("%s was begun by prowd %s", run.path, found.version)
    if found.method_sha256 != run.config.method_sha256:
        if not (run.path / "rounds.jsonl").exists():
            return  # nothing was made yet with the method as it was
        changed = run.config.method.rpartition(":")[0]
        raise RunError(f"{changed} has changed since {run.path} was made; remove that folder, or name another --out")
    for field in RunConfig.model_fields:
        there, here = getattr(found, field), getattr(run.config, field)
        if field not in {*NO_MATTER, "method_sha256"} and there != here:
            raise RunError(f"{run.path} was made with {field} = {there!r}, now it is {here!r}; name another --out")
