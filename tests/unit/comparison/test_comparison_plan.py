"""What a comparison will run, and all that is refused before it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from prowd.comparison import Plan, make_plan
from prowd.config.options import all_options
from prowd.errors import ConfigError, ProwdError, RunError
from prowd.methods import find_method
from tests.runs import arrays, config_file

OWN = """
from dataclasses import dataclass
from typing import ClassVar
from prowd.methods import FedAvg, ProWD

@dataclass(frozen=True)
class Mine(FedAvg):
    power: int = 2
    name: ClassVar[str] = "mine"

@dataclass(frozen=True)
class Also(FedAvg):
    name: ClassVar[str] = "mine"

@dataclass(frozen=True)
class Twin(FedAvg):
    name: ClassVar[str] = "fedavg"

@dataclass(frozen=True)
class Late(FedAvg):
    name: ClassVar[str] = "late"

    def init(self, scene):
        raise ValueError("not today")
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration in an otherwise empty current folder."""
    monkeypatch.chdir(tmp_path)
    return config_file(tmp_path)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN, "utf-8")
    return path


def plan(source: Path, *methods: str, seeds: tuple[int, ...] = (0,), out: Path | None = None, **settings: Any) -> Plan:
    return make_plan(source, settings, methods, seeds, out=out)


def options(found: Plan) -> dict[str, dict[str, Any]]:
    """What differs from the defaults."""
    changed: dict[str, dict[str, Any]] = {}
    for run in found.runs:
        defaults = all_options(find_method(run.config.method)())
        changed[run.method] = {key: value for key, value in run.config.options.items() if value != defaults[key]}
    return changed


def files(folder: Path) -> dict[str, bytes | None]:
    """All there is in a folder, but for what Python makes of its modules."""
    found = [path for path in folder.rglob("*") if "__pycache__" not in path.parts]
    return {str(path): path.read_bytes() if path.is_file() else None for path in found}


def test_there_is_a_run_for_every_method_and_seed(source: Path, tmp_path: Path) -> None:
    found = plan(source, "fedavg", "local", seeds=(3, 1), out=tmp_path / "out")
    wanted = [("fedavg", 3), ("local", 3), ("fedavg", 1), ("local", 1)]
    assert [(run.method, run.seed) for run in found.runs] == wanted, "seed by seed: all methods have some early on"
    assert [(run.config.method, run.config.seed) for run in found.runs] == wanted
    assert [run.path for run in found.runs] == [tmp_path / "out" / f"{name}-seed{seed}" for name, seed in wanted]
    assert all(run.config.data_sha256 for run in found.runs)
    assert not (tmp_path / "out").exists()


def test_the_same_settings_lead_to_the_same_directory(source: Path) -> None:
    path = plan(source, "fedavg").path
    assert path.parent == Path("runs")
    assert path.name.startswith("compare-tiny-")
    assert plan(source, "local", "fedavg", seeds=(4, 5)).path == path
    assert plan(source, "fedavg", rounds=3).path == path, "3 is what the file says"
    assert plan(source, "fedavg", uplink="ternary").path == path, "the default, spelt out"
    source.write_text(f'seed = 9\nmethod = "local"\n{source.read_text("utf-8")}', "utf-8")
    assert plan(source, "fedavg").path == path


def test_the_baseline_is_one_of_what_is_compared(tmp_path: Path) -> None:
    source = config_file(tmp_path)
    with pytest.raises(ConfigError, match=r"^baseline: 'fedagv'"):
        make_plan(source, {}, ["fedavg", "local"], [0], baseline="fedagv")
    assert make_plan(source, {}, ["local", "fedavg"], [0]).baseline == "fedavg"
    assert make_plan(source, {}, ["local", "fedprox"], [0]).baseline == "local", "the first, where there is no FedAvg"
    assert make_plan(source, {}, ["local", "fedprox"], [0], baseline="fedprox").baseline == "fedprox"


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    source = config_file(tmp_path)
    with pytest.raises(RunError, match="is not a directory; name another --out"):
        make_plan(source, {}, ["fedavg"], [0], out=source)


def test_a_comparison_of_an_earlier_version_is_found_again() -> None:
    assert make_plan("quick", {}, ["fedavg"], [0]).path == Path("runs/compare-quick-10bec0c1")
    assert make_plan("quick", {"rounds": 5}, ["fedavg"], [0]).path == Path("runs/compare-quick-622a7371")
    others: list[dict[str, Any]] = [{"snapshots": "none"}, {"snapshots": "0, 3"}, {"snapshot_entries": 9}]
    paths = [make_plan("quick", settings, ["fedavg"], [0]).path.name for settings in others]
    assert set(paths) == {"compare-quick-10bec0c1"}, "they leave the results as they are"
    assert make_plan("quick", {"validation": 9}, ["fedavg"], [0]).path.name != "compare-quick-10bec0c1"


@pytest.mark.parametrize(
    "settings",
    [{"rounds": 4}, {"weighting": "uniform"}, {"float32.lr": 0.1}, {"name": "x"}, {"uplink": "native"}],
)
def test_other_settings_lead_to_another_directory(settings: dict[str, Any], source: Path) -> None:
    assert make_plan(source, settings, ["fedavg"], [0]).path != plan(source, "fedavg").path


def test_other_arrays_and_other_models_lead_to_another_directory(source: Path) -> None:
    inner = [nn.Linear(64, size, bias=False) for size in (4, 5)]
    nets = [nn.Sequential(nn.Flatten(), one, nn.Linear(one.out_features, 3, bias=False)) for one in inner]
    given: list[dict[str, Any]] = [{}, {"arrays": arrays()}, {"arrays": arrays(1)}, *({"model": net} for net in nets)]
    paths = [make_plan(source, {}, ["fedavg"], [0], **one).path for one in given]
    assert len(set(paths)) == len(paths)
    assert make_plan(source, {}, ["fedavg"], [0], arrays=arrays()).path == paths[1]


def test_arrays_are_kept_beside_the_runs(source: Path) -> None:
    found = make_plan(source, {}, ["fedavg"], [0], arrays=arrays())
    file = found.path / "data.npz"
    assert found.config.data == str(file.resolve())
    with np.load(file) as kept:
        assert all(np.array_equal(kept[name], array) for name, array in arrays().items())
    assert found.config.data_sha256 == plan(source, "fedavg").config.data_sha256, "which has the same data in a file"


@pytest.mark.parametrize("key", ["method", "seed"])
def test_what_a_comparison_sets_itself_is_refused(key: str, source: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^{key}: .*accepted: --{key}s$"):
        make_plan(source, {key: 1}, ["fedavg"], [0])


@pytest.mark.parametrize(
    ("methods", "seeds", "message"),
    [
        ([], [0], "^methods: there are none"),
        (["fedavg"], [], "^seeds: there are none"),
        (["local", "fedavg", "local"], [0], "^methods: local"),
        (["fedavg"], [2, 1, 2], "^seeds: 2"),
        (["fedavgg"], [0], "^method: 'fedavgg'"),
        (["fedavg", "own.py:Twin"], [0], "^method: own.py:Twin has the name 'fedavg'"),
        (["own.py:Mine", "own.py:Also"], [0], "^methods: mine"),
        (["own.py:Mine", "./own.py:Mine"], [0], "^methods: mine"),
        (["fedavg"], [0, -1], "^seed: -1"),
    ],
)
def test_methods_and_seeds_that_cannot_be_compared(
    methods: list[str], seeds: list[int], message: str, source: Path, own: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_plan(source, {}, methods, seeds)


def test_an_option_goes_to_the_methods_that_have_it(source: Path) -> None:
    found = make_plan(source, {"options.tau": 0.9}, ["fedavg", "prowd", "prowd-swa"], [0])
    assert options(found) == {"fedavg": {}, "prowd": {"tau": 0.9}, "prowd-swa": {"tau": 0.9}}


def test_an_option_that_none_has_is_refused(source: Path) -> None:
    with pytest.raises(ConfigError, match=r"^options.tau: .*accepted: mu$"):
        make_plan(source, {"options.tau": 0.9}, ["local", "fedavg", "fedprox"], [0])
    with pytest.raises(ConfigError, match=r"^options.mine: "):
        make_plan(source, {"options.mine.power": 3}, ["fedavg"], [0])


def test_an_option_with_a_name_goes_to_that_method_and_its_ablations(source: Path) -> None:
    settings = {"options.prowd.tau": 0.9, "options.fedprox.mu": 0.25}
    found = make_plan(source, settings, ["fedavg", "prowd", "prowd-deq", "prowd-swa"], [0])
    expected: dict[str, dict[str, Any]] = {"fedavg": {}, "prowd": {"tau": 0.9}, "prowd-deq": {}}
    assert options(found) == {**expected, "prowd-swa": {"tau": 0.9}}, "prowd-deq has no masks"
    with pytest.raises(ConfigError, match=r"^options.prowd.tau: 2"):
        make_plan(source, {"options.prowd.tau": 2}, ["fedavg"], [0])


@pytest.mark.parametrize("option", ["options.power", "options.mine.power"])
def test_an_own_method_is_compared_by_its_name(option: str, source: Path, own: Path) -> None:
    found = make_plan(source, {option: 3}, ["fedavg", "own.py:Mine"], [4])
    assert options(found) == {"fedavg": {}, "mine": {"power": 3}}
    run = found.runs[1]
    assert (run.method, run.config.method) == ("mine", f"{own}:Mine")
    assert run.path.name == "mine-seed4"


@pytest.mark.parametrize(
    ("settings", "methods", "message"),
    [
        ({"buffer": 0}, ["fedavg", "prowd"], "^buffer: 0 images"),
        ({"options.ladder": "int8, float32"}, ["fedavg", "prowd"], "^ladder: 'int8, float32' has no rung for int2"),
        ({"uplink": "native", "clients": "int6:2"}, ["local", "prowd-deq"], "^ladder: .* has no rung for int6"),
        ({"options.prowd.tau": 0}, ["fedavg", "prowd"], "^options.prowd.tau: 0 is wrong"),
        ({"options": 3}, ["fedavg"], "^options: 3 is wrong"),
        ({"test_examples": 19}, ["fedavg"], "^test_examples: 19 of .* accepted: 1 to 18"),
        ({"clients": "int8:99"}, ["fedavg"], "^clients: 99"),
        ({"data": "nowhere.npz"}, ["fedavg"], r"nowhere\.npz"),
        ({}, ["fedavg", "prowd", "own.py:Late"], "^not today$"),
    ],
)
def test_an_error_of_any_method_is_found_before_anything_is_written(
    settings: dict[str, Any], methods: list[str], message: str, source: Path, own: Path, tmp_path: Path
) -> None:
    before = files(tmp_path)
    for out in (None, tmp_path / "out"):
        for given in (None, arrays()) if "data" not in settings else (None,):
            with pytest.raises((ProwdError, ValueError), match=message):
                make_plan(source, settings, methods, [0, 1], out=out, arrays=given)
    assert files(tmp_path) == before
