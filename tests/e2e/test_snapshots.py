"""Samples of weights that whole runs keep: of whom, and that they change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import prowd
from prowd.config.schema import load_config
from prowd.errors import RunError
from prowd.methods.common import initial_state
from prowd.numbers.quantize import QTensor, ternarize
from prowd.runs import snapshots
from prowd.runs.build import as_used, assemble, load_data
from prowd.runs.snapshots import (
    BLOCKS,
    MODEL,
    client_files,
    read_snapshot,
    server_files,
)
from tests.runs import outcome, run_tiny, samples
from tests.unit.scenes import INT8, same

PROWD: dict[str, Any] = {
    "method": "prowd",
    "rounds": 3,
    "clients": "float32:1, int8:2",
    "options": {"dequantizer": {"module": 4, "depth": 1, "growth": 1, "epochs": 1, "images": 2}},
}


def test_a_run_keeps_its_server_s_and_its_clients_samples(tmp_path: Path) -> None:
    path = run_tiny(tmp_path / "run", **PROWD, snapshot_entries=64).path / "snapshots"
    assert list(server_files(path)) == [0, 1, 2, 3]
    assert {round_: list(files) for round_, files in client_files(path).items()} == {
        round_: [0, 1, 2] for round_ in (1, 2, 3)
    }
    assert len(list(path.iterdir())) == 4 + 9, "and nothing else"
    first, *others = (read_snapshot(file) for file in server_files(path).values())
    assert first.client == -1
    assert not any(name.startswith(BLOCKS) for name in first.values)
    layers = [f"{layer}.weight" for layer in ("conv1", "conv2", "conv3", "fc1", "fc2")]
    for found in others:
        assert found.client == 1, "the first of the low-bit clients"
        assert [name for name in found.values if name.startswith(BLOCKS)] == [
            f"{BLOCKS}{block}/conv3.weight" for block in range(5)
        ], "as it came, and after each of four blocks"
        assert {f"{MODEL}{name}" for name in layers} < set(found.values)
        assert found.values[f"{MODEL}conv3.weight"].shape == (64,)
        came = found.values[f"{BLOCKS}0/conv3.weight"]
        assert set(came.tolist()) <= {-0.5, 0.0, 0.5}
        held = read_snapshot(client_files(path)[found.round][1])
        assert set(held.values) == set(layers)
        codes = QTensor((held.values["conv3.weight"] * INT8.steps).to(torch.int16), INT8)
        assert torch.equal(ternarize(codes).value(), came), "at the same places"


def test_the_first_sample_is_the_model_all_begin_with(tmp_path: Path) -> None:
    path = run_tiny(tmp_path / "run", rounds=1, snapshots="0").path
    config = load_config(path / "config.toml")
    federation = assemble(config, as_used(config, load_data(config))).federation
    begun = initial_state(federation.scene).model
    assert list(samples(path)) == ["round-000000"], "and of no client"
    found = read_snapshot(server_files(path / "snapshots")[0])
    assert found.shapes == {f"{MODEL}{name}": list(tensor.shape) for name, tensor in begun.items()}
    assert list(found.values) == list(found.shapes), "in the network's order"
    small = {name: tensor.flatten() for name, tensor in begun.items() if tensor.numel() <= 2048}
    assert len(small) > 5
    assert same(small, {name: found.values[f"{MODEL}{name}"] for name in small})


@pytest.mark.parametrize("settings", [PROWD, {"method": "local", "rounds": 2}], ids=["prowd", "local"])
def test_samples_do_not_change_the_outcome(settings: dict[str, Any], tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [{}, {"snapshots": "none"}, {"snapshots": "1", "snapshot_entries": 1}]
    made = [outcome(run_tiny(tmp_path / f"run{n}", **settings, **change).path) for n, change in enumerate(changes)]
    clients, rounds = len(made[0]["rounds"][0]["bytes"]["clients"]), settings["rounds"]
    assert [len(found.pop("samples")) for found in made] == [(clients + 1) * rounds + 1, 0, clients + 1]
    assert made[0] == made[1] == made[2]
    assert not (tmp_path / "run1" / "snapshots").exists()


def test_selection_alone_lifts_nothing(tmp_path: Path) -> None:
    settings = {key: value for key, value in PROWD.items() if key != "options"}
    path = run_tiny(tmp_path / "run", **{**settings, "method": "prowd-swa", "rounds": 1}).path / "snapshots"
    found = read_snapshot(server_files(path)[1])
    assert found.client == -1
    assert all(name.startswith(MODEL) for name in found.values)


def test_a_run_that_was_begun_without_goes_on_with_samples(tmp_path: Path) -> None:
    """As those are that an earlier version began: their config.toml does not know the setting."""
    path = run_tiny(tmp_path / "run", rounds=1, snapshots="none").path
    config = path / "config.toml"
    lines = [line for line in config.read_text("utf-8").splitlines(keepends=True) if not line.startswith("snapshot")]
    config.write_text("".join(lines), "utf-8")
    prowd.run(resume=path, rounds=2, workers=1)
    assert load_config(config).snapshots == "auto"
    assert list(server_files(path / "snapshots")) == [2], "what is past is past"


def test_a_disk_that_is_full_ends_the_run_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(snapshots, "atomic_write", full)
    for when in ("0", "1"):
        path = tmp_path / f"run{when}"
        with pytest.raises(RunError, match=rf"^{path}/snapshots cannot be written: .*No space left on device$"):
            run_tiny(path, rounds=1, snapshots=when)
