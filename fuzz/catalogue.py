"""The targets by their names."""

from __future__ import annotations

from fuzz.configurations import CONFIG
from fuzz.messages import ADMIT, WIRE_TASK, WIRE_UPDATE
from fuzz.targets import Target

__all__ = ["TARGETS"]

TARGETS: dict[str, Target] = {"wire-update": WIRE_UPDATE, "wire-task": WIRE_TASK, "admit": ADMIT, "config": CONFIG}
