"""Clients at the end of a link: boards, and this process as their gateway.

A board is sent the same bytes as a simulated client and sends the same weights, so a run has the same result. It has no
test set: what it was sent is measured here, where there is one; how good its own weights are nobody knows, because it
sends three levels of them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from queue import SimpleQueue

from prowd.device.scene import ClientSpec, Scene
from prowd.device.training import Examples, accuracy, build_model
from prowd.errors import LinkError, WireError
from prowd.federation.client import TASK_LIMIT, Clients
from prowd.federation.transport import Refusal, Reply, Silence, Transport
from prowd.link import ALLOWANCE, Gateway, Hello, Patience, Tally, open_stream
from prowd.methods import Method
from prowd.methods.common import MEASURE_RECEIVED
from prowd.methods.recipe import recipe
from prowd.wire import Parcel, Task, decode_task, decode_update, encode_update
from prowd.wire.fields import crc32

__all__ = ["Agreed", "LinkedDevice", "LinkedDevices", "examples_hash"]

VISITS = 3  # links to a device in a round: one that lost power or was unplugged comes back
STOP = 5.0  # seconds in which a device's thread gives up
SHOWN = 60  # characters of an address in a reason


@dataclass(frozen=True)
class Agreed:
    """What a device must say of itself to be the client that it stands for; 0 or None is whatever it says."""

    width: int
    client: int
    recipe: int = 0
    examples: int | None = None
    data: int = 0

    def check(self, found: Hello, network: int | None = None) -> None:
        """Compare, before it trains for nothing; the network is known once there is a task."""
        checks = (
            ("width", found.width, self.width, True),
            ("client", found.client, self.client, found.client is not None),
            ("network", hex(found.network), hex(network or 0), network is not None),
            ("recipe", hex(found.recipe), hex(self.recipe), bool(found.recipe and self.recipe)),
            ("number of examples", found.examples, self.examples, self.examples is not None),
            ("hash of its examples", hex(found.data), hex(self.data), bool(found.data and self.data)),
        )
        for what, value, accepted, told in checks:
            if told and value != accepted:
                raise LinkError(f"it was made for something else: {what} is {value}; accepted: {accepted}")


@dataclass
class LinkedDevice:
    """A client at the end of a link. Silence and refusal take the place of an update that does not come."""

    address: str
    agreed: Agreed
    patience: Patience = field(default_factory=Patience)
    tally: Tally = field(default_factory=Tally)
    gateway: Gateway | None = None
    who: Hello | None = None

    def handle(self, message: bytes) -> Reply:
        """Have a task done; the link is opened anew where it has ended."""
        task, reason = decode_task(message, TASK_LIMIT), ""
        for _ in range(VISITS):
            try:
                gateway = self.open()
                self.who = gateway.hello()
                self.agreed.check(self.who, task.work.network)
                return gateway.exchange(message, task.work.steps)
            except WireError as error:
                self.close()
                return Refusal(f"{self.address[:SHOWN]}: {error}")
            except LinkError as error:
                self.close()
                reason = str(error)
                if not error.again:
                    break
        return Silence(f"{self.address[:SHOWN]}: {reason}")

    def open(self) -> Gateway:
        """The link, as it is or new."""
        if self.gateway is None:
            self.gateway = Gateway(open_stream(self.address), self.patience, self.tally)
        return self.gateway

    def stop(self) -> None:
        """Have whoever waits for it give up."""
        if self.gateway is not None:
            self.gateway.stream.stopped = True

    def close(self) -> None:
        """Let go of it."""
        if self.gateway is not None:
            self.gateway.close()
        self.gateway = None


class LinkedDevices:
    """A transport for some clients over links, each in a thread of its own, and for the others by another transport."""

    def __init__(
        self, inner: Transport, clients: Clients, addresses: Mapping[int, str], patience: Patience | None = None
    ) -> None:
        self.inner, self.clients = inner, clients
        patience = patience or Patience()
        self.devices = {
            client: LinkedDevice(address, _agreed(clients, client), patience) for client, address in addresses.items()
        }
        self._threads: list[threading.Thread] = []

    @property
    def remote(self) -> bool:
        """Whether the server is idle while clients train."""
        return self.inner.remote

    def exchange(self, parcels: Mapping[int, Parcel]) -> Iterator[tuple[int, Reply]]:
        """Begin with the devices, go on with the others meanwhile."""
        replies: SimpleQueue[tuple[int, Reply | BaseException]] = SimpleQueue()
        linked = {client: parcels[client].join() for client in parcels if client in self.devices}
        self._threads = [
            threading.Thread(target=_visit, args=(self.devices[client], client, message, replies), daemon=True)
            for client, message in linked.items()
        ]
        for thread in self._threads:
            thread.start()
        waiting = len(linked)
        for found in self.inner.exchange({client: parcels[client] for client in parcels if client not in linked}):
            yield found
            while not replies.empty():
                waiting -= 1
                yield self._arrived(linked, *replies.get())
        for _ in range(waiting):
            yield self._arrived(linked, *replies.get())

    def close(self) -> None:
        """End all links, and what the other transport has started."""
        for device in self.devices.values():
            device.stop()
        for thread in self._threads:
            thread.join(STOP)
        for device in self.devices.values():
            device.close()
        self.inner.close()

    def _arrived(self, linked: Mapping[int, bytes], client: int, reply: Reply | BaseException) -> tuple[int, Reply]:
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, bytes):
            task = decode_task(linked[client], TASK_LIMIT)
            spec, test = self.clients.scene.clients[client], self.clients[client].device.test
            reply = with_measures(reply, self.clients.scene, spec, task, test, len(linked[client]) + ALLOWANCE)
        return client, reply


def with_measures(reply: bytes, scene: Scene, spec: ClientSpec, task: Task, test: Examples, limit: int) -> bytes:
    """An update with the accuracy of the model that its device was sent, where the task asks for it."""
    whole = not spec.width.is_float and set(scene.architecture.shapes) <= set(task.weights)
    if not (task.settings.get(MEASURE_RECEIVED) and whole and len(test)):
        return reply
    try:
        update = decode_update(reply, limit)
        measured = {
            "accuracy_received": accuracy(build_model(scene, spec.width, task.weights, task), test, scene.device)
        }
        return encode_update(replace(update, metrics={**update.metrics, **measured}))
    except WireError:
        return reply  # as it came: what is wrong with it is said where all updates are checked


def examples_hash(examples: Examples) -> int:
    """CRC-32 of images and labels as bytes, as a device knows it."""
    return crc32(examples.images.numpy().tobytes(), bytes(examples.labels.tolist()))


def _agreed(clients: Clients, client: int) -> Agreed:
    scene, runtime = clients.scene, clients[client]
    return agreed(scene, clients.method, runtime.device.spec, examples_hash(runtime.device.train))


def agreed(scene: Scene, method: Method, spec: ClientSpec, data: int = 0) -> Agreed:
    """What a device of a run must be."""
    number = recipe(method, scene.uplink, scene.local, spec.width)
    return Agreed(spec.width.bits, spec.id, number, spec.num_examples, data)


def _visit(
    device: LinkedDevice, client: int, message: bytes, replies: SimpleQueue[tuple[int, Reply | BaseException]]
) -> None:
    """Body of a device's thread."""
    try:
        replies.put((client, device.handle(message)))
    except BaseException as error:  # noqa: BLE001 - it is raised where the reply is taken
        replies.put((client, error))
