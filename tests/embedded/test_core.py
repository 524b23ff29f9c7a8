"""The plain C core against the oracle, as a device runs it: without Python, in the memory it asked for."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from prowd.embedded.build import TARGETS, lacking
from tests.embedded.driver import CORE, answers, compiled, compiler, compiler_for
from tests.embedded.groups import GROUPS

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("core") / "driver")


@pytest.mark.parametrize("group", GROUPS)
def test_the_core_answers_as_the_oracle_does(group: str, driver: Path) -> None:
    asked = list(GROUPS[group](Random(0), 1))
    found = answers(driver, [case.question for case in asked])
    assert len(found) == len(asked)
    for case, numbers in zip(asked, found, strict=True):
        assert numbers == case.expected, case.question[:500]


@pytest.mark.skipif(lacking("aarch64") is not None, reason=f"there is no {lacking('aarch64')}")
def test_another_processor_answers_as_the_oracle_does(tmp_path: Path) -> None:
    """Under QEMU, which needs longer: some cases of those groups that compute."""
    program = compiled(tmp_path / "driver", by=compiler_for("aarch64"))
    groups = ("rounds", "rounds of graphs", "shifts", "steps", "updates", "losses", "images")
    asked = [case for group in groups for case in islice(GROUPS[group](Random(1), 1), 15)]
    found = answers(program, [case.question for case in asked], emulator=[TARGETS["aarch64"].emulator])
    assert found == [case.expected for case in asked]


def test_a_driver_that_fails_is_seen(driver: Path) -> None:
    with pytest.raises(RuntimeError):
        answers(driver, ["nonsense"])


def test_the_core_needs_no_floats_and_no_memory_of_its_own() -> None:
    sources = sorted(CORE.iterdir())
    assert {source.suffix for source in sources} == {".c", ".h"}
    for source in sources:
        words = set(re.findall(r"\w+", source.read_text("utf-8")))
        assert not words & {"float", "double", "malloc", "calloc", "free", "printf"}, source.name
        assert {*re.findall(r"#include <(.+)>", source.read_text("utf-8"))} <= {"stddef.h", "stdint.h", "string.h"}
