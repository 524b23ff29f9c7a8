"""The peer without a framework: a loop over clients in one process, as a researcher writes it."""

from __future__ import annotations

from statistics import fmean

import torch

from benchmarks.peers import work


def main() -> None:
    """Run the rounds and report."""
    arguments = work.arguments()
    torch.set_num_threads(arguments.threads)
    report, net = work.Report(), work.network()
    shared = work.copied(net)
    report.begin()
    for round_ in range(1, arguments.rounds + 1):
        trained = [work.train(net, shared, client, round_, arguments.steps) for client in range(work.CLIENTS)]
        shared = work.average([client.state for client in trained])
        report.loss = fmean(client.loss for client in trained)
        report.steps += sum(client.steps for client in trained)
        report.round_ended()
    report.write(arguments.report)


if __name__ == "__main__":
    main()
