"""Comparing methods: all runs of a plan in parallel, and their table."""

from prowd.comparison.intervals import Estimate, estimate
from prowd.comparison.outcomes import Outcome, Row, collect, tabulate
from prowd.comparison.plan import Plan, PlannedRun, make_plan
from prowd.comparison.runner import ComparisonObserver, execute
from prowd.comparison.whole import Comparison, cores_for, make

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
