"""From a configuration to a federation: the data, the clients, the network, the method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from prowd import __version__
from prowd import data as datasets
from prowd.config.options import make_method
from prowd.config.schema import RunConfig, load_config, validate, with_full_paths
from prowd.config.tables import override
from prowd.data import ARRAYS, CLIENT, Dataset, Partition, Progress, Windows
from prowd.device.scene import ClientSpec, Defence, LocalSettings, Scene
from prowd.device.training import Examples
from prowd.errors import ConfigError, DataError
from prowd.federation.client import Clients
from prowd.federation.engine import Federation
from prowd.methods import method_hash
from prowd.nets import Architecture, build
from prowd.nets.inputs import to_unit
from prowd.nets.lowbit.kernels import check_kernel
from prowd.nets.tracing import read
from prowd.numbers.averages import Rule
from prowd.numbers.bits import parse_mix
from prowd.numbers.seeds import generator
from prowd.runs.snapshots import Snapshots

__all__ = [
    "Arrays",
    "Assembly",
    "as_arrays",
    "as_used",
    "assemble",
    "check_same",
    "elsewhere",
    "federate",
    "load_data",
    "make_architecture",
    "make_partition",
    "prepare",
    "windows_of",
]

Arrays = dict[str, NDArray[Any]]
Start = Mapping[str, Tensor]


def as_arrays(data: object) -> Arrays | None:
    """Arrays given through the Python API, as numpy."""
    if data is None:
        return None
    known = isinstance(data, Mapping) and set(data) <= {*ARRAYS, CLIENT}
    if not isinstance(data, Mapping) or not known or datasets.lacking(data):
        found = sorted(data) if isinstance(data, Mapping) else type(data).__name__
        raise DataError(f"data: {found}; accepted: a dict of the arrays {datasets.ACCEPTED}")
    return {
        name: array.detach().cpu().numpy() if isinstance(array, Tensor) else np.asarray(array)
        for name, array in data.items()
    }


def load_data(config: RunConfig, arrays: Arrays | None = None, progress: Progress | None = None) -> Dataset:
    """Load the data set a configuration names, or check the arrays given in its place."""
    if arrays is not None:
        given: dict[str, Any] = {**arrays, "name": config.data}
        return datasets.from_arrays(**given)
    if config.data == "arrays":
        raise ConfigError(
            "data: this run was made with arrays; accepted: the same arrays again, through prowd.run(data=...)"
        )
    return datasets.load(config.data, windows_of(config), progress=progress)


def windows_of(config: RunConfig) -> Windows:
    """How recordings are cut."""
    return Windows(config.window, config.window_step)


def check_same(config: RunConfig, dataset: Dataset) -> RunConfig:
    """Record the content hash of the data and of a method's own file, or hold them to those recorded."""
    digest, code = dataset.digest(), method_hash(config.method)
    if config.data_sha256 and config.data_sha256 != digest:
        raise DataError(f"data: {config.data} has content hash {digest}; accepted: {config.data_sha256}, as recorded")
    if config.method_sha256 and config.method_sha256 != code:
        accepted = "the file as it was, or a run in another directory"
        raise ConfigError(f"method: {config.method} has changed since the run was begun; accepted: {accepted}")
    return config.model_copy(update={"data_sha256": digest, "method_sha256": code})


def federate(
    config: RunConfig, architecture: Architecture, clients: tuple[ClientSpec, ...], buffer: Tensor | None = None
) -> Federation:
    """From settings to a scene, a method and a federation of both: for the server, simulated clients and a device.

    The server's own images are the server's alone: whoever else assembles a federation leaves them out.
    """
    horizon = config.rounds if config.decay == "cosine" else 0
    cap, clip = (None if times == "off" else times for times in (config.cap_examples, config.clip_movement))
    scene = Scene(
        architecture=architecture,
        clients=clients,
        seed=config.seed,
        uplink=config.uplink,
        rescale=config.rescale,
        defence=Defence(config.weighting, cap, clip, Rule.parse(config.robust)),
        local=LocalSettings(config.steps, config.batch, config.augment, config.lowbit, config.float32, horizon),
        buffer=torch.empty(0) if buffer is None else buffer,
        device=torch.device(config.device),
        kernel=config.kernel,
    )
    check_kernel(scene.kernel, scene.device, scene.architecture)
    cohort = len(clients) if config.cohort == "all" else config.cohort
    method = make_method(config.method, config.options)
    return Federation(scene, method, config.rounds, cohort, config.evaluate_every, config.measure == "classes")


class Assembly(NamedTuple):
    """A federation, and who holds what of its data."""

    federation: Federation
    dataset: Dataset
    partition: Partition

    def clients(self, memories: Path, snapshots: Snapshots | None = None) -> Clients:
        """Its simulated devices."""
        scene, method = self.federation.scene, self.federation.method
        return Clients(scene, method, self.dataset, self.partition, memories, snapshots)


def assemble(
    config: RunConfig, dataset: Dataset, devices: tuple[ClientSpec, ...] | None = None, start: Start | None = None
) -> Assembly:
    """Decide who holds what of a data set as it is used, and describe the federation; of devices, who they say.

    It begins with the weights ``start``, or with random ones.
    """
    widths, partition = parse_mix(config.clients), make_partition(config, dataset)
    clients = devices or tuple(
        ClientSpec(n, width, len(rows)) for n, (width, rows) in enumerate(zip(widths, partition.clients, strict=True))
    )
    buffer = to_unit(dataset.x_train[partition.buffer])
    federation = federate(config, make_architecture(config, dataset), clients, buffer)
    holdout = Examples(dataset.x_test, dataset.y_test)
    scene = replace(federation.scene, start=start or {})
    return Assembly(replace(federation, scene=scene, holdout=holdout), dataset, partition)


def make_partition(config: RunConfig, dataset: Dataset) -> Partition:
    """Who holds what of a data set as it is used."""
    return datasets.partition(
        dataset.y_train,
        dataset.classes,
        len(parse_mix(config.clients)),
        scheme=config.partition,
        alpha=config.alpha,
        per_client=None if config.per_client == "all" else config.per_client,
        buffer=config.buffer,
        seed=config.seed,
        holders=dataset.client,
        people=dataset.people,
        own_test=config.own_test,
    )


def prepare(
    source: str | Path,
    settings: Mapping[str, Any],
    *,
    data: object = None,
    model: nn.Module | None = None,
    trained: bool = False,
    progress: Progress | None = None,
) -> tuple[RunConfig, Dataset]:
    """The complete configuration of a new run, and its data as it is used; a trained network may have batch norms."""
    arrays = as_arrays(data)
    config = with_full_paths(load_config(source, {**settings, **({"data": "arrays"} if arrays else {})}))
    raw = load_data(config, arrays, progress)
    dataset = as_used(config, raw)
    if model is not None:
        layers = read(model, dataset.image_shape, config.bias, trained=trained).architecture.layers
        config = validate(override(config.model_dump(), {"model": "custom", "layers": layers}))
    return check_same(config.model_copy(update={"version": __version__}), raw), dataset


def as_used(config: RunConfig, dataset: Dataset) -> Dataset:
    """The images at the size the network takes, and as many of the test examples as are asked for.

    People who are never seen in training are set apart by the seed. For validation, other people, or examples of the
    training set, the same ones for every seed, are in the place of the test set.
    """
    sized = dataset if config.input_size == "native" else dataset.resized(config.input_size)
    sized = datasets.set_apart(sized, config.test_clients, config.validation_clients, config.seed)
    if config.validation:
        sized = _with_validation(sized, config.validation)
    most = len(sized.y_test) if config.test_examples == "all" else config.test_examples
    if most > len(sized.y_test):
        raise ConfigError(f"test_examples: {most} of {config.data}; accepted: 1 to {len(sized.y_test)}, or all")
    people = None if sized.test_client is None else sized.test_client[:most]
    return replace(sized, x_test=sized.x_test[:most], y_test=sized.y_test[:most], test_client=people)


def _with_validation(dataset: Dataset, count: int) -> Dataset:
    total = len(dataset.y_train)
    if count >= total:
        raise ConfigError(f"validation: {count} of {dataset.name}; accepted: 0 to {total - 1}, its training examples")
    order = torch.randperm(total, generator=generator(0, "validation"))
    aside, rest = order[:count].sort().values, order[count:].sort().values
    x, y, of = dataset.x_train, dataset.y_train, dataset.client
    people, test_people = (None, None) if of is None else (of[rest], of[aside])
    return replace(
        dataset,
        x_train=x[rest],
        y_train=y[rest],
        client=people,
        x_test=x[aside],
        y_test=y[aside],
        test_client=test_people,
    )


def elsewhere(
    config: RunConfig, dataset: Dataset, memories: Path, snapshots: Snapshots | None = None, start: Start | None = None
) -> Callable[[], Clients]:
    """What builds the clients anew in a worker process; data that is not in the cache, for all to map, goes with it."""
    parts = None if datasets.mapped(config.data) else dataset.parts()
    weights = {name: tensor.numpy() for name, tensor in (start or {}).items()}  # arrays get there as they are
    return partial(_build_again, config, parts, memories, snapshots, weights)


def _build_again(
    config: RunConfig, parts: Mapping[str, Any] | None, memories: Path, snapshots: Snapshots | None, weights: Arrays
) -> Clients:
    if parts is None:
        dataset = as_used(config, datasets.load(config.data, windows_of(config), verify=False))
    else:
        dataset = Dataset.of(parts)
    start = {name: torch.from_numpy(array) for name, array in weights.items()}
    return assemble(config, dataset, start=start).clients(memories, snapshots)


def make_architecture(config: RunConfig, dataset: Dataset) -> Architecture:
    """The network, for images and classes such as those of a data set."""
    if config.layers:
        architecture = Architecture(config.layers, dataset.image_shape)
    else:
        architecture = build(config.model, dataset.image_shape, dataset.classes, config.width)
    if architecture.classes != dataset.classes:
        found = f"{architecture.classes} logits for the {dataset.classes} classes of {config.data}"
        raise ConfigError(f"model: {found}; accepted: one logit a class")
    return architecture
