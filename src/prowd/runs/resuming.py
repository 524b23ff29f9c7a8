"""What a run that goes on must agree with: the settings of its rounds so far, and the model of its checkpoint."""

from __future__ import annotations

from pathlib import Path

from prowd.config.schema import NO_MATTER, RunConfig, load_config
from prowd.errors import ConfigError, RunError
from prowd.methods import ServerState
from prowd.runs.directory import RunDir

__all__ = ["check_fits", "check_unchanged"]


def check_unchanged(config: RunConfig, rundir: RunDir) -> None:
    """See that config.toml says what the rounds so far were made with: it is not where a run's settings are changed."""
    if not rundir.lines() or not rundir.kept_config.exists():  # older runs kept none
        return
    now, kept = (one.model_dump(mode="json") for one in (config, load_config(rundir.kept_config)))
    for key in now:
        if key not in {"rounds", *NO_MATTER} and now[key] != kept[key]:
            found = f"{now[key]!r} in {rundir.path / 'config.toml'}, but the run was made with {kept[key]!r}"
            raise ConfigError(f"{key}: {found}; accepted: {kept[key]!r}, or a new run")


def check_fits(state: ServerState, fresh: ServerState, path: Path) -> None:
    """See that a checkpoint is of the model that the configuration describes."""
    found, accepted = ({name: tuple(tensor.shape) for name, tensor in s.model.items()} for s in (state, fresh))
    if found != accepted:
        name = next(iter(set(found.items()) ^ set(accepted.items())))[0]
        raise RunError(
            f"the checkpoint of {path} does not fit its config.toml: {name!r} has shape {found.get(name)}; "
            f"accepted: {accepted.get(name)}"
        )
