"""The configuration of a run: typed, validated, every unknown key an error."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from prowd import __version__
from prowd.config.files import read_settings
from prowd.config.options import all_options, make_method, own_options
from prowd.config.tables import check_depth, explain, layered
from prowd.device.scene import Decay, Operation, Rescale, Uplink, Weighting
from prowd.errors import ConfigError, near
from prowd.link import check_address
from prowd.methods import anchored
from prowd.nets import MODELS, Layer
from prowd.nets.float32 import FloatSettings
from prowd.nets.lowbit.kernels import KernelChoice
from prowd.nets.lowbit.model import LowBitSettings
from prowd.nets.tracing import Bias
from prowd.numbers.averages import Rule
from prowd.numbers.bits import parse_mix

__all__ = ["GIVEN", "NO_MATTER", "RANDOM", "Rounds", "RunConfig", "load_config", "validate", "with_full_paths"]

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_ .+-]{0,99}$"  # it becomes part of a folder's name
MOST_ROUNDS = 10**6
RANDOM, GIVEN = "random", "given"  # of ``init``; all else is a path

NO_MATTER = frozenset(
    {"version", "kernel", "links", "snapshots", "snapshot_entries"}
)  # what leaves results as they are

All = Literal["all"]
Rounds = Literal["auto", "none"] | tuple[int, ...]
Count = Annotated[int, Field(ge=1, lt=2**63, strict=True)]
Multiple = Literal["off"] | Annotated[float, Field(ge=1, le=1e9)]


def _split(value: object) -> object:
    """Accept operations as people write them: "crop, flip" or "none"."""
    if isinstance(value, str):
        return [] if value.strip() == "none" else [part.strip() for part in value.split(",")]
    return value


def _split_rounds(value: object) -> object:
    """Accept rounds as people write them: 50, or "0, 50, 400"."""
    if isinstance(value, str) and value in ("auto", "none"):
        return value
    parts: Iterable[object] = value if isinstance(value, list | tuple | range) else [value]
    if isinstance(value, str):
        texts = [part.strip() for part in value.split(",")]
        parts = [int(text) if text.isdecimal() and len(text) < 20 else text for text in texts]
    if not all(isinstance(part, int) and not isinstance(part, bool) and 0 <= part <= MOST_ROUNDS for part in parts):
        raise ValueError(f"'auto', 'none', or rounds from 0 to {MOST_ROUNDS}, as in 0, 50, 400")
    return tuple(parts)


class RunConfig(BaseModel):
    """Everything that decides the outcome of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    name: str = Field("custom", pattern=NAME)
    version: str = __version__
    seed: int = Field(0, ge=0, lt=2**63, strict=True)
    # the federation
    method: str = "fedavg"
    method_sha256: str = Field("", description="content of a method's own file, to be the same on resume")
    options: dict[str, Any] = Field(default_factory=dict, description="the method's own settings")
    clients: str = Field("int8:5, float32:5", description="WIDTH:COUNT, ...")
    cohort: All | Count = Field("all", description="clients a round")
    rounds: int = Field(20, ge=1, le=MOST_ROUNDS, strict=True)
    uplink: Uplink = "ternary"
    rescale: Rescale = "none"
    # what no single device may do
    weighting: Weighting = Field("examples", description="what an update counts by: its examples, or all the same")
    cap_examples: Multiple = Field(4.0, description="times the median number of examples that a client counts for")
    clip_movement: Multiple = Field(2.0, description="times the median movement of its width that an update may move")
    robust: str = Field("none", description="what methods average by: none (the mean), trimmed:SHARE, median, krum")
    # the data
    data: str = Field("digits", description="digits, cifar10, watch or the path of an .npz file")
    data_sha256: str = Field("", description="content of arrays or a file, to be the same on resume")
    partition: Literal["iid", "dirichlet", "natural"] = "iid"
    alpha: float = Field(0.5, gt=0, le=1e6, description="concentration of the dirichlet partition")
    per_client: All | Count = Field("all", description="examples each client holds")
    buffer: int = Field(50, ge=0, strict=True, description="training examples set aside for the server")
    test_examples: All | Count = Field("all", description="test examples used")
    validation: int = Field(
        0, ge=0, lt=2**63, strict=True, description="training examples set aside and measured in place of the test set"
    )
    test_clients: Literal["auto"] | Annotated[int, Field(ge=0, lt=2**63, strict=True)] = Field(
        "auto", description="people, drawn by the seed, whose examples are the test set"
    )
    validation_clients: int = Field(
        0, ge=0, lt=2**63, strict=True, description="people measured in place of test people, and never among these"
    )
    own_test: float = Field(0.0, ge=0, lt=1, description="share of its examples that a client tests its own model on")
    window: Count = Field(128, description="samples of a recording that are one example")
    window_step: Count = Field(64, description="samples from the beginning of a window to that of the next")
    # the network
    model: str = Field("digits", description="digits, vgg7, resnet8, dscnn, watch, or custom (given by layers)")
    width: float = Field(1.0, gt=0, le=16, description="multiplies every inner size of the model")
    bias: Bias = Field("refuse", description="of a network given as a module: refuse biases, or drop them")
    init: str = Field(RANDOM, min_length=1, description="random, or a .safetensors file or a run to begin with")
    init_sha256: str = Field("", description="content of the weights of init, to be the same on resume")
    input_size: Literal["native"] | Count = Field("native", description="pixels a side to which images are shrunk")
    layers: tuple[Annotated[Layer, Field(discriminator="kind")], ...] = ()
    # the local training
    steps: Count = 200
    batch: Count = 64
    augment: Annotated[tuple[Operation, ...], BeforeValidator(_split)] = ()
    lowbit: LowBitSettings = Field(default_factory=LowBitSettings)
    float32: FloatSettings = Field(default_factory=FloatSettings)
    decay: Decay = Field("none", description="how learning rates fall from round to round")
    # how it is run
    evaluate_every: Count = 1
    measure: Literal["accuracy", "classes"] = Field("accuracy", description="or accuracy by class and person as well")
    snapshots: Annotated[Rounds, BeforeValidator(_split_rounds)] = Field(
        "auto", description="rounds of which samples of weights are kept for figures: auto, none, or a list"
    )
    snapshot_entries: Count = Field(2048, description="entries of each tensor in such a sample")
    device: str = "cpu"
    kernel: KernelChoice = Field("auto", description="arithmetic of clients of at most 8 bits")
    links: dict[int, str] = Field({}, description="CLIENT = exec:..., tcp:... or serial:... of a device")

    @field_validator("clients")
    @classmethod
    def _mix(cls, value: str) -> str:
        parse_mix(value)
        return value

    @field_validator("links")
    @classmethod
    def _links(cls, value: dict[int, str]) -> dict[int, str]:
        return {client: check_address(value[client]) for client in sorted(value)}

    @field_validator("robust")
    @classmethod
    def _rule(cls, value: str) -> str:
        Rule.parse(value)
        return value

    @field_validator("device")
    @classmethod
    def _device(cls, value: str) -> str:
        try:
            kind = torch.device(value).type
        except RuntimeError as error:
            raise ConfigError(f"device: {value!r} is not a torch device; accepted: cpu, cuda, cuda:0") from error
        available = {"cpu": True, "cuda": torch.cuda.is_available()}  # others lack float64, which exactness needs
        if not available.get(kind, False):
            usable = ", ".join(name for name, there in available.items() if there)
            raise ConfigError(f"device: {value!r} is not available on this machine; accepted: {usable}")
        return value

    @field_validator("model")
    @classmethod
    def _model(cls, value: str) -> str:
        accepted = [*MODELS, "custom"]
        if value not in accepted:
            raise ConfigError(f"model: {value!r} is unknown; accepted: {', '.join(accepted)}{near(value, accepted)}")
        return value

    def toml(self) -> str:
        """The whole configuration as TOML, every default written out."""
        return tomli_w.dumps(self.model_dump(mode="json"))


def load_config(source: str | Path, settings: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a preset or a TOML file, change single settings (dotted names reach into tables), and validate."""
    return validate(layered(read_settings(source), settings or {}))


def validate(values: Mapping[str, Any]) -> RunConfig:
    """Turn plain values into a configuration, or say which field is wrong."""
    check_depth(values)
    values = _with_former_option(values)
    if isinstance(values.get("method", ""), str) and isinstance(values.get("options", {}), Mapping):
        method = values.get("method", RunConfig.model_fields["method"].default)
        values["options"] = own_options(method, values.get("options", {}))
    try:
        config = RunConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(explain(error, "", _fields_beside)) from None
    config = config.model_copy(update={"options": all_options(make_method(config.method, config.options))})
    clients = len(parse_mix(config.clients))
    if config.cohort != "all" and config.cohort > clients:
        raise ConfigError(f"cohort: {config.cohort} of {config.clients!r} a round; accepted: 1 to {clients}, or all")
    nobody = [client for client in config.links if not 0 <= client < clients]
    if nobody:
        raise ConfigError(f"links: client {nobody[0]} of {config.clients!r}; accepted: 0 to {clients - 1}")
    if (config.model == "custom") != bool(config.layers):
        found = f"{len(config.layers)} layers for model {config.model!r}"
        raise ConfigError(f"layers: {found}; accepted: some for model 'custom', none for a named one")
    return config


def _with_former_option(values: Mapping[str, Any]) -> dict[str, Any]:
    """Read ``options.weighting``, which was FedAvg's own, as the setting that it is for every method now."""
    options = values.get("options")
    if "weighting" in values or not isinstance(options, Mapping) or "weighting" not in options:
        return dict(values)
    others = {name: value for name, value in options.items() if name != "weighting"}
    return {**values, "options": others, "weighting": options["weighting"]}


def with_full_paths(config: RunConfig) -> RunConfig:
    """Name files of data and of code by their full paths, so that a run can be resumed from another folder."""
    data, init = config.data, config.init
    if data.lower().endswith(".npz"):
        data = _full_path("data", data, "the path of an .npz file")
    if init not in (RANDOM, GIVEN):
        init = _full_path("init", init, "random, or the path of a .safetensors file or of a run")
    return config.model_copy(update={"data": data, "init": init, "method": anchored(config.method)})


def _full_path(field: str, given: str, accepted: str) -> str:
    try:
        return str(Path(given).expanduser().resolve())
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{field}: {given!r} is no file: {error}; accepted: {accepted}") from None


def _fields_beside(place: Sequence[str]) -> list[str]:
    """Names of the fields that the last key of a path could have been."""
    table = RunConfig.model_fields[place[0]].annotation if len(place) > 1 else None
    if isinstance(table, type) and dataclasses.is_dataclass(table):
        return [field.name for field in dataclasses.fields(table)]
    return list(RunConfig.model_fields)
