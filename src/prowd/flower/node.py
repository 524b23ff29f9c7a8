"""A device of its own: what its operator says of it, its data, its memory. What the server says is not trusted here.

The operator gives ``--node-config 'client=3 width="int8" data="/var/lib/prowd/mine.npz"'``, or, in the place of data,
``link="serial:/dev/ttyACM0@115200"`` of a board that has its own. A node of Flower's simulation has a partition number
only; it is the client of that number, with the width and data of the run's settings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from platformdirs import user_state_path

from prowd import data as datasets
from prowd.config.schema import RunConfig, validate
from prowd.config.tables import override
from prowd.data import Dataset
from prowd.device.limits import MEGABYTE, Limits, Load
from prowd.device.memory import ClientMemory
from prowd.device.scene import ClientSpec
from prowd.device.training import Examples
from prowd.errors import ConfigError, DataError, near
from prowd.federation.client import ClientRuntime
from prowd.flower.linked import introduce_board, task_board
from prowd.link import check_address
from prowd.methods import METHODS, Device
from prowd.nets import Architecture, Linear
from prowd.numbers.bits import Bitwidth, parse_mix
from prowd.runs.build import as_used, federate, make_partition, windows_of

__all__ = ["Node", "read_run"]

SIMULATED = ("partition-id", "num-partitions")


@dataclass(frozen=True)
class Node:
    """A device as its operator describes it."""

    client: int
    width: Bitwidth
    data: str
    state: Path
    device: str
    kernel: str
    limits: Limits
    """The most that a server may ask of it."""
    shared: bool
    """Whether its data is a share of a data set that everybody has, not its own."""
    link: str = ""
    """Where the board is that does the work, if one does; only its operator says so."""

    @classmethod
    def read(cls, given: Mapping[str, object], config: RunConfig) -> Node:
        """Read a node configuration; every wrong or missing key is an error that names it."""
        simulated = "partition-id" in given
        known = _defaults()
        values = {**known, **(_simulated(given, config) if simulated else given)}
        for key in values:
            if key not in known:
                raise ConfigError(f"node-config: {key!r} is unknown; accepted: {', '.join(known)}{near(key, known)}")
        client = _number("client", values.pop("client"), 0, "its number in the federation, 0 or more")
        steps = _number("steps", values.pop("steps"), 1, "local steps, 1 or more")
        memory = _number("memory", values.pop("memory"), 1, "megabytes, 1 or more")
        link, data = values.pop("link"), values.pop("data")
        if link and data is not None:
            raise ConfigError(f"node-config: data is {data!r} beside link; accepted: one, a board has its data itself")
        link = check_address(_text("link", link)) if link else ""
        data = "" if link else _text("data", data)
        texts = {key: _text(key, value) for key, value in values.items()}
        width, state = Bitwidth.parse(texts.pop("width")), Path(texts.pop("state")).expanduser()
        shared = simulated or not (link or data.lower().endswith(".npz"))
        limits = Limits(steps, memory * MEGABYTE)
        where = {"data": data, "link": link}
        return cls(client=client, width=width, state=state, limits=limits, shared=shared, **where, **texts)

    def introduce(self, config: RunConfig) -> ClientSpec:
        """Who it is in a run; its data must fit the network and, where it is a share, be the server's."""
        if self.link:
            return introduce_board(self.link, config, self.client, self.width, self.limits)
        config, dataset = self._own(config), self._load(config, verify=True)
        network, device = _network(config, dataset), self._device(config, dataset, run="")
        self._check_limits(config, network, device)
        federate(config, network, ())
        return device.spec

    def handle(self, config: RunConfig, run: str, task: bytes) -> bytes:
        """Answer a task of a run."""
        if self.link:
            return task_board(self.link, config, self.client, self.width, self.limits, task)
        return self.runtime(config, run).handle(task)

    def runtime(self, config: RunConfig, run: str) -> ClientRuntime:
        """The device in a run, ready to answer tasks."""
        config, dataset = self._own(config), self._load(config, verify=False)
        clients = tuple(ClientSpec(n, width, 0) for n, width in enumerate(parse_mix(config.clients)))
        network, device = _network(config, dataset), self._device(config, dataset, run)
        self._check_limits(config, network, device)
        federation = federate(config, network, clients)
        return ClientRuntime(federation.scene, federation.method, device, self.limits)

    def _check_limits(self, config: RunConfig, network: Architecture, device: Device) -> None:
        """Before anything of the run's is built."""
        load = Load(config.steps, min(config.batch, len(device.train)), len(device.test))
        self.limits.check(network, self.width, load, config.kernel, torch.device(config.device))

    def _own(self, config: RunConfig) -> RunConfig:
        """The settings with what is this machine's to say."""
        return validate(override(config.model_dump(), {"device": self.device, "kernel": self.kernel}))

    def _load(self, config: RunConfig, *, verify: bool) -> Dataset:
        classes = None if self.shared else _classes(config)
        raw = datasets.load(self.data, windows_of(config), verify=verify, classes=classes)
        if self.shared and self.data != config.data:
            found = f"a share of {self.data} in a run on {config.data}"
            raise DataError(f"data: {found}; accepted: {config.data}, or a .npz file")
        if verify and self.shared and raw.digest() != config.data_sha256:
            raise DataError(f"data: {self.data} has content hash {raw.digest()}; accepted: {config.data_sha256}")
        own = {"test_examples": "all", "validation": 0, "test_clients": 0, "validation_clients": 0}
        return as_used(config if self.shared else config.model_copy(update=own), raw)

    def _device(self, config: RunConfig, dataset: Dataset, run: str) -> Device:
        if self.shared:
            parts = make_partition(config, dataset)
            if self.client >= len(parts.clients):
                found = f"{self.client} of a data set in {len(parts.clients)} parts"
                raise ConfigError(f"node-config: client is {found}; accepted: 0 to {len(parts.clients) - 1}")
            rows, own = parts.clients[self.client], parts.own[self.client]
        else:
            rows, own = datasets.hold_out(torch.arange(len(dataset.y_train)), dataset.y_train, config.own_test)
        return Device(
            spec=ClientSpec(self.client, self.width, len(rows)),
            train=Examples(dataset.x_train[rows], dataset.y_train[rows]),
            test=Examples(dataset.x_test, dataset.y_test, dataset.test_client),
            memory=ClientMemory(self.state / run / f"client-{self.client:04d}", config.seed, self.client),
            own=Examples(dataset.x_train[own], dataset.y_train[own]),
        )


def read_run(text: str) -> RunConfig:
    """Read the settings that a server sends: of built-in methods only, so that it can't make a device run a file."""
    try:
        values: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"config: not TOML: {error}") from None
    method = values.get("method")
    if not isinstance(method, str) or method not in METHODS:
        found = method[:80] if isinstance(method, str) else type(method).__name__
        raise ConfigError(f"method: {found!r} is not built in; accepted: {', '.join(METHODS)}")
    own = {"device": "cpu", "kernel": "auto", "links": {}}  # above all no program to start
    config = validate({**values, **own})
    if not config.layers:
        raise ConfigError("layers: none; accepted: the network, layer by layer")
    return config


def _defaults() -> dict[str, object]:
    """Every key of a node configuration; those that are None must be given."""
    state = str(user_state_path("prowd"))
    own = Limits.of_this_machine()
    limits = {"steps": own.steps, "memory": own.memory // MEGABYTE}
    return {
        "client": None,
        "width": None,
        "data": None,
        "state": state,
        "device": "cpu",
        "kernel": "auto",
        **limits,
        "link": "",
    }


def _number(key: str, value: object, least: int, accepted: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"node-config: {key} is {value!r}; accepted: {accepted}")
    return value


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"node-config: {key} is {value!r}; accepted: a text")
    return value


def _network(config: RunConfig, dataset: Dataset) -> Architecture:
    """The run's network on this device's images."""
    network = Architecture(config.layers, dataset.image_shape)
    if min(size for shape in network.shapes.values() for size in shape) < 1:
        raise ConfigError(f"layers: {network.layers}; accepted: sizes from 1")
    if dataset.classes > network.classes:
        found = f"{dataset.classes} classes for {network.classes} logits"
        raise DataError(f"data: {found}; accepted: labels below {network.classes}")
    return network


def _classes(config: RunConfig) -> int:
    """The classes of a run, a logit each: a device need not have examples of all of them."""
    last = config.layers[-1]
    if not isinstance(last, Linear):
        raise ConfigError(f"layers: the last is {last}; accepted: a Linear layer, which gives the logits")
    return last.outputs


def _simulated(values: Mapping[str, object], config: RunConfig) -> dict[str, object]:
    own = {key: value for key, value in values.items() if key not in SIMULATED}
    client, widths = values["partition-id"], parse_mix(config.clients)
    if not isinstance(client, int) or not 0 <= client < len(widths):
        raise ConfigError(f"partition-id is {client!r}; accepted: 0 to {len(widths) - 1}, the clients of the run")
    return {"client": client, "width": str(widths[client]), "data": config.data, **own}
