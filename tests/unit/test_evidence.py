"""What is kept of a comparison, and what it says of the paper's claims."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

import prowd
from benchmarks.evidence.claims import Claim, changes, claims, printed, read_evidence, to_markdown
from benchmarks.evidence.plans import PLANS
from benchmarks.evidence.publish import near_levels, publish
from prowd.comparison import estimate
from prowd.config import load_config
from prowd.records import find_records
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


def test_claims_are_paired_by_seed(kept: Path) -> None:
    evidence = read_evidence(kept)
    found = {claim.what: claim for claim in claims(evidence)}
    for name, seeds in (("fedavg", 1), ("fedgroupedavg", 1)):
        claim = found[f"average of prowd − {name}"]
        runs = evidence.outcomes
        assert claim.differences == [runs["prowd"][0].average - runs[name][0].average]
        assert len(claim.differences) == seeds
    freed = found["Float32 under FedGroupedAvg − under FedAvg"].differences
    runs = evidence.outcomes
    assert freed == [
        runs["fedgroupedavg"][seed].trained["float32"] - runs["fedavg"][seed].trained["float32"] for seed in (0, 1)
    ]
    lost = [runs["fedgroupedavg"][seed].trained["int8"] - runs["fedavg"][seed].trained["int8"] for seed in (0, 1)]
    more = found["what mixing costs Float32 − what it costs Int8"].differences
    assert more == pytest.approx([a - b for a, b in zip(freed, lost, strict=True)])
    peaks = found["Float32 weights near a ternary level, FedAvg − FedGroupedAvg"].differences
    rows = lines_of(kept / "peaks.csv")
    last = {
        (row["method"], row["seed"]): float(row["near"])
        for row in rows
        if row["width"] == "float32" and row["round"] == "3"
    }
    assert peaks == pytest.approx([last["fedavg", seed] - last["fedgroupedavg", seed] for seed in "01"])


def test_what_a_setting_changes_is_paired_by_seed_too(kept: Path) -> None:
    evidence = read_evidence(kept)
    (low, high) = changes(evidence, replace(evidence, outcomes={"fedavg": evidence.outcomes["prowd"]}))
    runs = evidence.outcomes
    assert (low.what, high.what) == ("int8 of fedavg, with − without", "float32 of fedavg, with − without")
    assert replace(high, differences=[1.0, 1.1]).verdict == "better"
    assert high.differences == [runs["prowd"][0].trained["float32"] - runs["fedavg"][0].trained["float32"]]


@pytest.mark.parametrize("name", PLANS)
def test_plans_are_ones_that_can_be_made(name: str) -> None:
    plan = PLANS[name]
    assert plan.against in ("", *PLANS)
    for method in plan.methods:
        config = load_config(plan.preset, {**plan.settings, "method": method})
        assert config != load_config(plan.preset, {"method": method}) or not plan.settings
        assert config.validation == 0


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
    assert theirs["gap of FedGroupedAvg − gap of ProWD"] == pytest.approx([23.23 - 3.12])
    assert theirs["float32 of prowd − fedavg"] == pytest.approx([85.99 - 76.23])
    table2 = {claim.what: claim.differences for claim in claims(printed("table2-cpu"))}
    assert table2["int12 of prowd − fedavg"] == pytest.approx([86.47 - 86.49])
    assert "gap of FedGroupedAvg − gap of ProWD" not in table2
    *_, row = to_markdown([Claim("table2-cpu", "int12 of prowd − fedavg", [1.0, 1.2])]).splitlines()
    assert row == "| table2-cpu | int12 of prowd − fedavg | -0.02 | +1.10 ± 1.27 | not decided |"
