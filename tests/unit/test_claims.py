"""How the claims of the paper, and our own, are judged from the runs of an experiment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.claims import Claim, changes, claims, goal, to_markdown, together
from experiments.reading import Evidence, printed
from experiments.suspects.plan import overview
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


def test_our_goal_is_reached_by_all_widths_or_not_at_all() -> None:
    found = goal(MIXED)
    assert [list(claim.differences) for claim in found] == [[3.0, 3.0], [10.0, 8.0], [4.0, 2.0], [4.0, 1.0]]
    assert (together(found), together(found[:1])) == ("not decided", "holds")
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


def test_a_control_is_compared_with_what_it_controls() -> None:
    drawn = evidence("other", prowd_drawn={0: (48.0, 45.0), 1: (50.0, 47.0)})
    found = changes(MIXED, drawn, {"prowd-drawn": ("prowd", "never-run")})
    assert [(claim.what, list(claim.differences)) for claim in found] == [
        ("int8 of prowd-drawn − prowd", [-1.0, -2.0]),
        ("float32 of prowd-drawn − prowd", [-1.0, -3.0]),
    ]


def test_suspects_are_compared_with_fedavg() -> None:
    base = evidence(fedavg={100: (46.0, 44.0)}, prowd={100: (45.0, 47.0)})
    mask = evidence(prowd_limited={100: (40.0, 48.0)})
    loss = evidence(fedavg={100: (30.0, 31.0)}, prowd={100: (36.5, 37.5)})
    alone, later = evidence(prowd={100: (1.0, 1.0)}), evidence(prowd={101: (1.0, 1.0)})
    found = {"as-it-is": base, "mask-without-limit": mask, "squared-loss": loss}
    _, _, *rows = overview(found).splitlines()
    assert rows == [
        "| as the presets have it | 46.0 / 44.0 | 45.0 / 47.0 | +1.0 | +0.0 |",
        "| squared error at Int8 | 30.0 / 31.0 | 36.5 / 37.5 | +6.5 | +0.0 |",
        "| masks drop what they like (Eq. 8) |  | 40.0 / 48.0 | -1.0 | +0.0 |",
    ]
    assert overview({**found, "mask-half": later, "no-logit-scale": alone}) == overview(found), "no FedAvg of that seed"
    assert "as-it-is" in overview({"squared-loss": loss})


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
