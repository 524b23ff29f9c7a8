"""All cases for the driver of the C core, by what they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tests.embedded import cases, graphs, limits

__all__ = ["GROUPS", "all_cases"]

GROUPS: dict[str, Callable[[Random, int], Iterator[cases.Case]]] = {
    "rounds": lambda random, times: cases.random_rounds(random, 120 * times),
    "rounds of graphs": lambda random, times: graphs.graph_rounds(random, 120 * times),
    "graphs that are refused": lambda *_: graphs.graph_checks(),
    "many positions": lambda random, _: limits.many_positions(random),
    "equal codes": lambda random, _: limits.equal_codes(random),
    "wide padding": lambda random, _: limits.wide_padding(random),
    "largest sums": lambda *_: limits.extremes(),
    "networks that are refused": lambda *_: limits.checks(),
    "shifts": lambda random, _: cases.shifts(random),
    "steps": lambda random, times: cases.steps(random, 3000 * times),
    "updates": lambda random, times: cases.updates(random, 150 * times),
    "losses": lambda random, times: cases.losses(random, 60 * times),
    "images": lambda random, times: cases.varied(random, 80 * times),
}


def all_cases(seed: int = 0, times: int = 1) -> list[cases.Case]:
    """Those of every group, ``times`` as many of those that are random."""
    return [case for make in GROUPS.values() for case in make(Random(seed), times)]
