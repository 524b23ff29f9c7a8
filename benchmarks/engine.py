"""What the engine costs, and what workers gain. Run with ``make bench`` or ``python -m benchmarks.engine``.

Two ratios, each measured in one run on one machine, because absolute times mean nothing across machines:

overhead   the same local steps of the same clients through the engine in one process (dispatch, wire, admission,
           aggregation, report) against a bare loop over the model's steps; both on one thread. Limit: 1.05.
scaling    warm rounds through a pool of two workers against one process. Limit: 1.7 times the throughput.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from prowd.config.schema import RunConfig, load_config
from prowd.data import augment
from prowd.device.training import Examples, build_model
from prowd.federation.client import one_thread
from prowd.federation.engine import Federation, run_round
from prowd.federation.pool import ProcessPool
from prowd.federation.transport import InProcess, Transport
from prowd.methods import ServerState
from prowd.numbers.quantize import quantize
from prowd.numbers.streams import Stream
from prowd.runs.build import Arrays, as_used, assemble, elsewhere, load_data
from prowd.wire import Task

CLIENTS = 4


def images(config: RunConfig) -> Arrays:
    """Random images of CIFAR-10's form: the arithmetic is the same and nothing has to be fetched."""
    random = np.random.default_rng(0)
    train, test = 200 * CLIENTS + config.buffer, 100
    return {
        "x_train": random.integers(0, 256, (train, 3, 32, 32), dtype=np.uint8),
        "y_train": np.arange(train) % 10,
        "x_test": random.integers(0, 256, (test, 3, 32, 32), dtype=np.uint8),
        "y_test": np.arange(test) % 10,
    }


def seconds(work: Callable[[], object]) -> float:
    """Time one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Measure and print both ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="local steps a round (default 200, as in the paper)")
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each kind, taken in turn (default 5)")
    arguments = parser.parse_args()
    settings = {
        "clients": "int8:2, float32:2",
        "data": "arrays",
        "steps": arguments.steps,
        "per_client": 200,
        "evaluate_every": 10**6,
        "rounds": 10**6,
    }
    config = load_config("table1-50-50-cpu", settings)
    arrays = images(config)
    dataset = as_used(config, load_data(config, arrays))
    assembly = assemble(config, dataset)
    with tempfile.TemporaryDirectory() as folder:
        clients = assembly.clients(Path(folder))
        pool = ProcessPool(2, elsewhere(config, dataset, Path(folder)))
        try:
            measure(
                assembly.federation,
                InProcess(clients),
                pool,
                [clients[n].device.train for n in range(CLIENTS)],
                arguments,
            )
        finally:
            pool.close()


def measure(
    federation: Federation, alone: Transport, pool: Transport, data: list[Examples], arguments: argparse.Namespace
) -> None:
    """Take the measurements in turn, so that a slow moment of the machine meets all of them."""
    state = federation.method.init(federation.scene)
    state = ServerState(1, state.model)  # round 2: nothing is evaluated
    run_round(federation, state, pool)  # workers have started and loaded their data
    times: dict[str, list[float]] = {"bare": [], "engine": [], "pool": []}
    for _ in range(arguments.repeats):
        with one_thread():
            times["bare"].append(seconds(lambda: bare(federation, state, data)))
            times["engine"].append(seconds(lambda: run_round(federation, state, alone)))
            times["pool"].append(seconds(lambda: run_round(federation, state, pool)))
    least = {kind: min(found) for kind, found in times.items()}  # what the machine does when nothing disturbs it
    overhead, scaling = least["engine"] / least["bare"], least["engine"] / least["pool"]
    print(f"{CLIENTS} clients ({federation.scene.architecture.parameters:,} weights), {arguments.steps} steps each")
    print("least seconds a round: " + ", ".join(f"{kind} {found:.2f}" for kind, found in least.items()))
    print(f"engine / bare loop, one process:      {overhead:.3f}   (limit 1.05)")
    print(f"throughput of 2 workers / 1 process:  {scaling:.2f}    (limit 1.7)")


def bare(federation: Federation, state: ServerState, data: list[Examples]) -> None:
    """Train every client for a round with nothing around it."""
    scene = federation.scene
    for client in scene.clients:
        weights = {name: quantize(tensor, client.width) for name, tensor in state.model.items()}
        work = scene.work(client.width, state.round + 1)
        model = build_model(scene, client.width, weights, Task(state.round + 1, scene.seed, client.id, {}, work=work))
        images, labels = data[client.id].images, data[client.id].labels
        random, variations = torch.Generator().manual_seed(client.id), Stream.of(client.id)
        for step in range(work.steps):
            rows = torch.randint(len(labels), (work.batch,), generator=random)
            model.step(augment(images[rows], scene.local.augment, variations, step), labels[rows])


if __name__ == "__main__":
    main()
