"""Trackers: whoever keeps the rounds of many runs, and shows them while they are made."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from prowd.comparison import Plan
from prowd.errors import ConfigError, ProwdError
from prowd.views.trackers.tracker import Tracker

__all__ = ["TRACKERS", "Tracker", "Trackers", "how_to_look", "load_trackers", "track_comparison"]

TRACKERS = {"tensorboard": "TensorBoard", "mlflow": "Mlflow", "wandb": "Wandb"}
"""What --track accepts: a module of this folder, and its class."""


def load_trackers(names: Sequence[str]) -> list[type[Tracker]]:
    """The classes of trackers, or an error that says what there is, or how to get what one needs."""
    found: list[type[Tracker]] = []
    for name in dict.fromkeys(names):
        if name not in TRACKERS:
            raise ConfigError(f"track: {name!r} is wrong; accepted: {', '.join(TRACKERS)}")
        try:
            if name == "tensorboard":
                import_module("torch.utils.tensorboard")
            module = import_module(f"prowd.views.trackers.{name}")
        except ModuleNotFoundError as error:
            missing = (error.name or name).partition(".")[0]
            install = f"in a clone of prowd, pip install '.[{name}]'"
            raise ProwdError(f"--track {name} needs {missing}; install it with: {install}") from None
        found.append(cast("type[Tracker]", getattr(module, TRACKERS[name])))
    return found


@dataclass(frozen=True)
class Trackers:
    """Makes the trackers of a comparison's runs, in their own processes: it can be sent there."""

    names: tuple[str, ...]
    home: Path

    def __call__(self, path: Path) -> list[Tracker]:
        """Make those of the run in a directory."""
        return [make(self.home) for make in load_trackers(self.names)]


def track_comparison(plan: Plan, names: Sequence[str]) -> Callable[[Path], list[Tracker]]:
    """Send the finished runs of a comparison; what is returned makes the trackers of each run that is left."""
    made = Trackers(tuple(names), plan.path)
    for run in (run for run in plan.runs if run.is_finished):
        for tracker in made(run.path):
            if not tracker.is_up_to_date(run.path):
                tracker.follow(run.config, run.path)
                tracker.close()
    return made


def how_to_look(names: Sequence[str], folder: Path) -> list[str]:
    """The commands that show what trackers have written to a run's or a comparison's folder."""
    said: list[str] = []
    if "tensorboard" in names:
        said.append(shlex.join(["tensorboard", "--logdir", str(folder / "tensorboard")]))
    if "mlflow" in names and (folder / "mlflow.db").exists():
        said.append(shlex.join(["mlflow", "ui", "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]))
    if "wandb" in names:
        kept = sorted((folder / "wandb").glob("offline-run-*"))
        said += [shlex.join(["wandb", "sync", *map(str, kept)])] if kept else []
    return said
