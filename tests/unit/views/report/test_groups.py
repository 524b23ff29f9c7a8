"""Which runs are set side by side, under which names, and what they come to."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from scipy.special import stdtrit

from prowd.comparison import Estimate
from prowd.config.schema import RunConfig
from prowd.errors import RunError
from prowd.views.report.groups import curve, gather

from .directories import absent, line, lines, only_group, write, write_plan

# What belongs together


def labels(*folders: Path) -> list[dict[str, list[str]]]:
    """Of each group the names of its runs, by label."""
    return [
        {label: [one.path.name for one in found] for label, found in group.runs.items()} for group in gather(folders)[0]
    ]


@pytest.mark.parametrize(
    ("settings", "groups"),
    [
        ({"clients": "int4:2, float32:2"}, 2),
        ({"steps": 7}, 2),
        ({"data_sha256": "ab"}, 2),
        ({"lowbit": {"rate": 3.0}}, 2),
        ({"rounds": 2}, 2),
        ({"seed": 3}, 1),
        ({"name": "other", "version": "0.3.0", "kernel": "simulated", "device": "cuda:0", "snapshots": "none"}, 1),
        ({"clients": "int8:2,float32:2"}, 1),
        ({"data": "/elsewhere/digits"}, 1),
        ({"method_sha256": "ab" * 32}, 1),
    ],
    ids=str,
)
def test_what_decides_the_results_makes_another_group(settings: dict[str, Any], groups: int, tmp_path: Path) -> None:
    write(tmp_path / "a", lines(0.5))
    write(tmp_path / "b", lines(0.5), method="local", **settings)
    assert len(labels(tmp_path)) == groups


def test_settings_that_an_older_version_lacked_are_at_their_defaults(tmp_path: Path) -> None:
    whole = RunConfig().model_dump(mode="json") | {"rounds": 1}
    lowbit = dict(whole.pop("lowbit"))
    write(tmp_path / "new", lines(0.5), **{**whole, "lowbit": lowbit, "method": "local"})
    lowbit.popitem()
    write(tmp_path / "older", lines(0.5), **{**whole, "lowbit": lowbit, "method": "prowd"})
    write(tmp_path / "oldest", lines(0.5), clients=None, data=None, uplink=None, options=None, method=None)
    write(tmp_path / "other", lines(0.5), **{**whole, "lowbit": {**lowbit, "rate": 3.25}, "method": "fedpaq"})
    assert [sorted(found) for found in labels(tmp_path)] == [["fedavg", "local", "prowd"], ["fedpaq"]]


def test_options_in_which_namesakes_differ_become_labels(tmp_path: Path) -> None:
    base: dict[str, Any] = {"method": "prowd", "seed": 0}
    for name, tau, module in (("a", 0.1, 8), ("b", 0.5, 8), ("c", 0.5, 4)):
        options = {"tau": tau, "ladder": "x", "dequantizer": {"module": module}}
        write(tmp_path / name, lines(0.5), **base, options=options)
    write(tmp_path / "d", lines(0.5), method="fedprox", options={"tau": 9, "mu": 1})
    found = {
        "fedprox": ["d"],
        "prowd (tau=0.1, dequantizer.module=8)": ["a"],
        "prowd (tau=0.5, dequantizer.module=8)": ["b"],
        "prowd (tau=0.5, dequantizer.module=4)": ["c"],
    }
    assert labels(tmp_path) == [found]


def test_long_and_odd_labels_can_be_drawn_and_stay_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, lines(0.5), method="local", options={"o" * 80: name})
    write(tmp_path / "c", lines(0.5), method="d\ne\x00f")
    long = f"local ({'o' * 52}…"
    assert labels(tmp_path) == [{long: ["a"], f"{long} #2": ["b"], "d?e?f": ["c"]}]
    assert len(long) == 60


def test_of_twins_the_one_that_has_come_farthest_is_kept(tmp_path: Path) -> None:
    for name, made, finished in (("a", 1, False), ("b", 3, False), ("c", 3, True), ("d", 2, False)):
        write(tmp_path / name, lines(0.1, 0.2, 0.3)[:made], rounds=3, finished=finished)
    (group,), problems = gather([tmp_path])
    assert [record.path.name for record in group.records] == ["c"]
    assert sorted(Path(problem.split()[0]).name for problem in problems) == ["a", "b", "d"]


# Whom they are compared with


def test_the_baseline_is_that_of_the_comparison(tmp_path: Path) -> None:
    for method in ("local", "fedavg", "prowd"):
        write(tmp_path / method, lines(0.5), method=method)
    assert only_group(tmp_path).baseline == "fedavg"
    write_plan(tmp_path, "prowd")
    assert only_group(tmp_path).baseline == "prowd"
    assert only_group(tmp_path / "local", tmp_path / "prowd").baseline == "prowd", "their folders' plan counts"
    assert only_group(tmp_path / "local").baseline == "local"


def test_a_baseline_without_a_finished_run_gives_way(tmp_path: Path) -> None:
    write(tmp_path / "a", lines(0.5, 0.6)[:1], rounds=2, finished=False)
    write(tmp_path / "b", lines(0.5, 0.6), method="prowd")
    write(tmp_path / "c", lines(0.5, 0.7), method="prowd-deq")
    group = only_group(tmp_path)
    assert group.baseline == "prowd"
    assert [row.difference.mean if row.difference else None for row in group.rows] == [None, pytest.approx(10)]


def test_failures_of_a_comparison_are_told_once(tmp_path: Path) -> None:
    for method in ("local", "prowd"):
        write(tmp_path / method, lines(0.5), method=method)
    write_plan(tmp_path, "local", {"fedavg-0": "disk full", "fedavg-1": "no power"})
    for folders in ([tmp_path], [tmp_path / "local", tmp_path / "prowd"]):
        groups, (first, second) = gather(folders)
        assert len(groups) == 1
        assert (first.endswith("failed: disk full"), second.endswith("failed: no power")) == (True, True)


# Which runs count


def test_unfinished_runs_are_left_out_where_others_are_finished(tmp_path: Path) -> None:
    write(tmp_path / "a", lines(0.1, 0.2), seed=0)
    write(tmp_path / "b", lines(0.9), rounds=2, seed=1, finished=False)
    write(tmp_path / "c", lines(0.9), rounds=2, method="prowd", finished=False)
    group = only_group(tmp_path)
    assert {label: len(found) for label, found in group.counted.items()} == {"fedavg": 1}
    assert [(row.method, row.seeds, row.average.mean) for row in group.rows] == [("fedavg", 1, 20)]
    assert group.is_finished
    assert len(group.records) == 3


def test_unfinished_runs_are_shown_where_there_is_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "a", lines(0.1), rounds=2, finished=False)
    write(tmp_path / "b", lines(0.1, 0.3), rounds=2, method="local", finished=False)
    write(tmp_path / "c", [], rounds=2, method="prowd", finished=False)
    group = only_group(tmp_path)
    assert {row.method: row.average.mean for row in group.rows} == pytest.approx({"fedavg": 10, "local": 10})
    assert [len(record.lines) for records in group.shown.values() for record in records] == [2, 1], "in figures all"
    assert not group.is_finished
    assert list(group.runs) == ["local", "fedavg", "prowd"]


# What they come to


def t(count: int) -> float:
    """The quantile of Student's t by which intervals are made."""
    return float(stdtrit(count - 1, 0.975))


def both(value: Estimate | None) -> tuple[float, float | None]:
    """A mean and its interval."""
    assert value is not None
    return value.mean, value.half


def test_the_headline_numbers_by_hand(tmp_path: Path) -> None:
    """Three Int8 clients and one Float32: averages weigh 3 to 1; bytes are those of a round of two."""
    clients = "int8:3, float32:1"
    table = {("fedavg", 0): (0.4, 0.8), ("fedavg", 1): (0.5, 0.7), ("prowd", 0): (0.6, 0.8), ("prowd", 1): (0.6, 1.0)}
    for (method, seed), (low, high) in table.items():
        rounds = [
            line(1, {"int8": 0.1, "float32": 0.1}, up={"int8": 300, "float32": 400}, down={"int8": 30, "float32": 0}),
            line(2, {"int8": low, "float32": high}, received={"int8": low / 2, "float32": high / 2},
                 up={"int8": 500, "float32": 800}, down={"int8": 70, "float32": 100}),
        ]  # fmt: skip
        write(tmp_path / f"{method}-{seed}", rounds, clients=clients, method=method, seed=seed)
    fedavg, prowd = only_group(tmp_path).rows
    # averages: fedavg 50 and 55, prowd 65 and 70; standard deviations 5/√2, so ± t·5/2
    half = t(2) * 2.5
    assert both(fedavg.average) == pytest.approx((52.5, half))
    assert both(prowd.average) == pytest.approx((67.5, half))
    assert {width: value.mean for width, value in prowd.widths.items()} == pytest.approx({"int8": 60, "float32": 90})
    assert both(prowd.gap) == pytest.approx((30, t(2) * 10))
    assert prowd.received.mean == pytest.approx(33.75)
    assert both(prowd.difference) == pytest.approx((15, 0))
    assert fedavg.difference is None
    assert (fedavg.bytes_up, fedavg.bytes_down) == (1000, 100)


def test_what_is_no_accuracy_was_not_measured(tmp_path: Path) -> None:
    rounds = [
        line(1, {"int8": 0.25, "float32": 0.5}),
        line(2, {"int8": math.nan, "float32": 0.75}, loss={"int8": math.nan}),
        line(3, {"int8": 7.0, "float32": -math.inf}),
    ]
    group = only_group(write(tmp_path / "a", rounds))
    (row,) = group.rows
    assert {width: value.mean for width, value in row.widths.items()} == pytest.approx({"int8": 25, "float32": 75})
    assert curve(group.records, lambda _, found: found.accuracy.trained.get("int8")).rounds == [1]


@pytest.mark.parametrize(
    "damage",
    [
        {"bytes": {"up": {"int8": 10**400}, "down": {}}},
        {"clients": {"asked": 10**4000}},
        {"clients": {"lost": [absent(-(10**400))]}},
    ],
    ids=["bytes", "asked", "client"],
)
def test_a_number_beyond_all_measure_ends_the_run_there(damage: dict[str, Any], tmp_path: Path) -> None:
    rounds = lines(0.1, 0.2, 0.3)
    rounds[1] |= damage
    record = only_group(write(tmp_path / "a", rounds)).first
    assert len(record.lines) == 1
    assert len(record.damage) == 1
    assert not record.is_finished


@pytest.mark.parametrize("text", [f"seed = 0x{'f' * 4000}", f"a{'.a' * 2000} = 1"], ids=["huge", "deep"])
def test_settings_beyond_all_measure_are_left_out(text: str, tmp_path: Path) -> None:
    write(tmp_path / "bad")
    (tmp_path / "bad" / "config.toml").write_text(text)
    with pytest.raises(RunError, match=r"bad.config\.toml cannot be read: (seed|a): .*accepted: at most"):
        gather([tmp_path / "bad"])
    write(tmp_path / "good", lines(0.5))
    (group,), problems = gather([tmp_path])
    assert group.first.path.name == "good"
    assert len(problems) == 1


def test_a_curve_is_the_mean_over_seeds_of_rounds_that_all_have_measured(tmp_path: Path) -> None:
    first = [line(n, {"float32": n / 10}, up={"int8": 10**6}, down={"int8": 5 * 10**5}) for n in (1, 2, 3, 4)]
    second = [
        line(1, {"float32": 0.3}, up={"int8": 10**6}, down={"float32": 10**6}),
        line(2, {"int8": 0.9}, up={"int8": 2 * 10**6}),
        line(3, {"float32": 0.7}, down={"int8": 5 * 10**5}),
    ]
    for seed, rounds in enumerate((first, second)):
        write(tmp_path / str(seed), rounds, seed=seed, rounds=9, finished=False)
    found = curve(only_group(tmp_path).records, lambda _, found: found.accuracy.trained.get("float32"))
    assert list(found.rounds) == [1, 3]
    # MB so far: 1.5 and 4.5 of the first, 2 and 4.5 of the second, which moved some in a round it did not measure
    assert found.megabytes == pytest.approx([1.75, 4.5])
    assert [value.mean for value in found.values] == pytest.approx([0.2, 0.5])
    assert [value.half for value in found.values] == pytest.approx([t(2) * 0.1, t(2) * 0.2])


def test_a_variant_is_named_by_what_is_not_a_default(tmp_path: Path) -> None:
    for number, tau in enumerate((1.0, 0.5)):  # 1 is the default
        write(tmp_path / str(number), lines(0.5), method="prowd", options={"tau": tau})
    assert list(only_group(tmp_path).runs) == ["prowd", "prowd (tau=0.5)"]
