"""The choices that the paper leaves open, and the scale, each changed alone: which keeps its claims from holding?

A screening, on validation data and a seed that is reported nowhere else: it finds causes of several points, not of one.
Its ProWD is that of the published tables, whose masks drop at most a fifth of the entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from experiments.reading import Evidence
from prowd.comparison import Outcome

__all__ = ["AS_IT_IS", "SUSPECTS", "Suspect", "overview"]

OURS = ("experiments/masks/method.py:LimitedProWD",)
BOTH = ("fedavg", *OURS)
AS_IT_IS = "as-it-is"


@dataclass(frozen=True)
class Suspect:
    """A choice in words, the settings that make it, and the methods that it concerns."""

    choice: str
    settings: Mapping[str, Any]
    methods: Sequence[str] = BOTH
    """Empty if the choice has been removed from the code: what was found is still shown."""

    @property
    def concerns_fedavg(self) -> bool:
        """Whether FedAvg has to be run again with it."""
        return "fedavg" in self.methods


def _ours(choice: str, **options: Any) -> Suspect:
    return Suspect(choice, {"options.prowd-limited": options}, OURS)


def _phi(choice: str, **settings: Any) -> Suspect:
    return _ours(choice, dequantizer=settings)


SUSPECTS = {
    AS_IT_IS: Suspect("as the presets have it", {}),
    "steps-alpha-squared": Suspect("Float32 steps of 0.03·α²", {"float32.update_exponent": 2, "float32.lr": 0.03}),
    "no-momentum": Suspect("no momentum to reset, ten times the rate", {"float32.momentum": 0.0, "float32.lr": 1.0}),
    "local-gains": Suspect("gains stay on their devices", {"float32.gains": "local"}),
    "squared-loss": Suspect("squared error at Int8", {"lowbit.loss": "squared"}),
    "no-logit-scale": Suspect("no logit scale at Int8", {"lowbit.logit_scale": 1.0}),
    "rescale-layer": Suspect("v rescaled by layer", {"rescale": "layer"}),
    "mask-without-limit": _ours("masks drop what they like (Eq. 8)", sparsity=1.0),
    "mask-half": _ours("masks drop at most half", sparsity=0.5),
    "mask-zeros-kept": _ours("masks keep what did not move", zeros="keep"),
    "mask-global": _ours("one mask for all tensors", scope="global"),
    "literal-mean": Suspect("1/M·Σ c⊙w, as printed", {}, ()),
    "phi-printed": _phi("φ's block as printed", form="printed"),
    "phi-schedule": _phi("φ by SGD at 0.01, 5 epochs of 16", optimizer="sgd", lr=0.01, epochs=5, batch=16),
    "phi-tau": _phi("φ's τ = 0.3", tau=0.3),
    "more-rounds": Suspect("48 rounds instead of 16", {"rounds": 48}),
}


def overview(found: Mapping[str, Evidence]) -> str:
    """A row for each choice that has been tried; where FedAvg has nothing to do with it, its runs are those without."""
    base = found.get(AS_IT_IS)
    if base is None or "fedavg" not in base.outcomes:
        return f"what the choices change cannot be said without {AS_IT_IS}"
    lines = ["| choice | FedAvg | ProWD | average of ProWD − FedAvg | as received |", "|---|---:|---:|---:|---:|"]
    for name, suspect in SUSPECTS.items():
        runs = found[name].outcomes if name in found else {}
        fedavg = (runs if suspect.concerns_fedavg else base.outcomes).get("fedavg", {})
        prowd = next((those for method, those in runs.items() if method != "fedavg"), {})  # results/ calls it prowd
        seeds = sorted(set(fedavg) & set(prowd))
        if not seeds:
            continue
        trained = mean(prowd[seed].average - fedavg[seed].average for seed in seeds)
        received = mean(prowd[seed].average_received - fedavg[seed].average_received for seed in seeds)
        own = _accuracies(fedavg, seeds) if suspect.concerns_fedavg else ""
        lines.append(f"| {suspect.choice} | {own} | {_accuracies(prowd, seeds)} | {trained:+.1f} | {received:+.1f} |")
    return "\n".join(lines)


def _accuracies(runs: Mapping[int, Outcome], seeds: Sequence[int]) -> str:
    widths = next(iter(runs.values())).trained
    return " / ".join(f"{mean(runs[seed].trained[width] for seed in seeds):.1f}" for width in widths)
