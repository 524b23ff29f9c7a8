"""How the claims of the paper, and our own, are judged from the runs of an experiment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.claims import Claim, changes, claims, goal, to_markdown, together
from experiments.reading import Evidence, printed
from prowd.comparison import Outcome


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


def test_what_is_not_there_yet_is_not_judged() -> None:
    some = replace(MIXED, outcomes={name: MIXED.outcomes[name] for name in ("fedavg", "fedgroupedavg")}, peaks={})
    assert [claim.what for claim in claims(some)] == [
        "float32 under FedGroupedAvg − under FedAvg",
        "the same of float32 − of int8",
    ]
    assert claims(Evidence("mix", {})) == []


def test_methods_with_more_seeds_are_compared_where_both_have_them() -> None:
    more = evidence(fedavg=dict.fromkeys(range(5), (50.0, 50.0)), prowd=dict.fromkeys((4, 0, 1), (51.0, 52.0)))
    found = {claim.what: claim for claim in claims(more)}
    assert found["average of prowd − fedavg"].differences == [1.5] * 3


def test_our_goal_is_reached_by_all_widths_or_not_at_all() -> None:
    runs = MIXED.outcomes
    found = goal(MIXED, {name: runs[name] for name in ("fedavg", "prowd")})
    assert [list(claim.differences) for claim in found] == [[3.0, 3.0], [10.0, 8.0], [4.0, 2.0], [4.0, 1.0]]
    assert (together(found), together(found[:1])) == ("not decided", "holds")
    assert together([*found, Claim("", "", [-1.0, -1.1])]) == "does not hold"
    lacking = goal(MIXED, {"fedavg": runs["fedavg"], "fedprox": {}})
    assert [claim.what for claim in lacking if not claim.differences] == [
        "int8 of prowd-plus − fedprox",
        "float32 of prowd-plus − fedprox",
    ]
    assert together(lacking) == "too few runs"


def test_a_rival_that_sends_more_is_named_so() -> None:
    def sending(method: str, sent: float) -> dict[int, Outcome]:
        return {seed: replace(run, bytes_up=sent) for seed, run in MIXED.outcomes[method].items()}

    ours = replace(MIXED, outcomes={**MIXED.outcomes, "prowd-plus": sending("prowd-plus", 100.0)})
    rivals = {"fedcom": sending("fedavg", 166.0), "fedpaq at ternary bytes": sending("prowd", 100.0)}
    assert [claim.what for claim in goal(ours, rivals) if claim.what.startswith("int8")] == [
        "int8 of prowd-plus − fedcom (sends 66 % more)",
        "int8 of prowd-plus − fedpaq at ternary bytes",
    ]


def test_what_a_setting_changes_is_paired_by_seed_too() -> None:
    low, high = changes(MIXED, evidence("other", fedavg={1: (60.0, 40.0), 0: (61.0, 39.0), 5: (0.0, 0.0)}))
    assert (low.what, high.what) == ("int8 of fedavg, with − without", "float32 of fedavg, with − without")
    assert (list(low.differences), list(high.differences)) == ([9.0, 11.0], [-3.0, -1.0])
    assert replace(low, differences=[1.0, 1.1]).verdict == "better"


def test_a_method_is_compared_with_rivals_as_well_as_with_itself() -> None:
    drawn = evidence("other", prowd_drawn={0: (48.0, 45.0), 1: (50.0, 47.0)}, fedavg={0: (50.5, 41.0)})
    found = changes(MIXED, drawn, ("prowd", "never-run"))
    assert [(claim.what, list(claim.differences)) for claim in found] == [
        ("int8 of prowd-drawn − prowd", [-1.0, -2.0]),
        ("float32 of prowd-drawn − prowd", [-1.0, -3.0]),
        ("int8 of fedavg, with − without", [0.5]),
        ("float32 of fedavg, with − without", [1.0]),
        ("int8 of fedavg − prowd", [1.5]),
        ("float32 of fedavg − prowd", [-5.0]),
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0], "too few runs"),
        ([1.0, 1.1, 1.2], "holds"),
        ([-1.0, -1.1, -1.2], "does not hold"),
        ([-1.0, 2.0, 0.5], "not decided"),
    ],
)
def test_an_interval_decides(values: list[float], expected: str) -> None:
    assert Claim("", "", values).verdict == expected


def test_the_paper_s_own_numbers_stand_next_to_ours() -> None:
    theirs = {claim.what: claim.differences for claim in claims(printed("table1-50-50-cpu"))}
    assert theirs["average of prowd − prowd-swa"] == pytest.approx([84.43 - 82.84])
    assert theirs["size of the gap, FedGroupedAvg − ProWD"] == pytest.approx([23.23 - 3.12])
    table2 = [claim.what for claim in claims(printed("table2-cpu"))]
    assert "size of the gap, FedGroupedAvg − ProWD" not in table2, "there are no Float32 clients in it"
    *_, row = to_markdown([Claim("table2-cpu", "int12 of prowd − fedavg", [1.0, 1.2])]).splitlines()
    assert row == "| table2-cpu | int12 of prowd − fedavg | 2 | -0.02 | +1.10 ± 1.27 | not decided |"
