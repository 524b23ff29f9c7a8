"""One target fuzzed for some time in a process of its own, and what came of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from fuzz.targets import Target

__all__ = ["Outcome", "fuzz"]

LIMITS = ("-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1")


@dataclass(frozen=True)
class Outcome:
    """What libFuzzer said at the end; numbers that it did not get to say are 0."""

    name: str
    code: int
    seconds: float
    log: str

    def number(self, pattern: str) -> int:
        """The last number that follows a pattern."""
        found = re.findall(rf"{pattern}(\d+)", self.log)
        return int(found[-1]) if found else 0

    @property
    def row(self) -> tuple[str | int, ...]:
        """What ``TITLES`` name."""
        return (
            self.name,
            self.number(r"Done \d+ runs in ") or round(self.seconds),
            self.number("stat::number_of_executed_units: *") or self.number("(?m:^)#"),
            self.number(" cov: "),
            self.number(" ft: "),
            self.number(" corp: "),
            int(self.code != 0),
        )

    def problem(self) -> str:
        """The traceback of what went wrong, or the end of the log, and the input that did it."""
        traceback = re.search(r"=== Uncaught Python exception: ===\n(.*?)\n==\d+==", self.log, re.DOTALL)
        text = traceback[1].strip() if traceback else "\n".join(self.log.splitlines()[-30:])
        inputs = re.findall(r"Test unit written to (.+)", self.log)
        again = f"input: {inputs[-1]}\nagain: python -m fuzz {self.name} --replay {inputs[-1]}" if inputs else ""
        return f"{self.name} failed (exit code {self.code}):\n\n{text}\n\n{again}".rstrip()


def fuzz(name: str, target: Target, seconds: int, where: Path) -> Outcome:
    """Fuzz a target; its corpus stays in a folder and is begun with the next time."""
    corpus, seeds, crashes = (where / name / part for part in ("corpus", "seeds", "crashes"))
    for made in (corpus, seeds, crashes):
        made.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (seeds / f"{number:03}").write_bytes(seed)
    words = where / name / "words"
    words.write_text("".join(f'"{escaped(word)}"\n' for word in target.words()), "utf-8")
    limits = [*LIMITS, f"-max_total_time={seconds}", f"-max_len={target.longest}", f"-artifact_prefix={crashes}/"]
    command = [sys.executable, "-m", "fuzz.inside", name, *limits, f"-dict={words}", str(corpus), str(seeds)]
    log = where / name / "log"
    with tempfile.TemporaryDirectory() as temporary, log.open("wb") as file:
        environment = {**os.environ, "TMPDIR": temporary, "OMP_NUM_THREADS": "1"}
        begun = time.perf_counter()
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment, check=False)
    return Outcome(name, done.returncode, time.perf_counter() - begun, log.read_text("utf-8", "replace"))


def escaped(word: str) -> str:
    """A word as libFuzzer's dictionaries have it."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02X}" for byte in word.encode())
