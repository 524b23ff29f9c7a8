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

from benchmarks.peers import work

ACTORS = 2


def train(message: Any, context: Any) -> Any:
    """Answer a message of the server with trained weights; runs in an actor, which keeps data and network."""
    config, start = message.content["config"], message.content["arrays"].to_torch_state_dict()
    torch.set_num_threads(config["threads"])
    client = int(context.node_config["partition-id"])
    trained = work.train(work.network(), start, client, config["server-round"], config["steps"])
    metrics = MetricRecord({"loss": trained.loss, "steps": trained.steps, "num-examples": work.EXAMPLES})
    records = RecordDict({"arrays": ArrayRecord(dict(trained.state)), "metrics": metrics})
    return Message(content=records, reply_to=message)


def main() -> None:
    """Run the rounds and report."""
    arguments = work.arguments()
    report = work.Report()

    def gathered(replies: Sequence[Any], _weighted_by: str) -> Any:
        found = [reply["metrics"] for reply in replies]
        report.loss = fmean(metrics["loss"] for metrics in found)
        report.steps += sum(metrics["steps"] for metrics in found)
        return MetricRecord()

    def after(round_: int, _arrays: Any) -> None:
        """Evaluate nothing: this is where the server says that it begins (round 0), or has ended a round."""
        if round_:
            report.round_ended()
        else:
            report.begin()

    def serve(grid: Any, _context: Any) -> None:
        strategy = FedAvg(
            fraction_evaluate=0.0,
            min_train_nodes=work.CLIENTS,
            min_available_nodes=work.CLIENTS,
            train_metrics_aggr_fn=gathered,
        )
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(dict(work.copied(work.network()))),
            num_rounds=arguments.rounds,
            train_config=ConfigRecord({"steps": arguments.steps, "threads": arguments.threads}),
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
