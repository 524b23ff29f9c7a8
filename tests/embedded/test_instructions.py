"""The instructions that ``benchmarks.embedded`` counts are those of the client, on any machine and however busy."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.embedded import LOOP, TICK, count
from prowd.embedded.build import lacking
from prowd.methods.plus import ProWDPlus
from prowd.runs.firmware import Firmware
from tests.embedded.clients import case_of

BOARD = "cortex-m3"


@pytest.mark.skipif(lacking(BOARD) is not None, reason=f"there is no {lacking(BOARD)}")
def test_the_same_work_is_the_same_number_of_instructions(tmp_path: Path) -> None:
    case = case_of("watch", 8, ProWDPlus(), tmp_path, batch=4)
    made = Firmware(case.plan, case.written(tmp_path), case.runtime)
    two, again, three = (count(made, tmp_path, BOARD, steps) for steps in (2, 2, 3))
    assert two == again
    assert abs(two.loop - LOOP) <= 2 * TICK
    assert two.steps == three.steps[:2]
    multiplications = 4 * sum(stage.weights for stage in case.plan.stages)  # at the very least, once an image
    assert min(three.steps) > multiplications
    assert len(set(three.steps)) > 1  # no constant: how many places of an image are zero changes
