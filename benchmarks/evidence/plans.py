"""What is run: the paper's comparisons, and what explains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.evidence.controls import MoversSwa, RandomSwa
from benchmarks.evidence.suspects import AS_IT_IS, SUSPECTS
from prowd.config.files import read_suggestion
from prowd.methods import ProWDSwa

__all__ = ["EQUALS", "PLANS", "SCREENED", "Plan"]

FEW = ("local", "fedavg", "fedpaq", "fedgroupedavg-asymmetric", "prowd")
MORE = ("prowd-deq", "prowd-swa", "prowd-plus")
HALF, MOST = "table1-50-50-cpu", "table1-80-20-cpu"
TERNARY = {"options.fedpaq": {"bits": "uplink"}}  # FedPAQ at the bytes of the others
EQUALS = {HALF: ("fedpaq-ternary", "fedcom-small-steps"), MOST: ("fedpaq-ternary-80-20", "fedcom-small-steps-80-20")}
"""Where rivals of our own method are to be found at its bytes, and with its step."""
GOAL = ("fedavg", "fedpaq", "prowd", "prowd-plus")  # our own method, and those that it is to be above
SCALED = {"float32.update_exponent": 2, "float32.lr": 0.03}
SMALL = {"options.fedcom": {"gamma": 1.5, "bits": "uplink"}}
FULL = {"options.fedgroupedavg": {"scale_rate": False}}
MOVED = {"options.prowd": {"sparsity_of": "moved"}}
SELECTS = {method: (method, "fedavg") for method in ("prowd", "prowd-swa")}
MOVES, GOES_FURTHER = {"fedpaq": ("fedpaq", "fedavg")}, {"fedcom": ("fedpaq",)}
SCREENED = "suspects/"
SCREEN = {"validation": 5000, "evaluate_every": 16}  # only what a run comes to is looked at


@dataclass(frozen=True)
class Plan:
    """A comparison: some methods of a preset, with some settings changed."""

    preset: str
    methods: Sequence[str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    than: str = ""
    """Another comparison to hold it against than that of its preset."""
    seeds: Sequence[int] = (0, 1, 2)
    rivals: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What to hold some of its methods against, instead of themselves only."""

    @property
    def against(self) -> str:
        """The comparison that it is held against, if any: it may have the same methods without the settings."""
        return self.than or (self.preset if self.settings else "")


def _plus(preset: str, end: str) -> dict[str, Plan]:
    """Our own method with one part changed, each held against what it is without."""
    parts: dict[str, dict[str, Any]] = {
        "one-step": {"gamma": 1.0},
        "nearest": {"level": "nearest"},
        "feedback": {"level": "nearest", "feedback": True},
        "blend": {"blend": 1},
        "mask": {"sparsity": 0.2},
        "weights": {"message": "weights"},
        "phi": {"message": "weights", "refine": "phi"},
    }
    than = {"feedback": f"plus-nearest{end}", "phi": f"plus-weights{end}"}
    settings = {name: {"options.prowd-plus": options} for name, options in parts.items()} | {
        "rescaled": {"rescale": "layer"}
    }
    return {
        f"plus-{name}{end}": Plan(preset, ("prowd-plus",), changed, than.get(name, ""))
        for name, changed in settings.items()
    }


def _control(preset: str, control: type[ProWDSwa]) -> Plan:
    """Masks of the same sizes by another rule, against those of ProWD, and against none."""
    method = f"{control.__module__}:{control.__name__}"
    return Plan(preset, (method,), than=preset, rivals={control.name: ("prowd-swa", "fedavg")})


PLANS: dict[str, Plan] = {
    HALF: Plan(HALF, (*read_suggestion(HALF).methods, *MORE)),
    MOST: Plan(MOST, (*read_suggestion(MOST).methods, *MORE)),
    "table2-cpu": Plan("table2-cpu", FEW),
    "multibit-cpu": Plan("multibit-cpu", FEW),
    # What a single choice does
    "scaled-steps": Plan(HALF, GOAL, {**SCALED, **TERNARY}, rivals={"fedpaq": ()}),
    "scaled-steps-80-20": Plan(MOST, GOAL, {**SCALED, **TERNARY}, rivals={"fedpaq": ()}),
    "fedpaq-ternary": Plan(HALF, ("fedpaq",), TERNARY, rivals=MOVES),
    "fedpaq-ternary-80-20": Plan(MOST, ("fedpaq",), TERNARY, rivals=MOVES),
    "grouped-full-rates": Plan(HALF, ("fedgroupedavg",), FULL),
    "grouped-full-rates-80-20": Plan(MOST, ("fedgroupedavg",), FULL),
    "grouped-full-rates-multibit": Plan(
        "multibit-cpu", ("fedgroupedavg-asymmetric",), {"options.fedgroupedavg-asymmetric": {"scale_rate": False}}
    ),
    "constant-rate": Plan("table2-cpu", ("fedavg", "prowd"), {"lowbit.rate_scaling": "constant"}),
    "fifth-of-moved": Plan(HALF, tuple(SELECTS), MOVED, rivals=SELECTS),
    "fifth-of-moved-80-20": Plan(MOST, tuple(SELECTS), MOVED, rivals=SELECTS),
    "random-masks": _control(HALF, RandomSwa),
    "random-masks-80-20": _control(MOST, RandomSwa),
    "movers-dropped-80-20": _control(MOST, MoversSwa),
    "fedcom-small-steps": Plan(HALF, ("fedcom",), SMALL, than="fedpaq-ternary", rivals=GOES_FURTHER),
    "fedcom-small-steps-80-20": Plan(MOST, ("fedcom",), SMALL, than="fedpaq-ternary-80-20", rivals=GOES_FURTHER),
    "eq8-without-limit": Plan(HALF, ("prowd", "prowd-swa"), {"options.prowd": {"sparsity": 1.0}}),
    **_plus(HALF, ""),
    **_plus(MOST, "-80-20"),
    # What the paper leaves open
    **{
        f"{SCREENED}{name}": Plan(
            HALF, suspect.methods, {**SCREEN, **suspect.settings}, than=f"{SCREENED}{AS_IT_IS}", seeds=(100,)
        )
        for name, suspect in SUSPECTS.items()
    },
}
