"""The vector kernels as a program of its own: on this CPU, and on Arm's under QEMU."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from prowd.embedded.build import TARGETS, lacking
from tests.embedded.driver import TIMEOUT, compiler, compiler_for
from tests.embedded.vectors import FLAGS, cases

SETS = {
    "max": ["neondot", "neon", "portable"],
    "cortex-a76": ["neondot", "neon", "portable"],
    "cortex-a72": ["neon", "portable"],
}
HERE = {"x86_64": ["avx512vnni", "avx2", "portable"], "aarch64": ["neondot", "neon", "portable"]}


def compiled(folder: Path, by: list[str]) -> Path:
    """Compile the program."""
    program = folder / "vectors"
    subprocess.run([*by, *FLAGS, "-o", str(program)], check=True, capture_output=True, text=True)
    return program


def said_by(command: list[str], question: str = "") -> list[str]:
    """Lines that a program prints."""
    ran = subprocess.run(command, input=question, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout.splitlines()


def check(command: list[str]) -> list[str]:
    """Compare all instruction sets of a CPU with the oracle; return them."""
    asked, names = cases(), said_by(command)
    questions = "\n".join(case.question for case in asked)
    for name in names:
        found = said_by([*command, name], questions)
        assert len(found) == len(asked)
        for number, (case, line) in enumerate(zip(asked, found, strict=True)):
            assert [int(part) for part in line.split()] == case.expected, f"{name}, case {number}"
    return names


@pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
@pytest.mark.skipif(platform.machine() not in HERE, reason="there are no vector kernels for this CPU")
def test_this_cpu_computes_what_the_oracle_does(tmp_path: Path) -> None:
    names = check([str(compiled(tmp_path, [compiler() or "cc"]))])
    expected = HERE[platform.machine()]
    assert names == [name for name in expected if name in names]
    assert "portable" in names or not names


@pytest.fixture(scope="module")
def for_arm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if missing := lacking("aarch64"):
        pytest.skip(f"there is no {missing}")
    return compiled(tmp_path_factory.mktemp("arm"), compiler_for("aarch64"))


@pytest.mark.parametrize("cpu", SETS)
def test_arm_computes_what_the_oracle_does(cpu: str, for_arm: Path) -> None:
    assert check([TARGETS["aarch64"].emulator, "-cpu", cpu, str(for_arm)]) == SETS[cpu]
