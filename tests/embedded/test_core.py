"""The plain C core against the oracle, as a device runs it: without Python, in the memory it asked for."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from tests.embedded.driver import CORE, answers, compiled, compiler
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
