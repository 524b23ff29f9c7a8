"""From runs to rows, and confidence intervals against printed tables of Student's t."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest

from prowd.comparison import (
    ComparisonObserver,
    Estimate,
    Outcome,
    Plan,
    PlannedRun,
    Row,
    collect,
    estimate,
    make,
    tabulate,
)
from prowd.config.schema import RunConfig
from prowd.numbers.bits import Bitwidth

SUMMARY: dict[str, Any] = {
    "rounds": 4,
    "accuracy": {"trained": {"int8": 0.5, "float32": 0.75}, "received": {"int8": 0.25, "float32": 0.5}},
    "average_accuracy": {"trained": 0.7, "received": 0.45},
    "bytes": {"up": {"int8": 100, "float32": 300}, "down": {"int8": 200, "float32": 600}},
    "weights_sha256": "ab",
}


def outcome(method: str, seed: int, average: float = 50.0, trained: Mapping[str, float] | None = None) -> Outcome:
    widths = trained or {"int8": 40.0, "float32": 60.0}
    return Outcome(method, seed, widths, widths, average, average - 10, 1000.0 + seed, 2000.0 + seed, "ab")


def rows(*outcomes: Outcome, baseline: str = "fedavg") -> dict[str, Row]:
    return {row.method: row for row in tabulate(outcomes, baseline)}


def test_a_summary_is_read_in_percent_and_bytes_a_round() -> None:
    assert Outcome.of("fedavg", 3, SUMMARY) == Outcome(
        method="fedavg",
        seed=3,
        trained={"int8": 50.0, "float32": 75.0},
        received={"int8": 25.0, "float32": 50.0},
        average=70.0,
        average_received=45.0,
        bytes_up=100.0,
        bytes_down=200.0,
        weights_sha256="ab",
    )


@pytest.mark.parametrize(
    ("trained", "gap"),
    [
        ({"float32": 71.0, "int12": 60.0, "int8": 50.0}, 21.0),
        ({"int12": 60.0, "int8": 50.0}, 10.0),
        ({"int16": 40.0, "int2": 50.0, "int4": 90.0}, -10.0),
    ],
)
def test_the_gap_is_the_highest_width_minus_the_lowest(trained: dict[str, float], gap: float) -> None:
    (found,) = rows(outcome("fedavg", 0, trained=trained)).values()
    assert found.gap is not None
    assert found.gap.mean == gap
    assert list(found.widths) == sorted(trained, key=Bitwidth.parse), "low widths first"


def test_one_width_has_no_gap() -> None:
    assert rows(outcome("fedavg", 0, trained={"int8": 50.0}))["fedavg"].gap is None
    seeds = outcome("fedavg", 0, trained={"int8": 50.0, "float32": 70.0}), outcome("fedavg", 1, trained={"int8": 50.0})
    assert rows(*seeds)["fedavg"].gap is None, "nor have seeds that have one width in common"


def test_a_row_is_the_mean_over_seeds() -> None:
    found = rows(
        outcome("fedavg", 0, 50.0, {"int8": 40.0, "float32": 60.0}),
        outcome("fedavg", 1, 54.0, {"int8": 43.0, "float32": 66.0}),
    )["fedavg"]
    assert found.seeds == 2
    assert {width: value.mean for width, value in found.widths.items()} == {"int8": 41.5, "float32": 63.0}
    assert found.gap is not None
    assert (found.gap.mean, found.average.mean, found.received.mean) == (21.5, 52.0, 42.0)
    assert found.average.half == pytest.approx(12.7062 * 2, abs=1e-3)
    assert (found.bytes_up, found.bytes_down) == (1000.5, 2000.5)


def test_rows_come_in_the_order_of_the_runs() -> None:
    assert list(rows(outcome("prowd", 0), outcome("fedavg", 0), outcome("prowd", 1))) == ["prowd", "fedavg"]


def test_differences_are_taken_seed_by_seed() -> None:
    averages = {"fedavg": (50.0, 60.0, 70.0), "prowd": (51.0, 62.0, 73.0)}
    found = rows(*(outcome(name, seed, value) for name in averages for seed, value in enumerate(averages[name])))
    difference = found["prowd"].difference
    assert difference is not None
    assert (difference.mean, difference.count) == (2.0, 3)
    assert difference.half == pytest.approx(4.3027 / 3**0.5, abs=5e-5), "far narrower than that of either method"
    assert found["fedavg"].difference is None


def test_a_difference_uses_the_seeds_that_both_have() -> None:
    base = [outcome("fedavg", seed, average) for seed, average in ((0, 50.0), (1, 60.0), (7, 99.0))]
    other = [outcome("prowd", seed, average) for seed, average in ((1, 61.0), (0, 53.0), (8, 1.0))]
    difference = rows(*base, *other)["prowd"].difference
    assert difference is not None
    assert (difference.mean, difference.count) == (2.0, 2)


def test_without_a_seed_in_common_or_a_baseline_there_is_no_difference() -> None:
    assert rows(outcome("fedavg", 0), outcome("prowd", 1))["prowd"].difference is None
    found = rows(outcome("fedavg", 0), outcome("prowd", 0), baseline="local")
    assert [row.difference for row in found.values()] == [None, None]


def test_any_method_can_be_the_baseline() -> None:
    found = rows(outcome("fedavg", 0, 50.0), outcome("prowd", 0, 53.0), baseline="prowd")
    assert found["prowd"].difference is None
    assert found["fedavg"].difference is not None
    assert (found["fedavg"].difference.mean, found["fedavg"].difference.half) == (-3.0, None)


def test_a_width_that_some_run_did_not_measure_is_left_out() -> None:
    whole, part = {"int6": 30.0, "int8": 40.0, "float32": 60.0}, {"int8": 42.0, "float32": 62.0}
    found = rows(
        outcome("fedavg", 0, trained=whole), outcome("fedavg", 1, trained=part), outcome("prowd", 0, 50, whole)
    )
    assert {width: value.mean for width, value in found["fedavg"].widths.items()} == {"int8": 41.0, "float32": 61.0}
    assert list(found["prowd"].widths) == ["int6", "int8", "float32"]


def test_only_finished_runs_are_collected(tmp_path: Path) -> None:
    config = RunConfig(rounds=4)
    runs = tuple(PlannedRun("fedavg", seed, config, tmp_path / str(seed)) for seed in range(4))
    texts = [json.dumps(SUMMARY), json.dumps({**SUMMARY, "rounds": 3}), '{"rounds": 4', None]
    for run, text in zip(runs, texts, strict=True):
        run.path.mkdir()
        if text is not None:
            (run.path / "summary.json").write_text(text, "utf-8")
    assert [run.is_finished for run in runs] == [True, False, False, False]
    assert collect(Plan(tmp_path, runs)) == [Outcome.of("fedavg", 0, SUMMARY)]
    longer = replace(runs[0], config=RunConfig(rounds=5))
    assert collect(Plan(tmp_path, (longer,))) == []


def test_a_run_that_measured_nothing_is_a_failure(tmp_path: Path) -> None:
    blind = {**SUMMARY, "average_accuracy": {"trained": None, "received": None}}
    made = []
    for seed, summary in ((0, SUMMARY), (1, blind)):
        run = PlannedRun("fedavg", seed, RunConfig(rounds=SUMMARY["rounds"]), tmp_path / f"fedavg-seed{seed}")
        run.path.mkdir()
        (run.path / "summary.json").write_text(json.dumps(summary), "utf-8")
        made.append(run)
    found = make(Plan(tmp_path, tuple(made)), 1, ComparisonObserver())
    assert [outcome.seed for outcome in found.outcomes] == [0]
    assert list(found.failures) == ["fedavg-seed1"]
    assert "reports no accuracy" in found.failures["fedavg-seed1"]


T_975 = {2: 12.7062, 3: 4.3027, 4: 3.1824, 5: 2.7764, 10: 2.2622, 30: 2.0452, 121: 1.9799}  # by number of values


@pytest.mark.parametrize(("count", "quantile"), T_975.items())
def test_the_quantile_is_that_of_the_tables(count: int, quantile: float) -> None:
    values = [float(number) for number in range(count)]
    found = estimate(values)
    assert found.half is not None
    assert found.half * math.sqrt(count) / stdev(values) == pytest.approx(quantile, abs=5e-5)


def test_five_values_by_hand() -> None:
    found = estimate([70.0, 71.0, 72.0, 73.0, 74.0])  # s = √2.5, so 2.7764·√0.5
    assert found.mean == 72.0
    assert found.half == pytest.approx(1.9632, abs=5e-5)


def test_one_value_has_no_interval_and_equal_ones_have_none_to_speak_of() -> None:
    assert estimate([70.0]) == Estimate(70.0, None, 1)
    assert estimate([70.0, 70.0, 70.0]) == Estimate(70.0, 0.0, 3)


@pytest.mark.parametrize(
    ("mean", "half", "excludes"),
    [(2.0, 1.9, True), (-2.0, 1.9, True), (2.0, 2.1, False), (-2.0, 2.1, False), (0.0, 0.0, False), (2.0, None, False)],
)
def test_an_interval_that_excludes_zero(mean: float, half: float | None, excludes: bool) -> None:
    assert Estimate(mean, half, 3).excludes_zero is excludes
