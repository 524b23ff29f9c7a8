"""What is kept of a comparison, and what it says of the paper's claims."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import prowd
from benchmarks.evidence.claims import Claim, changes, claims, goal, to_markdown, together
from benchmarks.evidence.plans import PLANS, SCREENED
from benchmarks.evidence.publish import near_levels, publish
from benchmarks.evidence.reading import Evidence, printed, read_evidence
from benchmarks.evidence.suspects import overview
from prowd.comparison import Outcome, estimate
from prowd.config.schema import load_config
from prowd.errors import RunError
from prowd.runs.read import find_records
from tests.runs import TINY, arrays


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of three methods and two seeds, published; the directory of the comparison is beside it."""
    folder = tmp_path_factory.mktemp("evidence")
    methods, made = ["fedavg", "fedgroupedavg", "prowd"], folder / "made"
    prowd.compare("quick", methods=methods, seeds=[0, 1], out=made, data=arrays(), workers=2, **TINY)
    (made / "prowd-seed1" / "summary.json").unlink()
    publish(made, folder / "mix")
    return folder / "mix"


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_what_is_kept_is_text_and_finished(kept: Path) -> None:
    names = {path.name for path in kept.iterdir()}
    tables = {"table.md", "table.csv", "runs.csv", "rounds.csv", "peaks.csv", "comparison.json"}
    runs = {f"{method}-seed{seed}" for method in ("fedavg", "fedgroupedavg", "prowd") for seed in (0, 1)}
    assert names == tables | runs - {"prowd-seed1"}
    assert {path.suffix for path in kept.rglob("*.*")} == {".md", ".csv", ".json", ".jsonl", ".toml"}
    before, _ = find_records(kept.parent / "made")
    after, problems = find_records(kept)
    assert not problems
    assert [run.lines for run in after] == [run.lines for run in before if run.summary]


def test_rounds_are_a_line_for_each_width(kept: Path) -> None:
    rows = lines_of(kept / "rounds.csv")
    assert len(rows) == 5 * 3 * 2
    record = next(run for run in find_records(kept)[0] if (run.method, run.seed) == ("prowd", 0))
    mine = [row for row in rows if (row["method"], row["seed"], row["width"]) == ("prowd", "0", "int8")]
    assert [float(row["trained"]) for row in mine] == pytest.approx(
        [100 * line.accuracy.trained["int8"] for line in record.lines], abs=1e-4
    )
    assert [int(row["bytes_up"]) for row in mine] == [line.traffic.up["int8"] for line in record.lines]


def test_weights_near_a_ternary_level() -> None:
    assert near_levels([-0.6, -0.39, 0.0, 0.11, 0.25, 0.41, 1.0, -0.5]) == 4 / 8


def evidence(name: str = "mix", **runs: dict[int, tuple[float, float]]) -> Evidence:
    """Runs by method and seed: accuracies of Int8 and Float32, of which there are as many."""
    made = {
        method.replace("_", "-"): {
            seed: Outcome(method, seed, {"int8": low, "float32": high}, {}, (low + high) / 2, 0.0, 0.0, 0.0, "")
            for seed, (low, high) in found.items()
        }
        for method, found in runs.items()
    }
    return Evidence(name, made, {"fedavg": {0: 90.0, 1: 80.0}, "fedgroupedavg": {1: 50.0, 2: 40.0}})


MIXED = evidence(
    fedavg={0: (50.0, 40.0), 1: (51.0, 43.0)},
    fedgroupedavg={0: (44.0, 46.0), 1: (47.0, 48.0), 2: (1.0, 2.0)},
    prowd={1: (52.0, 50.0), 0: (49.0, 46.0)},
    prowd_plus={0: (53.0, 50.0), 1: (54.0, 51.0)},
)


def test_claims_are_paired_by_seed() -> None:
    found = {claim.what: list(claim.differences) for claim in claims(MIXED)}
    assert found["average of prowd − fedavg"] == [4.0, 2.5]  # 51 − 47 with seed 1, 47.5 − 45 with seed 0
    assert found["average of prowd − fedgroupedavg"] == [3.5, 2.5]
    assert found["size of the gap, FedGroupedAvg − ProWD"] == [2.0 - 3.0, 1.0 - 2.0]
    assert found["float32 under FedGroupedAvg − under FedAvg"] == [6.0, 5.0]
    assert found["the same of float32 − of int8"] == [6.0 + 6.0, 5.0 + 4.0]
    assert found["float32 weights near a ternary level, FedAvg − FedGroupedAvg"] == [30.0]
    assert found["int8 of prowd − fedavg"] == [1.0, -1.0]
    assert "average of prowd − local" not in found
    assert not [what for what in found if "as received" in what], "nobody has measured it"


def test_models_are_judged_as_received_too_where_that_is_known() -> None:
    def received(*averages: float) -> dict[int, Outcome]:
        runs = MIXED.outcomes["fedavg"]
        return {seed: replace(runs[seed], received={"int8": 1.0}, average_received=averages[seed]) for seed in runs}

    both = replace(
        MIXED, outcomes={**MIXED.outcomes, "fedavg": received(40.0, 41.0), "prowd-swa": received(39.0, 43.0)}
    )
    found = {claim.what: list(claim.differences) for claim in claims(both) if "as received" in claim.what}
    assert found == {"average of prowd-swa − fedavg, as received": [-1.0, 2.0]}


def test_our_goal_is_reached_by_all_widths_or_not_at_all() -> None:
    found = goal(MIXED)
    assert [claim.what for claim in found[:2]] == ["int8 of prowd-plus − fedavg", "float32 of prowd-plus − fedavg"]
    assert [list(claim.differences) for claim in found] == [[3.0, 3.0], [10.0, 8.0], [4.0, 2.0], [4.0, 1.0]]
    assert together(found) == "not decided"
    assert together(found[:1]) == "holds"
    assert together([*found, Claim("", "", [-1.0, -1.1])]) == "does not hold"
    assert goal(evidence(fedavg={0: (1.0, 2.0)})) == []


def test_our_rivals_send_as_little() -> None:
    def with_bytes(sent: float) -> Evidence:
        paq = {seed: replace(run, bytes_up=sent) for seed, run in MIXED.outcomes["fedavg"].items()}
        runs = {name: {s: replace(r, bytes_up=100.0) for s, r in old.items()} for name, old in MIXED.outcomes.items()}
        return replace(MIXED, outcomes={**runs, "fedpaq": paq})

    only = replace(MIXED, outcomes={"fedpaq": with_bytes(99.0).outcomes["fedpaq"]})
    rivals = [{claim.what.split()[-1] for claim in goal(with_bytes(sent))} for sent in (100.0, 500.0)]
    assert rivals == [{"fedavg", "fedpaq", "prowd"}, {"fedavg", "prowd"}]
    found = [claim for claim in goal(with_bytes(500.0), [only]) if claim.what.endswith("fedpaq")]
    assert [list(claim.differences) for claim in found] == [[3.0, 3.0], [10.0, 8.0]]


def test_what_a_setting_changes_is_paired_by_seed_too() -> None:
    low, high = changes(MIXED, evidence("other", fedavg={1: (60.0, 40.0), 0: (61.0, 39.0), 5: (0.0, 0.0)}))
    assert (low.what, high.what) == ("int8 of fedavg, with − without", "float32 of fedavg, with − without")
    assert (list(low.differences), list(high.differences)) == ([9.0, 11.0], [-3.0, -1.0])
    assert replace(low, differences=[1.0, 1.1]).verdict == "better"


def test_a_control_is_held_against_what_it_controls() -> None:
    drawn = evidence("other", prowd_drawn={0: (48.0, 45.0), 1: (50.0, 47.0)})
    found = changes(MIXED, drawn, {"prowd-drawn": ("prowd", "fedavg")})
    assert [(claim.what, list(claim.differences)) for claim in found] == [
        ("int8 of prowd-drawn − prowd", [-1.0, -2.0]),
        ("float32 of prowd-drawn − prowd", [-1.0, -3.0]),
        ("int8 of prowd-drawn − fedavg", [-2.0, -1.0]),
        ("float32 of prowd-drawn − fedavg", [5.0, 4.0]),
    ]


def test_evidence_is_read_from_what_is_kept(kept: Path) -> None:
    found = read_evidence(kept)
    record = next(run for run in find_records(kept)[0] if (run.method, run.seed) == ("prowd", 0))
    assert {(method, seed) for method, runs in found.outcomes.items() for seed in runs} == {
        *((method, seed) for method in ("fedavg", "fedgroupedavg") for seed in (0, 1)),
        ("prowd", 0),
    }
    last = record.lines[-1].accuracy.trained
    assert found.outcomes["prowd"][0].trained == {width: pytest.approx(100 * last[width]) for width in found.widths}
    rows = [row for row in lines_of(kept / "peaks.csv") if (row["width"], row["round"]) == ("float32", "3")]
    assert {(row["method"], int(row["seed"]), float(row["near"])) for row in rows} == {
        (method, seed, near) for method, runs in found.peaks.items() for seed, near in runs.items()
    }


def test_a_run_that_ends_without_a_width_is_not_counted(kept: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mix"
    shutil.copytree(kept, folder)
    path = folder / "prowd-seed0" / "rounds.jsonl"
    *lines, last = path.read_text("utf-8").splitlines()
    line = json.loads(last)
    del line["accuracy"]["trained"]["float32"]
    path.write_text("\n".join([*lines, json.dumps(line)]) + "\n", "utf-8")
    assert "prowd" not in read_evidence(folder).outcomes


def test_there_must_be_something_to_keep(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"has no comparison.json; accepted: a directory of prowd compare"):
        publish(tmp_path, tmp_path / "kept")


@pytest.mark.parametrize("name", PLANS)
def test_plans_are_ones_that_can_be_made(name: str) -> None:
    plan = PLANS[name]
    assert plan.against in ("", *PLANS)
    for method in plan.methods:
        config = load_config(plan.preset, {**plan.settings, "method": method})
        assert config != load_config(plan.preset, {"method": method}) or not plan.settings
        assert (config.validation == 0) != name.startswith(SCREENED)
    assert set(plan.seeds) == ({100} if name.startswith(SCREENED) else {0, 1, 2})


def test_suspects_are_held_against_fedavg() -> None:
    base = evidence(fedavg={100: (46.0, 44.0)}, prowd={100: (45.0, 47.0)})
    mask = evidence(prowd={100: (40.0, 48.0)})
    loss = evidence(fedavg={100: (30.0, 31.0)}, prowd={100: (36.5, 37.5)})
    handed = {100: replace(loss.outcomes["prowd"][100], average_received=2.5)}
    loss = replace(loss, outcomes={**loss.outcomes, "prowd": handed})
    half = evidence(prowd={100: (1.0, 1.0)})
    found = {"as-it-is": base, "mask-without-limit": mask, "squared-loss": loss, "no-logit-scale": half, "mix": base}
    _, _, *rows = overview(found).splitlines()
    assert rows == [
        "| as the presets have it | 46.0 / 44.0 | 45.0 / 47.0 | +1.0 | +0.0 |",
        "| squared error at Int8 | 30.0 / 31.0 | 36.5 / 37.5 | +6.5 | +2.5 |",
        "| masks drop what they like (Eq. 8) |  | 40.0 / 48.0 | -1.0 | +0.0 |",
    ]
    other = evidence(prowd={101: (1.0, 1.0)})
    assert overview({**found, "mask-half": other}) == overview(found), "no FedAvg has its seed"
    assert overview({"as-it-is": mask}) == overview({})
    assert overview({"squared-loss": loss}) == "what the choices change cannot be said without as-it-is"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], "too few runs"),
        ([3.0], "too few runs"),
        ([1.0, 1.1, 1.2], "holds"),
        ([-1.0, -1.1, -1.2], "does not hold"),
        ([-1.0, 2.0, 0.5], "not decided"),
    ],
)
def test_an_interval_decides(values: list[float], expected: str) -> None:
    assert Claim("", "", values).verdict == expected
    assert Claim("", "", values).found == (estimate(values) if values else None)


def test_the_paper_s_own_numbers_stand_beside_ours() -> None:
    theirs = {claim.what: claim.differences for claim in claims(printed("table1-50-50-cpu"))}
    assert theirs["average of prowd − fedavg"] == pytest.approx([84.43 - 76.56])
    assert theirs["average of prowd − prowd-swa"] == pytest.approx([84.43 - 82.84])
    assert theirs["size of the gap, FedGroupedAvg − ProWD"] == pytest.approx([23.23 - 3.12])
    assert theirs["float32 of prowd − fedavg"] == pytest.approx([85.99 - 76.23])
    table2 = {claim.what: claim.differences for claim in claims(printed("table2-cpu"))}
    assert table2["int12 of prowd − fedavg"] == pytest.approx([86.47 - 86.49])
    assert "size of the gap, FedGroupedAvg − ProWD" not in table2, "there are no Float32 clients in it"
    *_, row = to_markdown([Claim("table2-cpu", "int12 of prowd − fedavg", [1.0, 1.2])]).splitlines()
    assert row == "| table2-cpu | int12 of prowd − fedavg | 2 | -0.02 | +1.10 ± 1.27 | not decided |"
