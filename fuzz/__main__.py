"""Fuzz what comes from outside, guided by coverage. Run with ``make fuzz`` or ``python -m fuzz``.

wire-update    an update as it is decoded: WireError is the only error, what decodes encodes to the same bytes, numbers
               are what their width allows, and memory is bounded by the length of the message
wire-task      the same of a task
admit          an update as the server admits it: what is admitted is as agreed, besides
config         a TOML file as it is loaded: ConfigError is the only error, and what loads can be written out and loads
               to the same; no code is run that a file names, but for prowd's own

Inputs are mutated by libFuzzer (atheris, which has wheels for Linux). Most messages then get right lengths and
checksums, as from a hostile sender, and most files right syntax, so that it is the inside that is fuzzed. What reached
new code is kept in a folder, and the next run begins with it.

The first crash ends a target: its input is kept, the traceback printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from platformdirs import user_cache_path

from fuzz.catalogue import TARGETS
from fuzz.running import Outcome, fuzz

TITLES = ("target", "seconds", "executions", "edges", "features", "corpus", "crashes")
EXAMPLES = """examples:
  python -m fuzz --seconds 20                          all targets, 20 seconds each
  python -m fuzz wire-update admit --seconds 3600
  python -m fuzz config --replay FILE                  an input that crashed, once more and without atheris
"""


def main() -> None:
    """Fuzz and print what came of it."""
    parser = argparse.ArgumentParser(
        "python -m fuzz", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("targets", nargs="*", metavar="TARGET", help=f"{', '.join(TARGETS)} (default: all)")
    add("--seconds", type=positive, default=200, metavar="N", help="seconds for each target (default 200)")
    add("--folder", type=Path, default=user_cache_path("prowd") / "fuzz", help="where inputs are kept (%(default)s)")
    add("--replay", type=Path, metavar="FILE", help="give this input to one target, once, and do not fuzz")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.targets if name not in TARGETS]
    if unknown:
        parser.error(f"there is no target {unknown[0]!r}; accepted: {', '.join(TARGETS)}")
    if arguments.replay:
        if len(arguments.targets) != 1 or not arguments.replay.is_file():
            parser.error("--replay needs a file, and one target: the one that crashed")
        accepted = TARGETS[arguments.targets[0]].check(arguments.replay.read_bytes())
        print("accepted" if accepted else "refused")
        return
    if importlib.util.find_spec("atheris") is None:
        parser.exit(1, "atheris is not installed; make fuzz does it, or pip install -c constraints.txt -e '.[fuzz]'\n")
    sys.exit(run(arguments.targets or list(TARGETS), arguments.seconds, arguments.folder.expanduser().resolve()))


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    if int(text) < 1:
        raise ValueError
    return int(text)


def run(names: Sequence[str], seconds: int, folder: Path) -> int:
    """Fuzz one target after the other; return the exit code."""
    print(f"{seconds} seconds for each of {', '.join(names)}; inputs are kept in {folder}", flush=True)
    print("".join(cells(TITLES)), flush=True)
    outcomes: list[Outcome] = []
    for name in names:
        outcomes.append(fuzz(name, TARGETS[name], seconds, folder))
        print("".join(cells(outcomes[-1].row)), flush=True)
    failed = [outcome for outcome in outcomes if outcome.code]
    for outcome in failed:
        print(f"\n{outcome.problem()}")
    return int(bool(failed))


def cells(row: Sequence[str | int]) -> list[str]:
    """A row of the table."""
    return [f"{row[0]:<12}", *(f"{cell:>12}" for cell in row[1:])]


if __name__ == "__main__":
    main()
