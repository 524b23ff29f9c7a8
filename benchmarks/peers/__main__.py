"""Prowd against a bare loop, Flower and pfl. Run with ``python -m benchmarks.peers``; ten minutes after installation.

A FedAvg round of 10 Float32 clients, with 20 and with 200 local steps each, by everyone in one run: the same network
(VGG-7 at 1/8 width on 16×16 images), generated data, batches of 32, SGD with momentum under weight normalization, no
augmentation. Nobody evaluates, but for prowd, which cannot be told not to in its first and last round: on ten images.
Everyone has two threads:

prowd     two worker processes
bare      a loop over the clients in one process, plain torch; bare1 is the same on one thread
flower    Flower's simulation on Ray: two actors
pfl       Apple's pfl, its simulated backend in one process

and everyone is measured as a process that is started, runs its rounds, and ends:

warm round      seconds of a round after the first, the least of all
whole command   seconds from the start of the process to its exit, the least of all; 5 rounds of 20 steps, 3 of 200
processor time  of that command on all cores, which others who want the processor hardly change
peak memory     the most that the process and all its descendants hold at one time, shared pages counted once (Linux)

The mixed federation, of prowd and Flower only: 5 Int8 and 5 Float32 clients, 50 local steps, 10 rounds, FedAvg, the
same data, batches and float training. Flower has no integer clients, so its Int8 ones round weights and activations
to 8 bits in floats, as a user writes it (simulated.py), and its strategy averages the floats that all of them send.
After every round each server measures its model at both widths on 500 images:

to accuracy     seconds of all rounds until the mean of both is 70 %, and how many rounds that takes
bytes           of all clients' tensors a round, as they are serialized; in prowd of the whole messages

Times mean nothing across machines, so what counts is the ratio (×) to prowd in the same run: above 1, prowd is better.
Measurements are taken in turn. Two threads that wait for each other suffer more than two processes when a third wants
a core, so the machine should have nothing else to do: a run during which others had over 5 % of the processor is taken
again, counts only where there is no better one, and is then named (Linux). Whoever did not take every step, or ended
with another loss than prowd, is left out and named; so is whoever cannot be installed or run, with the reason.

Flower and pfl are installed with pip into environments of their own, once, with the torch and numpy of constraints.txt.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from platformdirs import user_cache_path

from benchmarks.peers.contest import CONTESTANTS, JOBS, PROWD, Contest, Contestant, Job
from benchmarks.peers.measure import PeerError
from benchmarks.peers.table import as_json, as_text

EXAMPLES = """examples:
  python -m benchmarks.peers
  python -m benchmarks.peers --jobs 20 --peers bare           nothing to install, one minute
  python -m benchmarks.peers --jobs mixed --peers flower      the mixed federation alone
  python -m benchmarks.peers --peers flower,pfl --json peers.json
"""


def peers(text: str) -> list[Contestant]:
    """Read who takes part."""
    accepted = [name for name in CONTESTANTS if name != PROWD.name]
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in accepted]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is unknown; accepted: some of {','.join(accepted)}")
    return [PROWD, *(CONTESTANTS[name] for name in accepted if name in names)]


def jobs(text: str) -> list[Job]:
    """Read which of the jobs are done."""
    chosen = [part.strip() for part in text.split(",")]
    if not set(chosen) <= set(JOBS):
        raise argparse.ArgumentTypeError(f"{text!r} is wrong; accepted: some of {','.join(JOBS)}")
    return [job for name, job in JOBS.items() if name in chosen]


def count(text: str, least: int = 0) -> int:
    """Read a count."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is wrong; accepted: {least} or more")
    return int(text)


def main() -> None:
    """Hold the contest and print its table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    everyone = ",".join(name for name in CONTESTANTS if name != PROWD.name)
    usual = ", ".join(f"{job.repeats} of {name}" for name, job in JOBS.items())
    add = parser.add_argument
    add("--peers", type=peers, default=everyone, help=f"whom to measure besides prowd (default {everyone})")
    add("--jobs", type=jobs, default=",".join(JOBS), help="local steps a round, or mixed (default 20,200,mixed)")
    add("--repeats", type=partial(count, least=1), help=f"processes timed of each kind, in turn (default {usual})")
    add("--retakes", type=count, default=1, help="times that a disturbed run is taken again (default 1)")
    add("--cache", type=Path, default=user_cache_path("prowd") / "peers", help="folder of the peers' environments")
    add("--json", type=Path, metavar="FILE", help="write everything measured to a file as well")
    arguments = parser.parse_args()
    chosen = [replace(job, repeats=arguments.repeats or job.repeats) for job in arguments.jobs]
    contest = Contest(arguments.retakes)
    try:
        contest.hold(arguments.peers, chosen, arguments.cache.expanduser().resolve())
    except PeerError as failure:
        sys.exit(f"prowd itself could not be measured: {failure}")
    print(as_text(contest))
    for name, problem in contest.problems.items():
        print(f"\n{CONTESTANTS[name].title} was left out: {problem}")
    if arguments.json:
        arguments.json.write_text(json.dumps(as_json(contest), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
