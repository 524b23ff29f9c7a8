"""From the settings of a run to a folder with the C client of one of its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from prowd.device.scene import ClientSpec
from prowd.embedded.card import card_bytes
from prowd.embedded.plan import Plan, plan_of
from prowd.embedded.sources import write_client
from prowd.errors import ConfigError
from prowd.federation.client import ClientRuntime
from prowd.numbers.bits import Bitwidth
from prowd.runs.build import assemble, prepare

__all__ = ["Firmware", "write_firmware"]


class Firmware(NamedTuple):
    """What was written, and the Python client that it stands for."""

    plan: Plan
    card: Path
    runtime: ClientRuntime


def write_firmware(
    source: str | Path,
    settings: Mapping[str, Any],
    *,
    folder: Path,
    width: str | None = None,
    client: int | None = None,
    ram: int | None = None,
    data: object = None,
) -> Firmware:
    """Write the client of a run directory, a preset or a file, for all devices of a width; and the card of one."""
    path = Path(source) / "config.toml"
    config, dataset = prepare(path if path.is_file() else source, settings, data=data)
    assembly = assemble(config, dataset)
    scene, method = assembly.federation.scene, assembly.federation.method
    spec = _device(scene.clients, width, client)
    examples = max(other.num_examples for other in scene.clients if other.width == spec.width)
    signed = dataset.x_train.dtype == torch.int8
    plan = plan_of(scene, method, spec, signed=signed, examples=examples, ram=ram)
    runtime = assembly.clients(folder / "memory")[spec.id]
    folder.mkdir(parents=True, exist_ok=True)
    write_client(plan, folder, ram)
    card = folder / f"client-{spec.id}.card"
    card.write_bytes(card_bytes(scene.architecture.digest, spec.id, runtime.device.train))
    return Firmware(plan, card, runtime)


def _device(clients: Sequence[ClientSpec], width: str | None, client: int | None) -> ClientSpec:
    """The client that is meant."""
    widths = sorted({spec.width for spec in clients if not spec.width.is_float})
    accepted = ", ".join(map(str, widths)) or "none, all clients are float32"
    if width is None and client is None and len(widths) != 1:
        raise ConfigError(f"width: not said; accepted: {accepted}")
    asked = Bitwidth.parse(width) if width else None
    if asked and asked not in widths:
        raise ConfigError(f"width: {asked}; accepted: {accepted}, the integer widths of its clients")
    for spec in clients:
        if (client in (None, spec.id)) and (spec.width == asked if asked else spec.width in widths):
            return spec
    raise ConfigError(f"client: {client} is none of {asked or accepted}; accepted: a number below {len(clients)}")
