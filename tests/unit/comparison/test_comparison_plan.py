"""What a comparison will run, and all that is refused before it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from prowd.comparison import ComparisonObserver, Plan, PlannedRun, make_plan, whole
from prowd.config.options import all_options
from prowd.config.schema import load_config
from prowd.errors import ConfigError, DataError, ProwdError, RunError
from prowd.methods import find_method
from prowd.runs.read import read_plan
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


def begin(found: Plan) -> None:
    """Leave of every run what is there once it has begun."""
    for run in found.runs:
        run.path.mkdir(parents=True)
        (run.path / "config.toml").write_text(run.config.toml(), "utf-8")


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
    assert make_plan(source, {"rounds": 3}, ["fedavg"], [0]).path == path, "3 is what the file says"
    source.write_text(f'seed = 9\nmethod = "local"\n{source.read_text("utf-8")}', "utf-8")
    assert plan(source, "fedavg").path == path


@pytest.mark.parametrize(
    "settings", [{"rounds": 4}, {"options.weighting": "uniform"}, {"float32.lr": 0.1}, {"name": "x"}]
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
    with pytest.raises(ConfigError, match=rf"^{key}: a comparison sets it for each run; accepted: --{key}s$"):
        make_plan(source, {key: 1}, ["fedavg"], [0])


@pytest.mark.parametrize(
    ("methods", "seeds", "message"),
    [
        ([], [0], r"^methods: there are none; accepted: one or more, each once$"),
        (["fedavg"], [], r"^seeds: there are none; accepted: one or more, each once$"),
        (["local", "fedavg", "local"], [0], r"^methods: local is there twice; accepted: "),
        (["fedavg"], [2, 1, 2], r"^seeds: 2 is there twice; accepted: "),
        (["fedavgg"], [0], r"^method: 'fedavgg' is unknown; accepted: local, .*did you mean 'fedavg'"),
        (["fedavg", "own.py:Twin"], [0], r"^method: own.py:Twin has the name 'fedavg' of another method; accepted: "),
        (["own.py:Mine", "own.py:Also"], [0], r"^methods: mine is there twice; accepted: "),
        (["own.py:Mine", "./own.py:Mine"], [0], r"^methods: mine is there twice; accepted: "),
        (["fedavg"], [0, -1], r"^seed: -1 is wrong; accepted: greater than or equal to 0"),
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
    with pytest.raises(
        ConfigError, match=r"^options.tau: none of the methods has such an option; accepted: mu, weighting$"
    ):
        make_plan(source, {"options.tau": 0.9}, ["local", "fedavg", "fedprox"], [0])
    with pytest.raises(ConfigError, match=r"^options.tau: none .* accepted: none$"):
        make_plan(source, {"options.tau": 0.9}, ["local"], [0])


def test_an_option_with_a_name_goes_to_that_method_and_its_ablations(source: Path) -> None:
    settings = {"options.prowd.tau": 0.9, "options.fedprox.mu": 0.25}
    found = make_plan(source, settings, ["fedavg", "prowd", "prowd-deq"], [0])
    assert options(found) == {"fedavg": {}, "prowd": {"tau": 0.9}, "prowd-deq": {"tau": 0.9}}
    with pytest.raises(ConfigError, match=r"^options.prowd.tau: 2 is wrong; accepted: less than or equal to 1"):
        make_plan(source, {"options.prowd.tau": 2}, ["fedavg"], [0])


def test_an_own_method_is_compared_by_its_name(source: Path, own: Path) -> None:
    found = make_plan(source, {"options.power": 3}, ["fedavg", "own.py:Mine"], [4])
    assert options(found) == {"fedavg": {}, "mine": {"power": 3}}
    run = found.runs[1]
    assert (run.method, run.config.method) == ("mine", f"{own}:Mine")
    assert run.path.name == "mine-seed4"


def test_an_own_method_has_a_table_of_its_own(source: Path, own: Path) -> None:
    found = make_plan(source, {"options.mine.power": 3}, ["fedavg", "own.py:Mine"], [0])
    assert options(found) == {"fedavg": {}, "mine": {"power": 3}}
    with pytest.raises(ConfigError, match=r"^options.mine: none of the methods has such an option"):
        make_plan(source, {"options.mine.power": 3}, ["fedavg"], [0])


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
        ({}, ["fedavg", "prowd", "own.py:Late"], "^not today$"),
    ],
)
def test_an_error_of_any_method_is_found_before_anything_is_written(
    settings: dict[str, Any], methods: list[str], message: str, source: Path, own: Path, tmp_path: Path
) -> None:
    before = files(tmp_path)
    for out in (None, tmp_path / "out"):
        for given in (None, arrays()):
            with pytest.raises((ProwdError, ValueError), match=message):
                make_plan(source, settings, methods, [0, 1], out=out, arrays=given)
    assert files(tmp_path) == before


def test_data_that_cannot_be_used_leave_nothing(source: Path, tmp_path: Path) -> None:
    before, wrong = files(tmp_path), {**arrays(), "y_test": arrays()["y_test"][:3]}
    with pytest.raises(DataError, match=r"^y_test: "):
        make_plan(source, {}, ["fedavg"], [0], arrays=wrong)
    with pytest.raises(DataError, match=r"nowhere\.npz"):
        plan(source, "fedavg", data="nowhere.npz")
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("field", "there", "here"),
    [
        ("rounds", 3, 4),
        ("clients", "'int8:2, float32:2'", "'int8:2'"),
        ("options", {"weighting": "examples"}, {"weighting": "uniform"}),
    ],
)
def test_a_run_made_with_other_settings_is_refused(
    field: str, there: object, here: object, source: Path, tmp_path: Path
) -> None:
    begin(plan(source, "fedavg", out=tmp_path / "out"))
    value = here.strip("'") if isinstance(here, str) else here
    with pytest.raises(RunError) as caught:
        make_plan(source, {field: value}, ["local", "fedavg"], [0, 1], out=tmp_path / "out")
    where = tmp_path / "out" / "fedavg-seed0"
    assert str(caught.value) == f"{where} was made with {field} = {there}, now it is {here}; name another --out"


def test_other_arrays_do_not_take_the_place_of_those_a_run_was_made_with(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = make_plan(source, {}, ["fedavg"], [0], arrays=arrays(), out=out)
    before = (out / "data.npz").read_bytes()
    begin(found)
    with pytest.raises(RunError, match=r"fedavg-seed0 was made with data_sha256 = "):
        make_plan(source, {}, ["fedavg"], [0], arrays=arrays(1), out=out)
    assert (out / "data.npz").read_bytes() == before
    make_plan(source, {}, ["fedavg"], [0], arrays=arrays(), out=out)


def test_runs_that_are_there_are_part_of_the_plan(source: Path, tmp_path: Path) -> None:
    begin(plan(source, "fedavg", out=tmp_path / "out"))
    assert len(plan(source, "fedavg", "local", seeds=(0, 1), out=tmp_path / "out").runs) == 4


def test_a_run_begun_by_another_version_is_told_of(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = plan(source, "fedavg", out=tmp_path / "out")
    begin(found)
    file = found.runs[0].path / "config.toml"
    file.write_text(file.read_text("utf-8").replace(f'"{found.config.version}"', '"0.0.1"', 1), "utf-8")
    assert load_config(file).version == "0.0.1"
    plan(source, "fedavg", out=tmp_path / "out")
    assert [record.getMessage() for record in caplog.records] == [f"{found.runs[0].path} was begun by prowd 0.0.1"]


def test_the_baseline_is_one_of_what_is_compared(tmp_path: Path) -> None:
    source = config_file(tmp_path)
    with pytest.raises(ConfigError, match=r"baseline: 'fedagv' is not compared; .* \(did you mean 'fedavg'\?\)"):
        make_plan(source, {}, ["fedavg", "local"], [0], baseline="fedagv")
    assert make_plan(source, {}, ["local", "fedavg"], [0]).baseline == "fedavg"
    assert make_plan(source, {}, ["local", "fedprox"], [0]).baseline == "local", "the first, where there is no FedAvg"
    assert make_plan(source, {}, ["local", "fedprox"], [0], baseline="fedprox").baseline == "fedprox"


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    source = config_file(tmp_path)
    with pytest.raises(RunError, match="is not a directory; name another --out"):
        make_plan(source, {}, ["fedavg"], [0], out=source)


def test_a_default_that_is_spelt_out_leads_to_the_same_directory(source: Path) -> None:
    assert plan(source, "fedavg").path == plan(source, "fedavg", uplink="ternary").path
    assert plan(source, "fedavg").path != plan(source, "fedavg", uplink="native").path


def test_a_comparison_of_an_earlier_version_is_found_again() -> None:
    assert make_plan("quick", {}, ["fedavg"], [0]).path == Path("runs/compare-quick-10bec0c1")
    assert make_plan("quick", {"rounds": 5}, ["fedavg"], [0]).path == Path("runs/compare-quick-622a7371")
    others: list[dict[str, Any]] = [
        {"snapshots": "none"},
        {"snapshots": "0, 3"},
        {"snapshot_entries": 9},
        {"snapshots": "auto"},
    ]
    paths = [make_plan("quick", settings, ["fedavg"], [0]).path.name for settings in others]
    assert set(paths) == {"compare-quick-10bec0c1"}, "they leave the results as they are"
    assert make_plan("quick", {"validation": 9}, ["fedavg"], [0]).path.name != "compare-quick-10bec0c1"


# comparison.json


def written(found: Plan) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((found.path / "comparison.json").read_text("utf-8"))
    return facts


def test_the_plan_is_written_before_its_runs_begin_and_its_failures_after(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = plan(source, "local", "fedavg", seeds=(3, 1), out=tmp_path / "new" / "out")
    seen: list[dict[str, Any]] = []

    def execute(runs: list[PlannedRun], *_: object, **__: object) -> dict[PlannedRun, str]:
        seen.append(written(found))
        assert [run.path.name for run in runs] == [run["folder"] for run in seen[0]["runs"]]
        return {runs[1]: "it rained"}

    monkeypatch.setattr(whole, "execute", execute)
    whole.make(found, 1, ComparisonObserver())
    named = [("local", 3), ("fedavg", 3), ("local", 1), ("fedavg", 1)]
    runs = [{"folder": f"{method}-seed{seed}", "method": method, "seed": seed} for method, seed in named]
    assert seen == [{"name": "tiny", "baseline": "fedavg", "runs": runs, "failures": {}}]
    assert written(found) == {**seen[0], "failures": {"fedavg-seed3": "it rained"}}
    read = read_plan(found.path)
    assert read is not None
    assert read.runs == {run["folder"]: (run["method"], run["seed"]) for run in runs}
    assert (read.baseline, read.failures) == ("fedavg", {"fedavg-seed3": "it rained"})


def test_a_failure_is_forgotten_when_its_run_is_tried_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = plan(source, "fedavg", out=tmp_path / "out")
    failures = [{found.runs[0]: "it rained"}, {}]
    during: list[dict[str, str]] = []

    def execute(*_: object, **__: object) -> dict[PlannedRun, str]:
        during.append(written(found)["failures"])
        return failures.pop(0)

    monkeypatch.setattr(whole, "execute", execute)
    for after in ({"fedavg-seed0": "it rained"}, {}):
        whole.make(found, 1, ComparisonObserver())
        assert written(found)["failures"] == after
    assert during == [{}, {}]


def test_a_run_without_accuracies_is_among_the_failures(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = plan(source, "fedavg", out=tmp_path / "out")
    begin(found)
    facts: dict[str, Any] = {"rounds": 3, "accuracy": {}, "bytes": {}, "weights_sha256": ""}
    facts["average_accuracy"] = {"received": None, "trained": None}
    (found.runs[0].path / "summary.json").write_text(json.dumps(facts), "utf-8")
    monkeypatch.setattr(whole, "execute", lambda *_, **__: {})
    whole.make(found, 1, ComparisonObserver())
    assert list(written(found)["failures"]) == ["fedavg-seed0"]
    assert "reports no accuracy" in written(found)["failures"]["fedavg-seed0"]


def test_a_comparison_of_which_no_run_begins_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(*_: object, **__: object) -> dict[PlannedRun, str]:
        raise RunError("a process ended before it began")

    monkeypatch.setattr(whole, "execute", execute)
    for out, kept in (("new", False), ("old", True)):
        if kept:
            begin(plan(source, "fedavg", out=tmp_path / out))
        with pytest.raises(RunError, match="ended before it began"):
            whole.make(plan(source, "fedavg", out=tmp_path / out), 1, ComparisonObserver())
        assert (tmp_path / out).exists() == kept


def test_a_place_that_cannot_be_written_is_named(source: Path, tmp_path: Path) -> None:
    found = plan(source, "fedavg", out=source / "out")
    with pytest.raises(RunError, match=rf"^{source / 'out'} cannot be written: "):
        whole.make(found, 1, ComparisonObserver())


def test_a_method_whose_file_has_changed_is_not_taken_for_made(source: Path, own: Path, tmp_path: Path) -> None:
    found = plan(source, f"{own}:Mine", out=tmp_path / "out")
    begin(found)
    own.write_text(OWN.replace("power: int = 2", "power: int = 2  # the same, but who knows"), "utf-8")
    plan(source, f"{own}:Mine", out=tmp_path / "out")  # nothing was made yet
    (found.runs[0].path / "rounds.jsonl").write_text("{}", "utf-8")
    with pytest.raises(RunError, match=r"own.py has changed since .*mine-seed0 was made; remove that folder, or name"):
        plan(source, f"{own}:Mine", out=tmp_path / "out")


def test_a_summary_that_lacks_something_is_no_summary(source: Path, tmp_path: Path) -> None:
    (run,) = plan(source, "fedavg", out=tmp_path / "out").runs
    run.path.mkdir(parents=True)
    (run.path / "summary.json").write_text('{"rounds": 3}', "utf-8")
    assert not run.is_finished
