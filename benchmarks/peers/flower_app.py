"""The same federation in Flower's simulation: a ClientApp and a ServerApp on Ray, in the terms of its Message API."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers import simulated, work

ACTORS = 2


def train(message: Any, context: Any) -> Any:
    """Answer a message of the server with trained weights; runs in an actor, which keeps data and network."""
    config, start = message.content["config"], message.content["arrays"].to_torch_state_dict()
    torch.set_num_threads(config["threads"])
    client = int(context.node_config["partition-id"])
    round_, steps = config["server-round"], config["steps"]
    if config["mixed"] and client in work.LOW:
        trained = simulated.train(start, client, round_, steps)
    else:
        contrast = work.FAINT if config["mixed"] else work.CONTRAST
        trained = work.train(work.network(), start, client, round_, steps, contrast)
    metrics = MetricRecord({"loss": trained.loss, "steps": trained.steps, "num-examples": work.EXAMPLES})
    records = RecordDict({"arrays": ArrayRecord(dict(trained.state)), "metrics": metrics})
    return Message(content=records, reply_to=message)


def size_of(message: Any) -> int:
    """Bytes of the arrays in a message, serialized as they cross a wire."""
    return sum(len(array.data) for array in message.content["arrays"].values())


def main() -> None:
    """Run the rounds and report."""
    arguments = work.arguments()
    report = work.Report()

    def gathered(replies: Sequence[Any], _weighted_by: str) -> Any:
        found = [reply["metrics"] for reply in replies]
        report.loss = fmean(metrics["loss"] for metrics in found)
        report.steps += sum(metrics["steps"] for metrics in found)
        return MetricRecord()

    def after(round_: int, arrays: Any) -> None:
        """This is where the server says that it begins (round 0), or has ended a round; the mixed one is measured."""
        if not round_:
            report.begin()
            return
        if arguments.mixed:
            report.accuracy.append(simulated.accuracy(arrays.to_torch_state_dict()))
        report.round_ended()

    class Counting(FedAvg):
        """Counts the bytes of the arrays, as they are serialized, of all messages of a round."""

        def configure_train(self, *given: Any, **named: Any) -> Any:
            messages = list(super().configure_train(*given, **named))
            report.down.append(sum(size_of(message) for message in messages))
            return messages

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            found = list(replies)
            report.up.append(sum(size_of(message) for message in found))
            return super().aggregate_train(server_round, found)

    def serve(grid: Any, _context: Any) -> None:
        torch.set_num_threads(arguments.threads)
        strategy = Counting(
            fraction_evaluate=0.0,
            min_train_nodes=work.CLIENTS,
            min_available_nodes=work.CLIENTS,
            train_metrics_aggr_fn=gathered,
        )
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(dict(work.copied(work.network()))),
            num_rounds=arguments.rounds,
            train_config=ConfigRecord(
                {"steps": arguments.steps, "threads": arguments.threads, "mixed": arguments.mixed}
            ),
            evaluate_fn=after,
        )

    client_app, server_app = ClientApp(), ServerApp()
    client_app.train()(train)
    server_app.main()(serve)
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=work.CLIENTS,
        backend_config={"init_args": {"num_cpus": ACTORS}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    report.write(arguments.report)


if __name__ == "__main__":
    main()
