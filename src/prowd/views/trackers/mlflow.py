"""A run as MLflow keeps it: parameters, and metrics by round. The only importer of mlflow."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

from prowd.config.schema import RunConfig
from prowd.views.trackers.tracker import Tracker

__all__ = ["Mlflow"]

EXPERIMENT = "prowd"
DATABASE = "mlflow.db"
MOST_AT_ONCE = 1000  # metrics that MLflow takes in one call
LONGEST_PARAMETER = 6000  # characters of a parameter's value
OTHERS = re.compile(r"[^\w./ -]")  # characters that a metric's name cannot have


class Mlflow(Tracker):
    """Sends rounds to the server of MLFLOW_TRACKING_URI, or to the file ``mlflow.db`` of the run or its comparison.

    A run that goes on is the same run there.
    """

    name: ClassVar[str] = "mlflow"
    errors: ClassVar[tuple[type[Exception], ...]] = (OSError, MlflowException)
    client: Any = None
    run = ""

    def start(self, config: RunConfig) -> int:
        """Create the run, or find it again; returns the last round that it has."""
        self.client = self._connect()
        known = self.recall(self.path)
        if known.get("uri") == self.client.tracking_uri:
            self.run = str(known["run"])
            self.client.set_terminated(self.run, "RUNNING")
            return int(known["rounds"])
        tags = {"prowd.method": config.method, "prowd.seed": str(config.seed), "prowd.path": str(self.path)}
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        made = self.client.create_run(self._experiment(experiment), run_name=self.path.name, tags=tags)
        self.run = made.info.run_id
        parameters = [Param(key, value[:LONGEST_PARAMETER]) for key, value in _flat(config.model_dump(mode="json"))]
        self.client.log_batch(self.run, params=parameters)
        self.remember(uri=self.client.tracking_uri, run=self.run, rounds=0)
        return 0

    def send(self, round_: int, when: float, values: Mapping[str, float]) -> None:
        """Log the round."""
        metrics = [Metric(_name(tag), float(value), int(when * 1000), round_) for tag, value in values.items()]
        for start in range(0, len(metrics), MOST_AT_ONCE):
            self.client.log_batch(self.run, metrics=metrics[start : start + MOST_AT_ONCE])
        self.remember(rounds=round_)

    def end(self, *, complete: bool) -> None:
        """Say how it ended."""
        client, self.client = self.client, None
        if client is not None and self.run:
            client.set_terminated(self.run, "FINISHED" if complete else "KILLED")

    def _connect(self) -> MlflowClient:
        """Open the store; several runs of a comparison may want to make it at once."""
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if uri:
            return MlflowClient(tracking_uri=uri)
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        place = (self.home or self.path).resolve() / DATABASE
        with FileLock(f"{place}.lock"):
            client = MlflowClient(tracking_uri=f"sqlite:///{place}")
            client.search_experiments(max_results=1)  # which makes the tables
        Path(f"{place}.lock").unlink(missing_ok=True)
        return client

    def _experiment(self, name: str) -> str:
        """The experiment of a name, made where it is not there yet; another run may be making it at the same time."""
        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self.client.create_experiment(name))
            except MlflowException:
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)


def _name(tag: str) -> str:
    """A scalar's name in the characters that MLflow takes: ``accuracy by class - int8/1``."""
    return OTHERS.sub("_", tag.replace("·", "-"))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Settings by their dotted names, as -s takes them."""
    found: list[tuple[str, str]] = []
    for key, value in settings.items():
        found += _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(f"{prefix}{key}", str(value))]
    return found
