"""The verdict: what the runs say, and never more than the interval does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from prowd.views.report import verdict
from prowd.views.report.groups import Group
from prowd.views.report.sentences import caution

from .directories import line, lines, only_group, write

ONE = "one seed decides nothing"


def compared(folder: Path, averages: dict[str, list[float]]) -> Group:
    """Runs of methods that came to these accuracies, seed by seed."""
    for method, values in averages.items():
        for seed, value in enumerate(values):
            write(folder / f"{method}-{seed}", lines(value), method=method, seed=seed)
    return only_group(folder)


@pytest.mark.parametrize(
    ("averages", "expected"),
    [
        (
            {"fedavg": [0.5], "prowd": [0.6]},
            f"prowd is above fedavg by +10.00 points of accuracy, with one seed: {ONE}.",
        ),
        (
            {"fedavg": [0.5], "prowd": [0.4]},
            f"prowd is below fedavg by -10.00 points of accuracy, with one seed: {ONE}.",
        ),
        (
            {"fedavg": [0.5, 0.4], "prowd": [0.6, 0.5]},
            "prowd is above fedavg by +10.00 ± 0.00 points of accuracy (2 seeds, paired): decided, the interval "
            "excludes zero.",
        ),
        (  # differences of 10 and 0: t of one degree of freedom, 12.7062, times √50/√2 = 5
            {"fedavg": [0.5, 0.5], "prowd": [0.6, 0.5]},
            "prowd is above fedavg by +5.00 ± 63.53 points of accuracy (2 seeds, paired): not decided, the interval "
            "includes zero.",
        ),
        (
            {"fedavg": [0.5, 0.5], "prowd": [0.5, 0.5]},
            "prowd is level with fedavg, +0.00 ± 0.00 points of accuracy (2 seeds, paired): not decided, the interval "
            "includes zero.",
        ),
        (
            {"local": [0.1, 0.1], "fedavg": [0.5, 0.5], "prowd": [0.4, 0.4]},
            "No method's mean is above that of fedavg: prowd, the next, is at -10.00 ± 0.00 points of accuracy (2 "
            "seeds, paired): decided, the interval excludes zero.",
        ),
        (  # of four seeds prowd has two: only these are compared, though its own mean is lower
            {"fedavg": [0.2, 0.2, 0.8, 0.8], "prowd": [0.3, 0.3]},
            "prowd is above fedavg by +10.00 ± 0.00 points of accuracy (2 seeds, paired): decided, the interval "
            "excludes zero.",
        ),
    ],
    ids=["one seed", "one seed, worse", "sure", "unsure", "level", "none above", "seed by seed"],
)
def test_a_comparison(averages: dict[str, list[float]], expected: str, tmp_path: Path) -> None:
    assert verdict(compared(tmp_path, averages)) == expected


def test_the_best_of_several_is_named_and_that_it_was_chosen(tmp_path: Path) -> None:
    group = compared(tmp_path, {"fedavg": [0.5, 0.5], "fedprox": [0.6, 0.6], "prowd": [0.7, 0.7]})
    assert verdict(group).startswith("prowd is above fedavg by +20.00")
    assert "best of 2 methods" in caution(group)
    assert caution(compared(tmp_path / "two", {"fedavg": [0.5, 0.5], "prowd": [0.7, 0.7]})) == ""


def test_methods_without_a_common_seed_are_not_compared(tmp_path: Path) -> None:
    write(tmp_path / "a", lines(0.5), seed=0)
    write(tmp_path / "b", lines(0.9), seed=1, method="prowd")
    assert verdict(only_group(tmp_path)) == "No method has a seed in common with fedavg: nothing is decided."


def test_a_single_run_says_accuracy_by_width_rounds_and_bytes(tmp_path: Path) -> None:
    moved = {"int8": 10**6, "float32": 2 * 10**6}
    rounds = [line(n, {"int8": 0.1 * n, "float32": 0.2 * n}, up=moved, down=moved) for n in (1, 2)]
    write(tmp_path / "a", rounds)
    expected = "fedavg came to 20.00 % at int8, 40.00 % at float32, 30.00 % over all clients in 2 rounds and 12.0 MB"
    assert verdict(only_group(tmp_path)) == f"{expected}; {ONE}."
    write(tmp_path / "b", rounds, seed=1)
    assert verdict(only_group(tmp_path)).endswith(
        "30.00 ± 0.00 % over all clients in 2 rounds and 12.0 MB a run (2 seeds)."
    )


def test_without_any_accuracy_it_says_so(tmp_path: Path) -> None:
    group = only_group(write(tmp_path / "begun", [], rounds=3, finished=False))
    assert (verdict(group), caution(group)) == ("No accuracy has been measured yet.", "")


def test_of_what_is_unfinished_it_says_how_far_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "a", lines(0.5), rounds=3, finished=False)
    assert re.search(rf"in 1 round and 8\.0 kB; {ONE} \(so far: round 1\)\.$", verdict(only_group(path)))
