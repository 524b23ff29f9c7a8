"""prowd.run as scripts use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import prowd
from prowd.config.schema import load_config
from prowd.errors import ConfigError, DataError, RunError
from prowd.nets import Conv, Flatten, Linear, MaxPool
from prowd.runs.directory import weights_hash
from tests.runs import TINY, arrays, data_file, outcome, rounds, run_tiny, summary


def floats(seed: int = 0) -> dict[str, NDArray[Any]]:
    found = arrays(seed)
    return {name: (array / 127.5 - 1).astype(np.float32) if name[0] == "x" else array for name, array in found.items()}


def own_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 3, bias=False),
    )


def test_a_run_returns_what_it_wrote(tmp_path: Path) -> None:
    result = prowd.run("quick", out=tmp_path / "run", workers=1, **{**TINY, "float32": {"lr": 0.1}, "seed": 3})
    assert result.path == tmp_path / "run"
    assert result.rounds == [json.loads(line) for line in (result.path / "rounds.jsonl").read_text().splitlines()]
    assert result.summary == summary(result.path)
    assert [line["round"] for line in result.rounds] == [1, 2, 3]
    assert result.summary["weights_sha256"] == weights_hash(result.weights)
    config = load_config(result.path / "config.toml")
    assert (config.seed, config.float32.lr, config.float32.clip) == (3, 0.1, 2.0)
    assert sum(tensor.numel() for tensor in result.weights.values()) > 1000
    assert set(result.summary["accuracy"]["trained"]) == {"int8", "float32"}


def test_a_path_may_be_text(tmp_path: Path) -> None:
    result = prowd.run(out=str(tmp_path / "run"), data=arrays(), workers=1, **{**TINY, "rounds": 1})
    again = prowd.run(resume=str(tmp_path / "run"), data=arrays(), workers=1, rounds=2)
    assert (len(result.rounds), len(again.rounds)) == (1, 2)


def test_the_file_the_arrays_and_tensors_are_the_same_data(tmp_path: Path) -> None:
    by_file = run_tiny(tmp_path / "file")
    by_arrays = prowd.run(out=tmp_path / "arrays", data=arrays(), workers=1, **TINY)
    tensors = {name: torch.from_numpy(array) for name, array in arrays().items()}
    by_tensors = prowd.run(out=tmp_path / "tensors", data=tensors, workers=1, **TINY)
    found = outcome(by_file.path)
    assert outcome(by_arrays.path) == found
    assert outcome(by_tensors.path) == found
    names = [load_config(result.path / "config.toml").data for result in (by_file, by_arrays, by_tensors)]
    assert names == [str(tmp_path / "tiny.npz"), "arrays", "arrays"]


def test_a_run_learns_from_the_arrays_it_is_given(tmp_path: Path) -> None:
    settings = {**TINY, "rounds": 6, "steps": 20, "clients": "int8:1, float32:1", "width": 1.0}
    result = prowd.run(out=tmp_path / "run", data=arrays(), workers=1, **settings)
    assert result.summary["accuracy"]["trained"]["float32"] > 0.6, "three classes: chance is a third"


def test_float_images_are_accepted(tmp_path: Path) -> None:
    result = prowd.run(out=tmp_path / "run", data=floats(), workers=1, **TINY)
    assert len(result.rounds) == 3
    doubles = {name: array.astype(np.float64) if name[0] == "x" else array for name, array in floats().items()}
    same = prowd.run(out=tmp_path / "same", data=doubles, workers=1, **TINY)
    assert same.summary["weights_sha256"] == result.summary["weights_sha256"]


def test_two_workers_with_arrays_and_an_own_model(tmp_path: Path) -> None:
    net, settings = own_net(), {**TINY, "clients": "int6:1, int8:2"}
    one = prowd.run(out=tmp_path / "one", data=floats(), model=net, workers=1, **settings)
    two = prowd.run(out=tmp_path / "two", data=floats(), model=net, workers=2, **settings)
    assert outcome(two.path) == outcome(one.path)
    config = load_config(one.path / "config.toml")
    assert config.model == "custom"
    assert config.layers == (
        Conv("0", 1, 4, (3, 3), (1, 1), (1, 1), relu=True),
        MaxPool((2, 2), (2, 2)),
        Flatten(),
        Linear("4", 64, 3, relu=False),
    )
    assert one.weights["0.weight"].shape == net[0].weight.shape
    assert one.weights["4.weight"].shape == net[4].weight.shape
    longer = prowd.run(resume=one.path, data=floats(), workers=1, rounds=4)
    assert len(longer.rounds) == 4


def test_an_own_model_for_other_classes_is_refused(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False))
    with pytest.raises(ConfigError, match="10 logits for the 3 classes"):
        prowd.run(out=tmp_path / "run", data=arrays(), model=net, workers=1, **TINY)
    assert not (tmp_path / "run").exists()


def test_a_bias_is_refused_or_dropped(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    settings = {"data": arrays(), "model": net, "workers": 1, **TINY, "rounds": 1}
    with pytest.raises(ConfigError, match=r"^bias: 1 has a bias.* or bias='drop'"):
        prowd.run(out=tmp_path / "run", **settings)
    with pytest.raises(ConfigError, match=r"^bias: 1 has a bias.* or bias='drop'"):
        prowd.compare(out=tmp_path / "table", **settings)
    path = prowd.run(out=tmp_path / "run", bias="drop", **settings).path
    assert load_config(path / "config.toml").bias == "drop"


def test_a_run_on_arrays_resumes_with_the_same_arrays_only(tmp_path: Path) -> None:
    path = prowd.run(out=tmp_path / "run", data=arrays(), workers=1, **TINY).path
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(DataError, match="content hash"):
        prowd.run(resume=path, data=arrays(seed=1), workers=1, rounds=4)
    with pytest.raises(ConfigError, match=r"^data: "):
        prowd.run(resume=path, workers=1, rounds=4)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    prowd.run(resume=path, data=arrays(), workers=1, rounds=4)
    whole = prowd.run(out=tmp_path / "whole", data=arrays(), workers=1, **{**TINY, "rounds": 4})
    assert outcome(path) == outcome(whole.path)


def test_a_file_that_changed_is_refused_on_resume(tmp_path: Path) -> None:
    path = run_tiny(tmp_path / "run").path
    data_file(tmp_path).unlink()
    np.savez(tmp_path / "tiny.npz", allow_pickle=False, **arrays(seed=1))
    with pytest.raises(DataError, match="content hash"):
        prowd.run(resume=path, workers=1, rounds=4)
    assert len(rounds(path)) == 3


@pytest.mark.parametrize(
    ("change", "array"),
    [
        ({"x_train": np.zeros((90, 8, 8), np.uint8)}, "x_train"),
        ({"x_train": np.zeros((90, 1, 8, 8), np.int32)}, "x_train"),
        ({"x_test": np.full((18, 1, 8, 8), 2.0, np.float32)}, "x_test"),
        ({"y_train": np.zeros(89, np.int64)}, "y_train"),
        ({"y_test": np.full(18, 7)}, "y_test"),
        ({"y_test": np.full(18, -1)}, "y_test"),
    ],
)
def test_arrays_that_make_no_data_set_are_refused(change: dict[str, Any], array: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"^{array}: .*accepted: "):
        prowd.run(out=tmp_path / "run", data={**arrays(), **change}, workers=1, **TINY)
    assert not (tmp_path / "run").exists()


def test_arrays_are_all_or_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^data: "):
        prowd.run(out=tmp_path / "run", data={"x_train": arrays()["x_train"]}, workers=1, **TINY)


def test_settings_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    for settings in ({"nonsense": 1}, {"clients": "int8:9999"}, {"method": "sgd"}):
        with pytest.raises(ConfigError):
            prowd.run(out=tmp_path / "run", data=arrays(), workers=1, **{**TINY, **settings})
    assert not (tmp_path / "run").exists()


def test_resume_goes_with_neither_out_nor_model(tmp_path: Path) -> None:
    path = run_tiny(tmp_path / "run").path
    refused: list[tuple[str, dict[str, Any]]]
    refused = [("resume", {"out": tmp_path / "other"}), ("resume", {"model": own_net()}), ("seed", {"seed": 4})]
    for field, settings in refused:
        with pytest.raises(ConfigError, match=f"^{field}: "):
            prowd.run(resume=path, **settings)
    with pytest.raises(RunError, match="not a run directory"):
        prowd.run(resume=tmp_path / "other")


def test_progress_is_printed_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_tiny(tmp_path / "quiet")
    assert capsys.readouterr().out == ""
    prowd.run(resume=tmp_path / "quiet", rounds=4, workers=1, progress=True)
    assert "round 4/4" in capsys.readouterr().out


def test_errors_share_a_base() -> None:
    with pytest.raises(prowd.ProwdError):
        prowd.run("no such preset")
