"""Disturb runs at random, and see that each ends as if nobody had: ``make chaos`` or ``python -m tests.chaos``.

Tiny runs are made side by side, by ``prowd run`` and on Flower. Processes are killed (kill -9) and stopped (SIGSTOP),
the disk is full, folders are read-only. Whatever ended is resumed by the command that the user is told, until the
run is complete. Then

- its weights have the hash of the same run undisturbed, and so has its rounds.jsonl every number (a client that was
  lost for good is named there; then the quiet run is made without it too);
- every process that ended by itself ended with one line that begins with "error: ", without a traceback;
- no process and no temporary file is left behind, and nobody waited for ever.

What happens when follows from the seed; what it meets depends on how fast the machine is. Linux only. Root has a
small file system in memory that is really full; others have a limit on the size of files instead. The exit code is 1
if anything was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tests.chaos import local
from tests.chaos.disks import Disk, give_up_powers, small_disk
from tests.chaos.ledger import Ledger
from tests.chaos.plan import FLOWER, LOCAL, LOCALLY, ON_FLOWER, plan
from tests.chaos.programs import wait_for
from tests.chaos.quiet import Quiet
from tests.runs import config_file

FLOWERS_SHARE = 0.15  # a fault takes longer there


class Lane(Protocol):
    """Makes runs and faults until it is enough."""

    disk: Disk

    def work(self) -> None:
        """Do so."""


EVERY = 20.0  # seconds between lines of progress


def main() -> None:
    """Make the faults and print what came of them."""
    parser = argparse.ArgumentParser(
        "python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--faults", type=int, default=200, metavar="N", help="how many faults (default 200)")
    add("--minutes", type=float, default=15, metavar="N", help="no more faults after so long (default 15)")
    add("--seed", type=int, default=secrets.randbelow(10**6), metavar="N", help="what follows from it: all faults")
    add("--lanes", type=int, default=2, metavar="N", help="runs of prowd run at a time (default 2)")
    add("--no-flower", action="store_true", help="prowd run only")
    add("--only", action="append", metavar="FAULT", help=f"only these faults: {', '.join([*LOCAL, *FLOWER])}")
    add("--patience", type=float, default=240, metavar="SECONDS", help="who waits longer, waits for ever (default 240)")
    arguments = parser.parse_args()
    unknown = [kind for kind in arguments.only or () if kind not in {**LOCAL, **FLOWER}]
    if unknown:
        parser.error(f"there is no fault {unknown[0]!r}; accepted: {', '.join([*LOCAL, *FLOWER])}")
    give_up_powers()
    with tempfile.TemporaryDirectory(prefix="prowd-chaos-") as folder:
        sys.exit(run(arguments, Path(folder)))


def run(arguments: argparse.Namespace, folder: Path) -> int:
    """Make all lanes, have them work, and judge; return the exit code."""
    with contextlib.ExitStack() as stack:
        count = arguments.lanes + 2
        disks = [stack.enter_context(small_disk(folder / f"disk-{number}")) for number in range(count)]
        here, there = mixes(arguments, can_fill=disks[0].small)
        flowers = round(arguments.faults * (FLOWERS_SHARE if here else 1)) if there else 0
        print(f"{arguments.faults} faults, {flowers} of them on Flower, in {arguments.minutes:g} minutes", end="; ")
        print(f"the seed is {arguments.seed}", flush=True)
        began, (seed, patience) = time.monotonic(), (arguments.seed, arguments.patience)
        ledger = Ledger({LOCALLY: arguments.faults - flowers, ON_FLOWER: flowers}, began + 60 * arguments.minutes)
        quiet, lanes = Quiet(folder), list[Lane]()
        for number, disk in enumerate(disks[2:] if here else ()):
            faults = plan(seed, f"{LOCALLY} {number}", here)
            lanes.append(local.Lane(disk, config_file(folder), ledger, quiet, faults, patience))
        if there:
            from tests.chaos import flower  # imports Flower, which not everybody has

            faults = plan(seed, ON_FLOWER, there)
            lanes.append(flower.Lane(disks[0], disks[1], folder / "flower", ledger, quiet, faults, patience))
        work(lanes, ledger, began)
    return judge(ledger, began)


def mixes(arguments: argparse.Namespace, *, can_fill: bool) -> tuple[dict[str, int], dict[str, int]]:
    """The faults that can be made here and are wanted, of ``prowd run`` and on Flower, with their weights."""
    wanted = {kind for kind in {**LOCAL, **FLOWER} if kind in (arguments.only or [kind])}
    if not can_fill:
        full = {kind for kind in wanted if kind.startswith("disk full")}
        print(f"no small file system can be mounted here; left out: {', '.join(sorted(full))}")
        wanted -= full
    there = not arguments.no_flower and bool(wanted & set(FLOWER))
    if there and importlib.util.find_spec("flwr") is None:
        print("Flower is not installed; left out: all faults on Flower")
        there = False
    here = {kind: weight for kind, weight in LOCAL.items() if kind in wanted}
    return here, {kind: weight for kind, weight in FLOWER.items() if kind in wanted} if there else {}


def judge(ledger: Ledger, began: float) -> int:
    """Print what came of it all; return the exit code."""
    print("", *ledger.table(), "", ledger.progress(began), sep="\n")
    if ledger.with_losses:
        print(f"{ledger.with_losses} runs without clients that were lost for good: as the quiet ones without them")
    for kind, text in sorted(ledger.words.items()):
        print(f"{kind}: {text}")
    for text in ledger.wrong:
        print(f"\nwrong: {text}")
    if left := sum(ledger.left.values()):
        print(f"the time was up with {left} faults left; more time: --minutes")
    return int(bool(ledger.wrong) or not ledger.runs)


def work(lanes: Sequence[Lane], ledger: Ledger, began: float) -> None:
    """Have all lanes do their work, each in a thread, and tell how far they are."""
    threads = [threading.Thread(target=guarded, args=(lane, ledger), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads):
            wait_for(lambda: not any(thread.is_alive() for thread in threads), EVERY)
            print(ledger.progress(began), flush=True)
    except KeyboardInterrupt:
        ledger.stopped.set()
        for thread in threads:
            thread.join()


def guarded(lane: Lane, ledger: Ledger) -> None:
    """Do a lane's work; a fault of this program is not taken for a run that is well."""
    try:
        lane.work()
    except BaseException as error:
        ledger.complain(f"{lane.disk.folder.name}: {error!r}")
        raise


if __name__ == "__main__":
    main()
