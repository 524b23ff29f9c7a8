"""Mutation of the C core: which small faults would the tests not see? ``python -m tests.embedded.mutants``.

Faults are put into copies of embedded/core one at a time: another operator or comparison, or a constant that is off by
one. A fault is found when an answer differs from the oracle's, when the driver crashes or does not end, or, of what is
left, when a sanitizer reports it. What survives is listed: either nothing depends on it, or a test is missing.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.embedded.cases import Case
from tests.embedded.driver import CORE, SANITIZERS, answers, compiled
from tests.embedded.groups import all_cases

OTHERS = {
    "<": ("<=", ">"), "<=": ("<", ">="), ">": (">=", "<"), ">=": (">", "<="), "==": ("!=",), "!=": ("==",),
    "+": ("-",), "-": ("+",), "*": ("+",), "/": ("*",), "%": ("/",), "<<": (">>",), ">>": ("<<",),
    "&": ("|",), "|": ("&",), "^": ("&",), "&&": ("||",), "||": ("&&",), "+=": ("-=", "="),
}  # fmt: skip
OPERATOR = re.compile(r"(?<= )(?:<<|>>|<=|>=|==|!=|&&|\|\||\+=|[-+*/%<>&|^])(?= )")
CONSTANT = re.compile(r"(?<![\w.])(?:0x[0-9a-fA-F]+|\d+)(?=u?\b)")
UNSEEN = re.compile(r"/\*.*?\*/|#[^\n]*", re.S)  # comments and the preprocessor's lines
SECONDS = 60


@dataclass(frozen=True)
class Mutant:
    """A place in a file, and what stands there instead."""

    file: str
    start: int
    end: int
    text: str

    def shown(self) -> str:
        """The line as it was, and the change."""
        source = (CORE / self.file).read_text("utf-8")
        number = source.count("\n", 0, self.start) + 1
        column = self.start - (source.rfind("\n", 0, self.start) + 1)
        change = f"{source[self.start : self.end]} -> {self.text}"
        return f"{self.file}:{number}:{column + 1}: {change}   in   {source.splitlines()[number - 1].strip()}"


def mutants() -> Iterator[Mutant]:
    """All faults that can be put in."""
    for path in sorted(CORE.iterdir()):
        source = path.read_text("utf-8")
        seen = UNSEEN.sub(lambda hidden: " " * len(hidden[0]), source)
        for found in OPERATOR.finditer(seen):
            for other in OTHERS[found[0]]:
                yield Mutant(path.name, found.start(), found.end(), other)
        for found in CONSTANT.finditer(seen):
            value = int(found[0], 0)
            for off in sorted({value + 1, abs(value - 1)}):
                yield Mutant(path.name, found.start(), found.end(), str(off))


def outcome(mutant: Mutant, cases: list[Case]) -> str:
    """How a mutant is found: by an answer, a crash, a sanitizer; or that it is not, or that it is no program."""
    with tempfile.TemporaryDirectory() as folder:
        core = Path(folder) / "core"
        shutil.copytree(CORE, core)
        source = (core / mutant.file).read_text("utf-8")
        (core / mutant.file).write_text(source[: mutant.start] + mutant.text + source[mutant.end :], "utf-8")
        for flags in (("-O1",), SANITIZERS):
            try:
                driver = compiled(Path(folder) / "driver", ("-std=c99", "-w", *flags), core)
            except subprocess.CalledProcessError:
                return "is no program"
            try:
                found = answers(driver, [case.question for case in cases], SECONDS)
            except (RuntimeError, subprocess.TimeoutExpired):
                return "crash" if flags != SANITIZERS else "sanitizer"
            if found != [case.expected for case in cases]:
                return "answer" if flags != SANITIZERS else "sanitizer"
    return "survives"


def main() -> None:
    """Try some mutants and list those that survive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="mutants to try (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="of their choice (default 0)")
    parser.add_argument("--workers", type=int, default=2, help="to try at once (default 2)")
    arguments = parser.parse_args()
    cases, everything = all_cases(), list(mutants())
    Random(arguments.seed).shuffle(everything)
    print(f"{len(everything)} mutants can be made; {arguments.count} are tried on {len(cases)} cases", flush=True)
    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(arguments.workers) as pool:
        while counts.total() < arguments.count and everything:
            some = [everything.pop() for _ in range(min(arguments.count - counts.total(), len(everything)))]
            for mutant, how in zip(some, pool.map(lambda one: outcome(one, cases), some), strict=True):
                counts[how] += how != "is no program"
                if how == "survives":
                    print(mutant.shown(), flush=True)
    print("; ".join(f"{how}: {count}" for how, count in counts.most_common() if count))


if __name__ == "__main__":
    main()
