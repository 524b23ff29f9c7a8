"""From a configuration to a federation: the data, the clients, the network, the method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from prowd import __version__
from prowd import data as datasets
from prowd.config.options import make_method
from prowd.config.schema import RunConfig, load_config, validate, with_full_paths
from prowd.config.tables import override
from prowd.data import ARRAYS, Dataset, Partition, Progress
from prowd.device.scene import ClientSpec, LocalSettings, Scene
from prowd.errors import ConfigError, DataError
from prowd.federation.client import Clients
from prowd.federation.engine import Federation
from prowd.methods import method_hash
from prowd.nets import Architecture, build, describe
from prowd.nets.lowbit.kernels import INT8_BITS, check_kernel, why_not_int8
from prowd.numbers.bits import parse_mix
from prowd.numbers.seeds import generator
from prowd.runs.snapshots import Snapshots

__all__ = [
    "Arrays",
    "ClientsFactory",
    "as_arrays",
    "as_used",
    "assemble",
    "check_same",
    "load_data",
    "make_architecture",
    "make_clients",
    "make_partition",
    "make_scene",
    "prepare",
    "slow_kernel",
]

Arrays = dict[str, NDArray[Any]]
WAYS_ON = "the file as it was, or a run in another directory"


def as_arrays(data: object) -> Arrays | None:
    """Arrays given through the Python API, as numpy."""
    if data is None:
        return None
    if not isinstance(data, Mapping) or sorted(data) != sorted(ARRAYS):
        found = sorted(data) if isinstance(data, Mapping) else type(data).__name__
        raise DataError(f"data: {found}; accepted: a dict of the arrays {', '.join(ARRAYS)}")
    return {
        name: array.detach().cpu().numpy() if isinstance(array, Tensor) else np.asarray(array)
        for name, array in data.items()
    }


def load_data(config: RunConfig, arrays: Arrays | None = None, progress: Progress | None = None) -> Dataset:
    """Load the data set a configuration names, or check the arrays given in its place."""
    if arrays is not None:
        return datasets.from_arrays(**arrays, name=config.data)
    if config.data == "arrays":
        raise ConfigError(
            "data: this run was made with arrays; accepted: the same arrays again, through prowd.run(data=...)"
        )
    return datasets.load(config.data, progress=progress)


def check_same(config: RunConfig, dataset: Dataset) -> RunConfig:
    """Record the content hash of the data and of a method's own file, or hold them to those recorded."""
    digest, code = dataset.digest(), method_hash(config.method)
    if config.data_sha256 and config.data_sha256 != digest:
        raise DataError(f"data: {config.data} has content hash {digest}; accepted: {config.data_sha256}, as recorded")
    if config.method_sha256 and config.method_sha256 != code:
        raise ConfigError(f"method: {config.method} has changed since the run was begun; accepted: {WAYS_ON}")
    return config.model_copy(update={"data_sha256": digest, "method_sha256": code})


def assemble(
    config: RunConfig, dataset: Dataset, devices: tuple[ClientSpec, ...] | None = None
) -> tuple[Federation, Partition]:
    """Decide who holds what of a data set as it is used, and describe the federation; of devices, who they say."""
    widths, partition = parse_mix(config.clients), make_partition(config, dataset)
    clients = devices or tuple(
        ClientSpec(n, width, len(rows)) for n, (width, rows) in enumerate(zip(widths, partition.clients, strict=True))
    )
    scene = make_scene(config, make_architecture(config, dataset), clients)
    scene = replace(scene, buffer=datasets.to_unit(dataset.x_train[partition.buffer]))
    cohort = len(clients) if config.cohort == "all" else config.cohort
    return Federation(
        scene, make_method(config.method, config.options), config.rounds, cohort, config.evaluate_every
    ), partition


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
    )


def make_scene(config: RunConfig, architecture: Architecture, clients: tuple[ClientSpec, ...]) -> Scene:
    """The scene as both sides know it: without the server's own images."""
    horizon = config.rounds if config.decay == "cosine" else 0
    scene = Scene(
        architecture=architecture,
        clients=clients,
        seed=config.seed,
        uplink=config.uplink,
        rescale=config.rescale,
        local=LocalSettings(config.steps, config.batch, config.augment, config.lowbit, config.float32, horizon),
        device=torch.device(config.device),
        kernel=config.kernel,
    )
    check_kernel(scene.kernel, scene.device, scene.architecture)
    return scene


def prepare(
    source: str | Path,
    settings: Mapping[str, Any],
    *,
    data: object = None,
    model: nn.Sequential | None = None,
    progress: Progress | None = None,
) -> tuple[RunConfig, Dataset]:
    """The complete configuration of a new run, and its data as it is used."""
    arrays = as_arrays(data)
    config = with_full_paths(load_config(source, {**settings, **({"data": "arrays"} if arrays else {})}))
    raw = load_data(config, arrays, progress)
    dataset = as_used(config, raw)
    if model is not None:
        layers = describe(model, dataset.image_shape).layers
        config = validate(override(config.model_dump(), {"model": "custom", "layers": layers}))
    return check_same(config.model_copy(update={"version": __version__}), raw), dataset


def as_used(config: RunConfig, dataset: Dataset) -> Dataset:
    """The images at the size the network takes, and as many of the test examples as are asked for.

    For validation, examples of the training set, the same ones for every seed, are in the place of the test set.
    """
    sized = dataset if config.input_size == "native" else dataset.resized(config.input_size)
    if config.validation:
        sized = _with_validation(sized, config.validation)
    most = len(sized.y_test) if config.test_examples == "all" else config.test_examples
    if most > len(sized.y_test):
        raise ConfigError(f"test_examples: {most} of {config.data}; accepted: 1 to {len(sized.y_test)}, or all")
    return replace(sized, x_test=sized.x_test[:most], y_test=sized.y_test[:most])


def _with_validation(dataset: Dataset, count: int) -> Dataset:
    total = len(dataset.y_train)
    if count >= total:
        raise ConfigError(f"validation: {count} of {dataset.name}; accepted: 0 to {total - 1}, its training examples")
    order = torch.randperm(total, generator=generator(0, "validation"))
    aside, rest = order[:count].sort().values, order[count:].sort().values
    x, y = dataset.x_train, dataset.y_train
    return replace(dataset, x_train=x[rest], y_train=y[rest], x_test=x[aside], y_test=y[aside])


def make_clients(config: RunConfig, dataset: Dataset, memories: Path, snapshots: Snapshots | None = None) -> Clients:
    """Build the simulated devices."""
    federation, partition = assemble(config, dataset)
    return Clients(federation.scene, federation.method, dataset, partition, memories, snapshots)


@dataclass(frozen=True)
class ClientsFactory:
    """Builds the devices anew in a worker process; data that is not in the cache, for all to map, travels along."""

    config: RunConfig
    arrays: Arrays | None
    memories: Path
    snapshots: Snapshots | None = None

    @classmethod
    def of(
        cls, config: RunConfig, dataset: Dataset, memories: Path, snapshots: Snapshots | None = None
    ) -> ClientsFactory:
        """Prepare the devices of a federation for a journey to another process."""
        if datasets.mapped(config.data):
            return cls(config, None, memories, snapshots)
        return cls(config, {name: getattr(dataset, name).numpy() for name in ARRAYS}, memories, snapshots)

    def __call__(self) -> Clients:
        """Load the data and build the devices."""
        if self.arrays is None:
            dataset = as_used(self.config, datasets.load(self.config.data, verify=False))
        else:
            dataset = datasets.from_arrays(**self.arrays, name=self.config.data)
        return make_clients(self.config, dataset, self.memories, self.snapshots)


def slow_kernel(scene: Scene) -> str | None:
    """Why clients of at most 8 bits compute with the simulated kernel, where that was not asked for."""
    narrow = sorted({str(client.width) for client in scene.clients if client.width.bits <= INT8_BITS})
    reason = why_not_int8(scene.device, scene.architecture) if narrow and scene.kernel != "simulated" else None
    if reason is None:
        return None
    return f"{', '.join(narrow)} clients compute with the simulated kernel, which is slower: no int8 kernel, {reason}"


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
