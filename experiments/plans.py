"""What is run: the paper's comparisons, and what explains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.suspects.plan import AS_IT_IS, SUSPECTS
from prowd.config.files import read_suggestion

__all__ = ["EQUALS", "PLANS", "SCREENED", "Plan"]

FEW = ("local", "fedavg", "fedpaq", "fedgroupedavg-asymmetric", "prowd")
MORE = ("prowd-deq", "prowd-swa", "prowd-plus")
HALF, MOST = "table1-50-50-cpu", "table1-80-20-cpu"
TERNARY = {"options.fedpaq": {"bits": "uplink"}}  # FedPAQ at the bytes of the others
EQUALS = {HALF: ("fedpaq-ternary", "fedcom-small-steps"), MOST: ("fedpaq-ternary-80-20", "fedcom-small-steps-80-20")}
"""Where rivals of our own method are to be found at its bytes, and with its step."""
PEOPLE, FIVE = ("local", "fedavg", "fedpaq", "prowd", "prowd-swa", "prowd-plus"), (0, 1, 2, 3, 4)
SMALL = {"options.fedcom": {"gamma": 1.5, "bits": "uplink"}}
FULL = {"options.fedgroupedavg": {"scale_rate": False}}
ONE_STEP = {"options": {"gamma": 1.0}}
CONSTANT = {"lowbit.rate_scaling": "constant"}
MASKS = "experiments/masks/method.py"
LIMITED = (f"{MASKS}:LimitedProWD", f"{MASKS}:LimitedSwa")
"""The ProWD of the published tables: before Eq. 8 lost its limit, these were its defaults, to the bit."""
MOVED = {"options": {"sparsity_of": "moved"}}
SELECTIVE = ("prowd-swa", "prowd-swa-limited", "fedavg")
LIMITS = {  # results/ has the limited methods by the names that they had
    **{method: (method, "fedavg") for method in ("prowd", "prowd-swa")},
    **{f"{method}-limited": (method, f"{method}-limited", "fedavg") for method in ("prowd", "prowd-swa")},
}
MOVES, GOES_FURTHER = {"fedpaq": ("fedpaq", "fedavg")}, {"fedcom": ("fedpaq",)}
SCREENED = "suspects/"
SCREEN = {"validation": 5000, "evaluate_every": 16}  # only the final accuracies are looked at


@dataclass(frozen=True)
class Plan:
    """A comparison: a question, and some methods of a preset, with some settings changed."""

    question: str
    preset: str
    methods: Sequence[str]
    """Empty where the code was removed after commit 02f3ffd: what was found is still judged."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    than: str = ""
    """Another comparison to compare it with than that of its preset."""
    seeds: Sequence[int] = (0, 1, 2)
    rivals: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What to compare some of its methods with, instead of themselves only."""

    @property
    def against(self) -> str:
        """The comparison that it is compared with, if any: it may have the same methods without the settings."""
        return self.than or (self.preset if self.settings else "")


def _table1(preset: str, mix: str) -> Plan:
    methods = (*read_suggestion(preset).methods, *MORE, *LIMITED)
    return Plan(f"the paper's Table 1, {mix}: is ProWD above the others?", preset, methods)


def _control(question: str, control: str, name: str) -> Plan:
    """Masks of the same sizes by another rule, against those of ProWD, and against none."""
    return Plan(question, MOST, (f"{MASKS}:{control}",), than=MOST, rivals={name: SELECTIVE})


def _ternary(preset: str) -> Plan:
    return Plan("FedPAQ at FedAvg's bytes: what do movements bring?", preset, ("fedpaq",), TERNARY, rivals=MOVES)


def _small_steps(preset: str, than: str) -> Plan:
    question = "FedCOM with ternary movements and γ = 1.5: what does the step bring?"
    return Plan(question, preset, ("fedcom",), SMALL, than=than, rivals=GOES_FURTHER)


def _screened(name: str) -> Plan:
    suspect, than = SUSPECTS[name], f"{SCREENED}{AS_IT_IS}"
    settings = {**SCREEN, **suspect.settings}
    return Plan(f"a choice left open: {suspect.choice}", HALF, suspect.methods, settings, than=than, seeds=(100,))


PLANS: dict[str, Plan] = {
    HALF: _table1(HALF, "half Int8, half Float32"),
    MOST: _table1(MOST, "four fifths Int8"),
    "table2-cpu": Plan("the paper's Table 2: integers that send all their bits", "table2-cpu", FEW),
    "multibit-cpu": Plan("the paper's multi-bit figure: the same with Float32", "multibit-cpu", FEW),
    "watch": Plan(
        "watches and phones: what does each method bring for people nobody has seen?", "watch", PEOPLE, seeds=FIVE
    ),
    # What a single choice does
    "scaled-steps": Plan("Float32 steps scaled by α²? (now they are)", HALF, (), than=HALF, rivals={"fedpaq": ()}),
    "fedpaq-ternary": _ternary(HALF),
    "fedpaq-ternary-80-20": _ternary(MOST),
    "grouped-full-rates-80-20": Plan("is it the rate that grouping suffers by?", MOST, ("fedgroupedavg",), FULL),
    "constant-rate": Plan("one η for all widths?", "table2-cpu", ("fedavg", "prowd"), CONSTANT, seeds=(0,)),
    "fifth-of-moved-80-20": Plan("masks that drop a fifth of what moved?", MOST, LIMITED, MOVED, rivals=LIMITS),
    "random-masks-80-20": _control("does it matter what a mask drops?", "RandomSwa", "prowd-swa-random"),
    "movers-dropped-80-20": _control("do masks just drop what moved?", "MoversSwa", "prowd-swa-movers"),
    "fedcom-small-steps": _small_steps(HALF, "fedpaq-ternary"),
    "fedcom-small-steps-80-20": _small_steps(MOST, "fedpaq-ternary-80-20"),
    # Our own method with one part changed, each compared with what it is without
    "plus-mask": Plan("masks on movements? (code: 02f3ffd)", HALF, (), than=HALF),
    "plus-one-step-80-20": Plan("one model with γ = 1?", MOST, ("experiments/plus/one_model.py:OneModel",), ONE_STEP),
    "plus-weights-80-20": Plan(
        "ternary weights, refined by what was sent, instead of movements?",
        MOST,
        ("experiments/plus/method.py:RefinedWeights",),
        than=MOST,
        rivals={"prowd-plus-weights": ("prowd-plus",)},
    ),
    "plus-phi-80-20": Plan("a φ that reads what was sent? (code: 02f3ffd)", MOST, (), than="plus-weights-80-20"),
    **{f"{SCREENED}{name}": _screened(name) for name in SUSPECTS},
}
