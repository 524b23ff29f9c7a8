"""--track mlflow and --track wandb, offline: what their own readers find is what the runs wrote down."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from wandb.proto import wandb_internal_pb2

from prowd.config.schema import load_config
from prowd.runs.read import read_record
from prowd.views.trackers.mlflow import DATABASE, EXPERIMENT
from prowd.views.trackers.scalars import Scalars
from tests.runs import ask, config_file

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")  # MLflow's own

HEADER, BLOCK, FULL, LAST = 7, 32768, 1, 4


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_API_KEY", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("DO_NOT_TRACK", "true")  # MLflow tells its makers of its use otherwise


def said(run: Path) -> dict[int, dict[str, float]]:
    """The scalars of a run's rounds."""
    scalars = Scalars(load_config(run / "config.toml").clients)
    return {line.round: scalars.of(line) for line in read_record(run).lines}


def runs_in(store: Path) -> list[Any]:
    client = MlflowClient(tracking_uri=f"sqlite:///{store / DATABASE}")
    (experiment,) = client.search_experiments(filter_string=f"name = '{EXPERIMENT}'")
    return list(client.search_runs([experiment.experiment_id], order_by=["attributes.run_name"]))


def records(data: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: LevelDB's log, pieces of records in blocks of 32 kB, after a header of 7 bytes."""
    position, record = HEADER, b""
    while position + HEADER <= len(data):
        if BLOCK - position % BLOCK < HEADER:  # no room for the head of a piece: the block ends in zeros
            position += BLOCK - position % BLOCK
            continue
        size, kind = struct.unpack_from("<4xHB", data, position)
        record += data[position + HEADER : position + HEADER + size]
        position += HEADER + size
        if kind in (FULL, LAST):
            yield record
            record = b""


def kept_by_wandb(folder: Path) -> dict[int, dict[str, float]]:
    """What the files of a run say that were kept for ``wandb sync``, by step."""
    found: dict[int, dict[str, float]] = {}
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for data in records(file.read_bytes()):
            record = wandb_internal_pb2.Record()  # type: ignore[attr-defined]
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                found[record.history.step.num] = {key: value for key, value in items.items() if key[:1] != "_"}
    return found


def test_a_stopped_run_goes_on_as_the_same_run_in_both(tmp_path: Path) -> None:
    source, run = config_file(tmp_path), tmp_path / "my run"
    both = ["--track", "mlflow", "--track", "wandb", "--workers", "1"]
    done = ask("run", source, "-s", "rounds=2", *both, "--out", "my run", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nmlflow ui --backend-store-uri 'sqlite:///my run/mlflow.db'\n" in done.stdout
    assert "\nwandb sync 'my run/wandb/offline-run-" in done.stdout
    for again in (["-s", "rounds=3"], []):  # the second time there is nothing left to run
        done = ask("run", "--resume", "my run", *again, *both, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    expected = said(run)
    (kept,) = runs_in(run)
    assert (kept.info.status, kept.info.run_name) == ("FINISHED", "my run")
    assert (kept.data.params["rounds"], kept.data.params["clients"]) == ("2", "int8:2, float32:2")
    client = MlflowClient(tracking_uri=f"sqlite:///{run / DATABASE}")
    for tag in expected[3]:
        curve = client.get_metric_history(kept.info.run_id, tag.replace("·", "-"))
        assert {one.step: one.value for one in curve} == {n: one[tag] for n, one in expected.items() if tag in one}, tag
        assert len(curve) == len({one.step for one in curve}), "no round twice"
    assert kept_by_wandb(run) == {number: pytest.approx(values) for number, values in expected.items()}
    assert len({path.name for path in run.glob("wandb/offline-run-*/*.wandb")}) == 1, "one run, by its id"


def test_runs_of_a_comparison_share_a_store(tmp_path: Path) -> None:
    source = config_file(tmp_path, rounds=1)
    arguments = ["compare", str(source), "--seeds", "0", "--workers", "2", "--out", "both", "--methods"]
    assert ask(*arguments, "fedavg", cwd=tmp_path).returncode == 0
    for _ in range(2):  # the second time there is nothing to send
        done = ask(*arguments, "fedavg,local", "--track", "mlflow", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith("\nmlflow ui --backend-store-uri sqlite:///both/mlflow.db\n")
        kept = runs_in(tmp_path / "both")
        assert [(one.info.run_name, one.info.status) for one in kept] == [
            ("fedavg-seed0", "FINISHED"),
            ("local-seed0", "FINISHED"),
        ]
        assert kept[0].data.metrics["round/seconds"] == said(tmp_path / "both" / "fedavg-seed0")[1]["round/seconds"]
