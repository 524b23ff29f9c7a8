"""A run as Weights & Biases shows it. The only importer of wandb."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from typing import Any, ClassVar

import wandb

from prowd.config.schema import RunConfig
from prowd.views.trackers.tracker import Tracker

__all__ = ["Wandb"]

PROJECT = "prowd"


class Wandb(Tracker):
    """Sends rounds to Weights & Biases where one is logged in, and else keeps them for ``wandb sync``.

    WANDB_MODE, WANDB_PROJECT and the other variables of wandb are followed. A run that goes on is the same run there.
    """

    name: ClassVar[str] = "wandb"
    errors: ClassVar[tuple[type[Exception], ...]] = (OSError, wandb.Error)
    run: Any = None

    def start(self, config: RunConfig) -> int:
        """Begin the run, or go on with it; returns the last round that was sent."""
        known = self.recall(self.path)
        place = self.home or self.path
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=str(known.get("run") or secrets.token_hex(8)),
            name=self.path.name,
            group=self.home.name if self.home else None,
            dir=str(place),
            config=config.model_dump(mode="json"),
            mode=_mode(),
            resume="allow" if known else None,
            settings=wandb.Settings(silent=True, console="off", save_code=False),
        )
        rounds = int(known.get("rounds", 0))
        self.remember(run=self.run.id, rounds=rounds)
        return rounds

    def send(self, round_: int, when: float, values: Mapping[str, float]) -> None:
        """Log the round, whose number is the step."""
        self.run.log(dict(values), step=round_, commit=True)
        self.remember(rounds=round_)

    def end(self, *, complete: bool) -> None:
        """Wait until all is written or sent."""
        run, self.run = self.run, None
        if run is not None:
            run.finish(exit_code=0 if complete else 1)


def _mode() -> Any:
    """What WANDB_MODE says; without it, online where there is a key."""
    if mode := os.environ.get("WANDB_MODE"):
        return mode
    return "online" if wandb.login(prompt=False) else "offline"
