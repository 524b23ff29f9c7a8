"""What is run: the paper's comparisons, what explains them, and rivals of our own method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prowd.config.files import read_suggestion
from prowd.methods import find_method

__all__ = ["ELSEWHERE", "PLANS", "Plan"]

HALF, MOST = "table1-50-50-cpu", "table1-80-20-cpu"
MIXES = {HALF: "", MOST: "-80-20"}  # and what the names of experiments on them end with
MORE_SEEDS = dict.fromkeys(("fedavg", "prowd-swa", "prowd", "prowd-plus"), (3, 4))
FEW = ("local", "fedavg", "fedpaq", "fedgroupedavg-asymmetric", "prowd", "prowd-plus")
GROUPED = ("fedgroupedavg", "fedgroupedavg-asymmetric")
ONE_MODEL = "experiments/plus/one_model.py:OneModel"
PUBLIC = tuple(f"experiments/rivals/method.py:{name}" for name in ("FedAvgM", "FedAdam", "LptFl", "FedWsq"))
OURS = ("prowd-plus", "fedavg")
PEOPLE = ("local", "fedavg", "fedpaq", "prowd", "prowd-swa", "prowd-plus")


@dataclass(frozen=True)
class Plan:
    """A comparison: a question, and some methods of a preset, with some settings changed."""

    question: str
    preset: str
    methods: Sequence[str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    against: str = ""
    """The comparison with which it is compared: with its own methods there, which lack the settings, and others."""
    rivals: Sequence[str] = ()
    """These others."""
    seeds: Sequence[int] = (0, 1, 2)
    more: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Methods that have further seeds."""

    def narrowed(self, methods: Sequence[str] | None, seeds: Sequence[int] | None) -> Plan:
        """The plan with some of its methods, and with other seeds; everything where None is given."""
        few = [one for one in self.methods if methods is None or {one, find_method(one).name} & set(methods)]
        more = {} if seeds else {one: its for one, its in self.more.items() if one in few}
        return replace(self, methods=few, seeds=seeds or self.seeds, more=more)

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Every run that it asks for, as results have it: the name of a method, and a seed."""
        return [
            (find_method(one).name, seed) for one in self.methods for seed in (*self.seeds, *self.more.get(one, ()))
        ]


def _table1(preset: str, mix: str) -> Plan:
    methods = (*read_suggestion(preset).methods, "prowd-deq", "prowd-swa", "prowd-plus")
    return Plan(f"the paper's Table 1, {mix}: is ProWD above the others?", preset, methods, more=MORE_SEEDS)


def _in_both_mixes(
    name: str, question: str, methods: Sequence[str], rivals: Sequence[str] = ("fedavg",), **options: Any
) -> dict[str, Plan]:
    settings = {"options": options} if options else {}
    return {
        f"{name}{ending}": Plan(question, preset, methods, settings, against=preset, rivals=rivals)
        for preset, ending in MIXES.items()
    }


PLANS: dict[str, Plan] = {
    HALF: _table1(HALF, "half Int8, half Float32"),
    MOST: _table1(MOST, "four fifths Int8"),
    "table2-cpu": Plan("the paper's Table 2: integers that send all their bits", "table2-cpu", FEW),
    "multibit-cpu": Plan("the paper's multi-bit figure: the same with Float32", "multibit-cpu", FEW),
    "watch": Plan(
        "watches and phones: what does each method bring for people nobody has seen?",
        "watch",
        PEOPLE,
        seeds=(0, 1, 2, 3, 4),
    ),
    **_in_both_mixes(
        "fedpaq-ternary", "FedPAQ at FedAvg's bytes: what do movements bring?", ("fedpaq",), bits="uplink"
    ),
    **_in_both_mixes("grouped-full-rates", "is it the rate that grouping suffers by?", GROUPED, scale_rate=False),
    **_in_both_mixes("one-model", "movements with one model for all, γ = 1.5?", (ONE_MODEL,), OURS),
    **_in_both_mixes("rivals", "public rivals over ternary movements?", PUBLIC, OURS),
}

ELSEWHERE = {
    preset: {
        "fedpaq at ternary bytes": (f"fedpaq-ternary{ending}", "fedpaq"),
        **{f"{method} at full rates": (f"grouped-full-rates{ending}", method) for method in GROUPED},
    }
    for preset, ending in MIXES.items()
}
"""Rivals of our own method that other comparisons have: at its bytes, or at their best."""
