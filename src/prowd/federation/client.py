"""The device side: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from prowd.data import Dataset, Partition
from prowd.device.limits import Limits, Load
from prowd.device.memory import ClientMemory
from prowd.device.scene import Scene
from prowd.device.training import Examples
from prowd.errors import WireError
from prowd.methods import Device, Method, Sampler
from prowd.nets.architecture import Architecture, gain_name
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import RATE_BITS
from prowd.wire import Work, decode_task, encode_update

__all__ = ["TASK_LIMIT", "ClientRuntime", "Clients", "one_thread"]

TASK_LIMIT = 2**32


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: a float sum split over threads depends on their number, and results must not."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class ClientRuntime:
    """One device: its bitwidth, its data, its memory."""

    scene: Scene
    method: Method
    device: Device
    limits: Limits | None = None
    """The most that a server may ask of it; none where it is simulated by whoever runs the server."""

    def handle(self, message: bytes) -> bytes:
        """Answer a task with an update."""
        if self.limits is not None:
            self.limits.check_message(len(message))
        task = decode_task(message, TASK_LIMIT)
        if (task.client, task.seed) != (self.device.spec.id, self.scene.seed):
            found = f"client {task.client} of seed {task.seed}"
            raise WireError(f"client {self.device.spec.id} of seed {self.scene.seed} received a task for {found}")
        network = self.scene.architecture
        _check_work(task.work, network, self.device.spec.width)
        if self.limits is not None:
            scene, device = self.scene, self.device
            load = Load(task.work.steps, min(task.work.batch, len(device.train)), len(device.test))
            self.limits.check(network, device.spec.width, load, scene.kernel, scene.device)
        shapes = network.shapes | {gain_name(layer): (layer.outputs,) for layer in network.weight_layers}
        for name, tensor in task.weights.items():
            own = name.rpartition("/")[2]  # a method may send several of a name, as in mean/conv1.weight
            if tensor.shape != shapes.get(own, tensor.shape):
                raise WireError(f"{name!r} has shape {tensor.shape}; accepted: {shapes[own]}")
            if tensor.width > self.device.spec.width:
                raise WireError(
                    f"{name!r} is {tensor.width}; accepted: what an {self.device.spec.width} device can hold"
                )
        with one_thread():
            try:
                return encode_update(self.method.train(self.scene, task, self.device))
            except KeyError as error:
                if any(str(error.args[0]).endswith(name) for name in shapes):
                    raise WireError(f"the task lacks the tensor {error}") from error
                raise


def _check_work(work: Work, network: Architecture, width: Bitwidth) -> None:
    """See that a device of a width can do it, and is asked to do it with the network that it has."""
    if work.network != network.digest:
        raise WireError(f"network is {work.network:#x}; accepted: {network.digest:#x}, the one of this client")
    if not (work.steps and work.batch):
        raise WireError(f"steps are {work.steps} and batch is {work.batch}; accepted: 1 or more of each")
    bits, least, most = (53, -1074, 971) if width.is_float else (RATE_BITS, -256, 256)  # of a double, or of the kernels
    if work.rate.mantissa >= 2**bits or not least <= work.rate.exponent <= most:
        raise WireError(f"rate is {work.rate}; accepted: {bits} bits of mantissa, an exponent from {least} to {most}")


@dataclass(frozen=True)
class Clients:
    """All devices of a simulated federation, made when they are called: memory does not grow with their number."""

    scene: Scene
    method: Method
    dataset: Dataset
    partition: Partition
    memories: Path
    snapshots: Sampler | None = None

    def __getitem__(self, client: int) -> ClientRuntime:
        spec = self.scene.clients[client]
        data, rows, own = self.dataset, self.partition.clients[client], self.partition.own[client]
        device = Device(
            spec=spec,
            train=Examples(data.x_train[rows], data.y_train[rows]),
            test=Examples(data.x_test, data.y_test, data.test_client),
            own=Examples(data.x_train[own], data.y_train[own]),
            memory=ClientMemory(self.memories / f"client-{spec.id:04d}", self.scene.seed, spec.id),
            snapshots=self.snapshots,
        )
        return ClientRuntime(self.scene, self.method, device)
