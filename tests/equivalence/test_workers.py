"""The number of workers is a matter of speed: the same seed gives the same bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import prowd
from prowd.device.scene import Scene
from prowd.federation.transport import InProcess
from prowd.methods import FedAvg, ServerState
from prowd.runs.run import RunResult
from prowd.wire import Parcel, Update
from tests.runs import TINY, arrays, expected, outcome, rounds, run_tiny

SCENES: dict[str, dict[str, Any]] = {
    "fedavg": {
        "clients": "int4:1, int8:2, float32:3",
        "cohort": 4,
        "partition": "dirichlet",
        "alpha": 0.7,
        "augment": "crop, flip, rotate",
        "seed": 5,
    },
    "prowd-plus": {
        "method": "prowd-plus",
        "clients": "int4:1, int8:2, float32:2",
        "cohort": 4,
        "decay": "cosine",
        "seed": 7,
    },
    "local": {"method": "local", "clients": "int6:2, int8:2", "cohort": 3, "rounds": 4, "seed": 6},
}


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("scene", SCENES)
def test_workers_do_not_change_the_outcome(scene: str, workers: int, tmp_path: Path) -> None:
    settings = SCENES[scene]
    result = run_tiny(tmp_path / "run", workers=workers, **settings)
    found = outcome(result.path)
    assert found == expected(**settings)
    assert bool(found["memories"]) == (scene == "local")
    nobody: dict[str, list[Any]] = {"lost": [], "refused": [], "limited": []}
    assert all(line["clients"] == {"asked": settings["cohort"], **nobody} for line in found["rounds"])


PEOPLE: dict[str, Any] = {"partition": "natural", "test_clients": 1, "own_test": 0.2, "clients": "int8:2, float32:2"}


def by_person(out: Path, workers: int, **settings: Any) -> RunResult:
    """A tiny run of five people, one of whom is never seen in training."""
    data = {**arrays(), "client": np.arange(90) % 5}
    return prowd.run("quick", out=out, workers=workers, data=data, **{**TINY, **PEOPLE, **settings})


def test_neither_workers_nor_a_resume_change_who_holds_what(tmp_path: Path) -> None:
    for name, workers, seed in (("one", 1, 3), ("two", 2, 3), ("other", 1, 4)):
        by_person(tmp_path / name, workers, seed=seed)
    by_person(tmp_path / "short", 2, seed=3, rounds=1)
    data = {**arrays(), "client": np.arange(90) % 5}
    prowd.run(resume=tmp_path / "short", rounds=3, workers=2, data=data)
    assert outcome(tmp_path / "one") == outcome(tmp_path / "two") == outcome(tmp_path / "short")
    assert outcome(tmp_path / "one") != outcome(tmp_path / "other")


def test_replies_are_folded_in_client_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"clients": "int8:2, float32:5", "partition": "dirichlet", "seed": 8}
    in_order = expected(**settings)
    answer, aggregate = InProcess.exchange, FedAvg.aggregate
    folded: list[list[int]] = []

    def last_first(self: InProcess, parcels: Mapping[int, Parcel]) -> Iterator[tuple[int, bytes]]:
        return answer(self, dict(sorted(parcels.items(), reverse=True)))

    def watched(self: FedAvg, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
        folded.append([update.client for update in updates])
        return aggregate(self, scene, state, updates)

    monkeypatch.setattr(InProcess, "exchange", last_first)
    monkeypatch.setattr(FedAvg, "aggregate", watched)
    run_tiny(tmp_path / "run", **settings)
    assert folded == [list(range(7))] * 3
    assert outcome(tmp_path / "run") == in_order


@pytest.mark.parametrize("scene", SCENES)
def test_the_same_seed_repeats_and_another_differs(scene: str, tmp_path: Path) -> None:
    settings = SCENES[scene]
    (tmp_path / "elsewhere").mkdir()
    run_tiny(tmp_path / "elsewhere" / "again", **settings)
    assert outcome(tmp_path / "elsewhere" / "again") == expected(**settings)
    other = expected(**{**settings, "seed": settings["seed"] + 1})
    assert other["weights"] != expected(**settings)["weights"]
    assert other["rounds"] != expected(**settings)["rounds"]


def test_the_cohort_and_the_partition_matter(tmp_path: Path) -> None:
    """The runs above would prove little if their settings were not heeded."""
    base = SCENES["fedavg"]
    weights = {
        expected(**{**base, **change})["weights"]
        for change in ({}, {"cohort": 5}, {"partition": "iid"}, {"alpha": 0.1}, {"augment": "none"})
    }
    assert len(weights) == 5


def test_the_data_are_not_changed_by_a_run(tmp_path: Path) -> None:
    given, kept = arrays(), arrays()
    result = prowd.run(out=tmp_path / "run", data=given, workers=1, clients="int8:1, float32:1", rounds=2, steps=2)
    assert len(rounds(result.path)) == 2
    assert all((given[name] == kept[name]).all() for name in kept)
