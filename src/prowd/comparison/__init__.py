"""Comparing methods: all runs of a plan in parallel, and their table."""

from prowd.comparison.outcomes import Estimate, Outcome, Row, collect, estimate, tabulate
from prowd.comparison.plan import Plan, PlannedRun, make_plan
from prowd.comparison.runner import Comparison, ComparisonObserver, cores_for, execute, make

__all__ = [
    "Comparison",
    "ComparisonObserver",
    "Estimate",
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
