"""What is run: the paper's comparisons, and what explains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prowd.settings import read_suggestion

__all__ = ["PLANS", "Plan"]

FEW = ("local", "fedavg", "fedpaq", "fedgroupedavg-asymmetric", "prowd")
MORE = ("prowd-deq", "prowd-swa", "prowd-plus")
HALF, MOST = "table1-50-50-cpu", "table1-80-20-cpu"


@dataclass(frozen=True)
class Plan:
    """A comparison: some methods of a preset, with some settings changed."""

    preset: str
    methods: Sequence[str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    against: str = ""
    """The comparison whose runs of the same methods are the other half of it: what the settings change."""


def _variant(methods: Sequence[str], **settings: Any) -> Plan:
    return Plan(HALF, methods, {name.replace("__", "."): value for name, value in settings.items()}, HALF)


PLANS: dict[str, Plan] = {
    HALF: Plan(HALF, (*read_suggestion(HALF).methods, *MORE)),
    MOST: Plan(MOST, (*read_suggestion(MOST).methods, *MORE)),
    "table2-cpu": Plan("table2-cpu", FEW),
    "multibit-cpu": Plan("multibit-cpu", FEW),
    # What a single choice does, on the federation of Table 1 with as many Int8 as Float32 clients
    "scaled-steps": _variant(("fedavg", "fedpaq", "prowd"), float32__update_exponent=2, float32__lr=0.03),
    "eq8-without-limit": _variant(("prowd", "prowd-swa"), options__prowd={"sparsity": 1.0}),
    "fedpaq-ternary": _variant(("fedpaq",), options__fedpaq={"bits": "uplink"}),
    "grouped-full-rates": _variant(("fedgroupedavg",), options__fedgroupedavg={"scale_rate": False}),
    "plus-given-steps": _variant(("prowd-plus",), **{"options__prowd-plus": {"float_steps": "given"}}),
    "plus-weights": _variant(("prowd-plus",), **{"options__prowd-plus": {"message": "weights"}}),
    "plus-feedback": _variant(("prowd-plus",), **{"options__prowd-plus": {"feedback": True}}),
    "plus-apart": _variant(("prowd-plus",), **{"options__prowd-plus": {"others": 0.5}}),
}
