"""Comparing methods: all runs of a plan in parallel, and the table they come to."""

from prowd.comparison.intervals import Estimate, estimate
from prowd.comparison.outcomes import Outcome, Row, collect, tabulate
from prowd.comparison.plan import Plan, PlannedRun, make_plan
from prowd.comparison.runner import Onlooker, execute
from prowd.comparison.whole import Comparison, cores_for, make

__all__ = [
    "Comparison",
    "Estimate",
    "Onlooker",
    "Outcome",
    "Plan",
    "PlannedRun",
    "Row",
    "collect",
    "cores_for",
    "estimate",
    "execute",
    "make",
    "make_plan",
    "tabulate",
]
