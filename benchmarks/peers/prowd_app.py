"""The federation in prowd, with two workers: what ``prowd.run`` does, with a watch on the rounds."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from benchmarks.peers import work

WORKERS = 2


def main() -> None:
    """Run the rounds and report.

    prowd always measures accuracy in the first round and the last; the test set is ten images, so that this is next to
    nothing, and what there is counts against prowd. Its workers compute on one thread each, whatever they are told.
    """
    from prowd.device.training import Examples
    from prowd.federation.engine import measure
    from prowd.federation.report import RoundReport
    from prowd.methods import ServerState
    from prowd.runs.observe import RunObserver
    from prowd.runs.run import Session

    arguments, report = work.arguments(), work.Report()

    class Clock(RunObserver):
        def finished(self, report_: RoundReport, state: ServerState) -> None:
            report.up.append(sum(report_.traffic.up.values()))
            report.down.append(sum(report_.traffic.down.values()))
            if arguments.mixed:
                found = measure(replace(session.federation, holdout=Examples(*work.test_examples())), state)
                report.accuracy.append(sum(found.values()) / len(found))
            report.round_ended()

    images, labels = work.examples(work.FAINT if arguments.mixed else work.CONTRAST)
    low = len(work.LOW) if arguments.mixed else 0
    data = {"x_train": images, "y_train": labels, "x_test": images[: work.CLASSES], "y_test": labels[: work.CLASSES]}
    settings = {
        "clients": f"int8:{low}, float32:{work.CLIENTS - low}" if low else f"float32:{work.CLIENTS}",
        "uplink": "native",
        "method": "benchmarks.peers.counted:Counted",
        "rounds": arguments.rounds,
        "steps": arguments.steps,
        "batch": work.BATCH,
        "per_client": work.EXAMPLES,
        "buffer": 0,
        "augment": [],
        "model": "vgg7",
        "width": 0.125,
        "evaluate_every": arguments.rounds,
        "float32": {"lr": work.LR, "gain_lr": work.GAIN_LR, "momentum": work.MOMENTUM, "clip": work.CLIP},
    }
    with tempfile.TemporaryDirectory() as folder:
        session = Session.start("quick", settings, out=Path(folder) / "run", data=data)
        report.begin()
        result = session.run(WORKERS, Clock())
    report.loss = fmean(result.rounds[-1]["loss"].values())
    report.steps = sum(line["notes"]["steps"] for line in result.rounds)
    report.write(arguments.report)


if __name__ == "__main__":
    main()
