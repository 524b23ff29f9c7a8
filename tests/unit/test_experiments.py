"""The experiments: their methods through FILE.py:CLASS, their plans, and what is published of a comparison."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import prowd
from experiments.__main__ import main
from experiments.masks.method import LimitedProWD, LimitedSwa, MoversSwa, RandomSwa, limited
from experiments.plans import ELSEWHERE, PLANS, Plan
from experiments.publish import lost_runs, near_levels, publish
from experiments.reading import read_evidence, read_rows
from prowd.config.schema import load_config
from prowd.errors import RunError
from prowd.federation.engine import Federation, run_round
from prowd.methods import ServerState, find_method
from prowd.numbers.bits import FLOAT32
from tests.runs import TINY, arrays

from .scenes import INT8, FakeTransport, dot, honest, liftable, same, scene

ROOT = Path(__file__).parents[2]
MASKS = tuple(f"experiments/masks/method.py:{one.__name__}" for one in (LimitedProWD, LimitedSwa, MoversSwa, RandomSwa))
OWN = sorted({*MASKS, *(method for plan in PLANS.values() for method in plan.methods if ":" in method)})
SCENE, START = scene(INT8, INT8, FLOAT32, architecture=dot(40, 5)), ServerState(1, {})


@pytest.mark.parametrize("name", OWN)
def test_a_method_of_the_experiments_makes_rounds(name: str, tmp_path: Path) -> None:
    file, _, attribute = name.partition(":")
    method = find_method(f"{ROOT / file}:{attribute}")()
    given = replace(scene(INT8, INT8, FLOAT32, architecture=liftable()), buffer=torch.zeros(4, 2, 8, 8))
    federation, state = Federation(given, method, rounds=2, cohort=3), method.init(given)
    for _ in range(2):
        before = state.model
        report, state = run_round(federation, state, FakeTransport(honest(given, method, tmp_path)))
        assert not report.clients.refused
        assert not same(state.model, before)


def movements(seed: int) -> dict[str, Tensor]:
    """Of a layer, and the same of another."""
    drawn = torch.randn(5, 40, generator=torch.Generator().manual_seed(seed))
    return {"fc.weight": drawn, "other.weight": drawn}


@pytest.mark.parametrize("fewest", [0, 1, 4, 7, 8])
@pytest.mark.parametrize("seed", range(20))
def test_no_mask_within_the_limit_has_a_greater_cosine(seed: int, fewest: int) -> None:
    random = torch.Generator().manual_seed(seed)
    low, high = (torch.randint(-3, 4, (8,), generator=random).double() for _ in range(2))
    mask = limited(low, high, fewest)

    def cosine(kept: Tensor) -> float:
        return float(torch.cosine_similarity(kept * low, high, dim=0))

    every = (torch.tensor(bits).double() for bits in itertools.product((0, 1), repeat=8) if sum(bits) >= fewest)
    assert int(mask.sum()) >= fewest
    assert cosine(mask.double()) == pytest.approx(max(map(cosine, every)), abs=1e-9)


@pytest.mark.parametrize("control", [RandomSwa, MoversSwa])
def test_controls_drop_as_much_as_the_masks_that_they_control(control: type[LimitedSwa]) -> None:
    low, high = movements(1), movements(2)
    best = LimitedSwa().masks(SCENE, START, low, high)["fc.weight"]
    mask = control().masks(SCENE, START, low, high)["fc.weight"]
    assert int(mask.kept.sum()) == int(best.kept.sum()) == 160
    assert not torch.equal(mask.kept, best.kept)
    assert mask.cosine_before == best.cosine_before
    assert mask.cosine_after < best.cosine_after
    squares = low["fc.weight"].double().square()
    assert mask.kept_movement == pytest.approx(float(squares[mask.kept].sum() / squares.sum()))
    moved = low["fc.weight"].abs()
    assert (moved[mask.kept].max() < moved[~mask.kept].min()) == (control is MoversSwa)


def test_random_masks_are_drawn_anew_by_seed_and_round_and_tensor() -> None:
    def kept(seed: int, round_: int, name: str = "fc.weight") -> Tensor:
        given, state = replace(SCENE, seed=seed), replace(START, round=round_)
        return RandomSwa().masks(given, state, movements(1), movements(2))[name].kept

    assert torch.equal(kept(0, 1), kept(0, 1))
    others = (kept(0, 2), kept(1, 1), kept(0, 1, "other.weight"))
    assert not any(torch.equal(kept(0, 1), other) for other in others)


def test_limits_count_all_entries_or_those_that_moved_and_may_keep_the_rest() -> None:
    low, high = movements(1), movements(2)
    low["fc.weight"] = low["fc.weight"] * (torch.arange(200).view(5, 40) < 50)

    def dropped(method: LimitedProWD) -> int:
        return int((~method.masks(SCENE, START, low, high)["fc.weight"].kept).sum())

    assert dropped(LimitedProWD()) == 40
    assert dropped(LimitedProWD(sparsity_of="moved")) == 10
    assert 0 < dropped(LimitedProWD(zeros="keep")) < 40
    assert dropped(LimitedProWD(sparsity=0.0)) == 0
    masks = LimitedProWD(scope="global").masks(SCENE, START, low, high).values()
    assert sum(int((~mask.kept).sum()) for mask in masks) == 80


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of three methods and two seeds, of which a run has not been finished."""
    folder = tmp_path_factory.mktemp("experiments") / "made"
    methods = ["fedavg", "fedgroupedavg", "prowd"]
    prowd.compare("quick", methods=methods, seeds=[0, 1], out=folder, data=arrays(), workers=2, **TINY)
    (folder / "prowd-seed1" / "summary.json").unlink()
    return folder


def test_what_is_published_is_read_again(made: Path, tmp_path: Path) -> None:
    publish(made, tmp_path / "mix")
    assert {path.name for path in (tmp_path / "mix").iterdir()} == {"table.md", "runs.csv", "provenance.csv"}
    found, rows = read_evidence(tmp_path / "mix"), read_rows(tmp_path / "mix" / "runs.csv")
    runs = {(method, seed) for method, those in found.outcomes.items() for seed in those}
    assert runs == {*itertools.product(("fedavg", "fedgroupedavg"), (0, 1)), ("prowd", 0)}
    first = next(row for row in rows if (row["method"], row["seed"]) == ("prowd", "0"))
    assert found.outcomes["prowd"][0].trained["int8"] == float(first["int8 trained"])
    assert found.peaks["prowd"][0] == float(first["float32 near a level"])
    assert all(len(row["weights_sha256"]) == 64 for row in rows)
    sources = read_rows(tmp_path / "mix" / "provenance.csv")
    assert sorted(row["run"] for row in sources) == sorted(f"{method}-seed{seed}" for method, seed in runs)


def run(where: Path, *arguments: str) -> object:
    """Give the command; what it ended with."""
    places = ("--runs", str(where / "runs"), "--results", str(where / "results"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["experiments", "--workers", "1", *places, *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
    return stop.value.code


def test_the_runner_makes_and_publishes_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**TINY, "rounds": 1, "data": arrays()}
    plan = Plan("?", "quick", ("local", "fedavg"), settings, against="tiny", seeds=(0,), more={"fedavg": (1,)})
    monkeypatch.setitem(PLANS, "tiny", plan)
    said: list[str] = []
    for publishing in ((), ("--publish",)):
        assert (tmp_path / "results").exists() is False, "without --publish nothing is published"
        assert not run(tmp_path, "--only", "tiny", *publishing)
        said.append(capsys.readouterr().out)
    assert "| tiny | int8 of local, with − without | 1 |  | +0.00 | too few runs |" in said[0]
    assert "| tiny | int8 of fedavg, with − without | 2 |  | +0.00 ± 0.00 | not decided |" in said[0]
    assert "nothing is missing" in said[0]
    assert said[0].partition("| comparison")[2] == said[1].partition("| comparison")[2]
    for results in (tmp_path / "runs/results", tmp_path / "results"):
        sources = read_rows(results / "tiny/provenance.csv")
        assert [row["run"] for row in sources] == ["fedavg-seed0", "fedavg-seed1", "local-seed0"]
        assert "1–2 seeds" in (results / "tiny/table.md").read_text("utf-8")


def falsified(place: Path) -> list[str]:
    """Another hash for some published runs, as if they came of other code; the table as it is."""
    rows = (place / "runs.csv").read_text("utf-8").splitlines()
    (place / "runs.csv").write_text("\n".join([rows[0], *(f"{row[:-4]}beef" for row in rows[1:])]) + "\n", "utf-8")
    return rows


def test_runs_are_added_to_those_that_they_confirm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**TINY, "rounds": 1, "data": arrays()}
    plan = Plan("?", "quick", ("fedavg", "local"), settings, against="tiny", seeds=(0, 1))
    monkeypatch.setitem(PLANS, "tiny", plan)
    command, published = ("--only", "tiny", "--publish"), tmp_path / "results/tiny"
    assert not run(tmp_path, *command, "--seeds", "0")
    before = {path.name: path.read_text("utf-8") for path in published.iterdir()}
    (tmp_path / "runs").rename(tmp_path / "elsewhere")  # as on another machine, which has the published files only
    assert not run(tmp_path, *command)
    found = read_evidence(published)
    assert {method: sorted(runs) for method, runs in found.outcomes.items()} == {"fedavg": [0, 1], "local": [0, 1]}
    whole = {path.name: path.read_text("utf-8") for path in published.iterdir()}
    assert set(before["runs.csv"].splitlines()) < set(whole["runs.csv"].splitlines())
    (tmp_path / "runs").rename(tmp_path / "again")
    assert not run(tmp_path, *command, "--methods", "fedavg", "--seeds", "1"), "which speaks for the other three"
    assert [path.parent.name for path in (tmp_path / "runs/tiny").glob("*/summary.json")] == ["fedavg-seed1"]
    again = {path.name: path.read_text("utf-8") for path in published.iterdir()}
    assert (again["runs.csv"], again["table.md"]) == (whole["runs.csv"], whole["table.md"])
    assert [row["run"] for row in read_rows(published / "provenance.csv")] == [
        "fedavg-seed0", "fedavg-seed1", "local-seed0", "local-seed1",
    ]  # fmt: skip


def test_runs_that_are_not_confirmed_are_not_lost_for_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**TINY, "rounds": 1, "data": arrays()}
    monkeypatch.setitem(PLANS, "tiny", Plan("?", "quick", ("local",), settings, against="tiny", seeds=(0, 1)))
    command, published = ("--only", "tiny", "--publish"), tmp_path / "results/tiny"
    assert not run(tmp_path, *command, "--seeds", "1", "2", "3")
    before = falsified(published)
    refused = run(tmp_path, *command, "--seeds", "1")
    assert "tiny, publishing failed" in str(refused)
    assert "has local-seed2, local-seed3 as well; accepted: all 2 runs of the plan, or one of" in str(refused)
    assert sorted(read_evidence(published).outcomes["local"]) == [1, 2, 3]
    assert not run(tmp_path, *command), "all runs of the plan are enough"
    assert sorted(read_evidence(published).outcomes["local"]) == [0, 1]
    assert before[1] in (published / "runs.csv").read_text("utf-8").splitlines()


def test_of_a_method_that_came_out_otherwise_no_run_stays(made: Path, tmp_path: Path) -> None:
    publish(made, tmp_path)
    text = (tmp_path / "runs.csv").read_text("utf-8")
    rows = [dict(zip(text.splitlines()[0].split(","), row.split(","), strict=True)) for row in text.splitlines()[1:]]
    more = {("prowd", "5"): rows[-1], ("fedavg", "5"): rows[0]}
    extra = [",".join({**row, "method": method, "seed": seed}.values()) for (method, seed), row in more.items()]
    changed = [f"{line[:-4]}beef" if line.startswith("prowd,") else line for line in text.splitlines()]
    (tmp_path / "runs.csv").write_text("\n".join([*changed, *extra]) + "\n", "utf-8")
    assert lost_runs(made, tmp_path) == ["prowd-seed5"]
    publish(made, tmp_path)
    assert {method: sorted(runs) for method, runs in read_evidence(tmp_path).outcomes.items()} == {
        "fedavg": [0, 1, 5],
        "fedgroupedavg": [0, 1],
        "prowd": [0],
    }


def test_claims_are_judged_with_what_there_is_and_the_rest_is_named(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not run(tmp_path, "--claims")
    assert "table1-50-50-cpu lacks all its runs\n" in capsys.readouterr().out
    for name in ("table1-50-50-cpu", "fedpaq-ternary-80-20"):
        publish(made, tmp_path / "results" / name)
    rows = (tmp_path / "results/table1-50-50-cpu/runs.csv").read_text("utf-8")
    (tmp_path / "results/table1-50-50-cpu/runs.csv").write_text(rows.replace("fedgroupedavg", "prowd-plus"), "utf-8")
    assert not run(tmp_path, "--claims")
    said = capsys.readouterr().out
    assert "| table1-50-50-cpu | average of prowd − fedavg | 1 | +7.87 |" in said
    assert "prowd-plus − fedpaq at ternary bytes | 0 |" in said
    assert "prowd-plus − fedpaq |" not in said
    rivals = "local, fedavg, fedprox, fedcom, fedcomgate, fedgroupedavg, fedgroupedavg-asymmetric, prowd, "
    rivals += "fedpaq at ternary bytes, fedgroupedavg at full rates, fedgroupedavg-asymmetric at full rates"
    assert f"prowd-plus above {rivals} at every width, all at once: too few runs" in said
    assert "fedpaq-ternary-80-20: what it changes cannot be said without table1-80-20-cpu" in said
    assert (
        "table1-50-50-cpu lacks local with seed 0, 1, 2; fedavg with seed 2, 3, 4; fedprox with seed 0, 1, 2; " in said
    )
    assert "prowd with seed 1, 2, 3, 4; " in said


def test_there_must_be_something_to_publish(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="comparison"):
        publish(tmp_path, tmp_path / "published")


@pytest.mark.parametrize("name", PLANS)
def test_plans_can_be_made_and_are_in_the_index(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    plan = PLANS[name]
    assert plan.against in ("", *PLANS)
    assert set(plan.more) <= set(plan.methods)
    for method in plan.methods:
        config = load_config(plan.preset, {**plan.settings, "method": method})
        assert config != load_config(plan.preset, {"method": method}) or not plan.settings
        assert config.validation == 0
    assert {seed for _, seed in plan.runs} <= {0, 1, 2, 3, 4}, "100 and above are for validation"
    assert len(set(plan.runs)) == len(plan.runs)
    assert f"`{name}`" in (ROOT / "experiments/README.md").read_text("utf-8")


def test_our_rivals_at_our_bytes_are_planned() -> None:
    for found in ELSEWHERE.values():
        assert all(method in PLANS[where].methods for where, method in found.values())


def test_what_is_published_is_planned() -> None:
    for folder in (path for path in (ROOT / "results").iterdir() if path.is_dir()):
        assert folder.name in PLANS
        assert {path.name for path in folder.iterdir()} == {"table.md", "runs.csv", "provenance.csv"}


def test_weights_near_a_ternary_level() -> None:
    assert near_levels([-0.6, -0.39, 0.0, 0.11, 0.25, 0.41, 1.0, -0.5]) == 4 / 8
