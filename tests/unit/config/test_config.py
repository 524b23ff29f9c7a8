from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from prowd import __version__
from prowd.config.files import presets
from prowd.config.options import make_method
from prowd.config.schema import RunConfig, load_config, validate
from prowd.config.tables import override
from prowd.errors import ConfigError
from prowd.methods import FedProx
from prowd.nets import Conv, Flatten, Linear, MaxPool

LAYERS = (
    Conv("first", 1, 4, (3, 3), (1, 1), (1, 1), relu=True),
    MaxPool((2, 2), (2, 2)),
    Flatten(),
    Linear("last", 64, 10, relu=False),
)


def refusal(settings: Mapping[str, Any], source: str | Path = "quick") -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(source, settings)
    return str(caught.value)


@pytest.mark.parametrize("name", presets())
def test_preset_survives_being_written_and_read(name: str, tmp_path: Path) -> None:
    config = load_config(name)
    path = tmp_path / "config.toml"
    path.write_text(config.toml(), "utf-8")
    assert config.name == name
    assert config.version == __version__
    assert load_config(path) == config


def test_resolved_file_states_every_setting() -> None:
    values = tomllib.loads(load_config("quick").toml())
    assert set(values) == set(RunConfig.model_fields)
    assert set(values["lowbit"]) == {"rate", "rate_scaling", "loss", "logit_scale"}
    assert {"lr", "momentum", "clip"} <= set(values["float32"])


def test_presets_are_described() -> None:
    assert all(text and not text.startswith("#") for text in presets().values())


def test_a_file_without_a_name_takes_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("rounds = 7", "utf-8")
    assert (load_config(path).name, load_config(path).rounds) == ("mine", 7)
    assert load_config(path, {"name": "other"}).name == "other"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("name", "longer than a file's name may be " * 10),
        ("rounds", 0),
        ("rounds", "many"),
        ("rounds", 1.5),
        ("rounds", True),
        ("seed", -1),
        ("seed", 2**63),
        ("width", 0.0),
        ("cohort", "some"),
        ("per_client", 0),
        ("input_size", "big"),
        ("width", float("nan")),
        ("uplink", "binary"),
        ("rescale", "all"),
        ("partition", "sorted"),
        ("clients", 5),
        ("clients", ""),
        ("device", "gpu"),
        ("device", "cuda:999"),
        ("device", "meta"),
        ("lowbit.rate", -8),
        ("lowbit.rate", float("inf")),
        ("lowbit.logit_scale", float("inf")),
        ("lowbit.loss", "hinge"),
        ("float32.momentum", 1.0),
        ("weighting", "size"),
        ("cap_examples", 0.5),
        ("clip_movement", "on"),
        ("robust", "trimmed:0.7"),
    ],
)
def test_a_bad_value_is_named_with_what_is_accepted(setting: str, value: object) -> None:
    message = refusal({setting: value})
    assert message.startswith(f"{setting}: {value!r} ")
    assert "accepted: " in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("setting", "accepted"),
    [
        ("rundos", "rounds"),
        ("lowbit.rat", "rate"),
        ("float32.momentun", "momentum"),
        ("wieghting", "weighting"),
        ("nothing.like.it", "seed"),
    ],
)
def test_an_unknown_key_is_named_with_those_that_exist(setting: str, accepted: str) -> None:
    message = refusal({setting: 1})
    assert message.startswith((f"{setting}: ", f"{setting.partition('.')[0]}: "))
    assert accepted in message.partition("accepted: ")[2]


def test_a_method_without_options_accepts_none() -> None:
    assert refusal({"method": "local", "options.mu": 0.1}).endswith("accepted: none")


def test_the_former_option_of_fedavg_is_read_as_a_setting() -> None:
    config = validate({"options": {"weighting": "uniform"}})
    assert (config.weighting, config.options) == ("uniform", {})
    message = refusal({"method": "fedprox", "weighting": "examples", "options.weighting": "uniform"})
    assert message == "options.weighting: 'uniform' is for every method now; accepted: weighting"


def test_a_cohort_has_no_more_clients_than_there_are() -> None:
    message = refusal({"clients": "int8:2, float32:1", "cohort": 4})
    assert message.startswith("cohort: 4 ")
    assert "1 to 3, or all" in message
    assert load_config("quick", {"clients": "int8:2, float32:1", "cohort": 3}).cohort == 3


@pytest.mark.parametrize(
    ("setting", "value", "near"),
    [("method", "fedvag", "fedavg"), ("model", "vgg77", "vgg7"), ("preset", "table1-50-50-cpuu", "table1-50-50-cpu")],
)
def test_an_unknown_name_suggests_the_nearest(setting: str, value: str, near: str) -> None:
    message = refusal({}, value) if setting == "preset" else refusal({setting: value})
    assert message.startswith(f"{setting}: {value!r} is unknown; accepted: ")
    assert message.endswith(f"(did you mean {near!r}?)")


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    assert "did you mean" not in refusal({}, "xyzzy")


def test_errors_are_reported_together() -> None:
    message = refusal({"rounds": 0, "float32.lr": -1, "nonsense": 1})
    lines = message.splitlines()
    assert [line.partition(": ")[0] for line in sorted(lines)] == ["float32.lr", "nonsense", "rounds"]
    assert all("accepted: " in line for line in lines)


def test_override_reaches_into_tables_and_leaves_the_rest() -> None:
    values = {"rounds": 3, "float32": {"lr": 0.1, "clip": 1.0}}
    changed = override(values, {"float32.lr": 0.2, "lowbit.rate": 4.0, "seed": 1})
    assert changed == {"rounds": 3, "float32": {"lr": 0.2, "clip": 1.0}, "lowbit": {"rate": 4.0}, "seed": 1}
    assert values == {"rounds": 3, "float32": {"lr": 0.1, "clip": 1.0}}


def test_override_merges_a_table() -> None:
    values = {"float32": {"lr": 0.1, "clip": 1.0}}
    assert override(values, {"float32": {"lr": 0.2}}) == {"float32": {"lr": 0.2, "clip": 1.0}}


def test_override_does_not_reach_into_a_value() -> None:
    assert refusal({"rounds.first": 3}).startswith("rounds.first: ")


@pytest.mark.parametrize(
    ("written", "read"),
    [("crop, flip", ("crop", "flip")), ("none", ()), (["rotate"], ("rotate",)), ("rotate", ("rotate",))],
)
def test_augmentation_reads_as_people_write_it(written: object, read: tuple[str, ...]) -> None:
    assert load_config("quick", {"augment": written}).augment == read


def test_an_unknown_augmentation_is_refused() -> None:
    assert refusal({"augment": "crop, spin"}).startswith("augment.1: 'spin' ")


def test_own_layers_survive_being_written_and_read(tmp_path: Path) -> None:
    config = load_config("quick", {"model": "custom", "layers": LAYERS})
    path = tmp_path / "config.toml"
    path.write_text(config.toml(), "utf-8")
    assert load_config(path).layers == LAYERS
    assert load_config(path) == config


def test_own_layers_go_with_the_custom_model_only() -> None:
    assert refusal({"model": "custom"}).startswith("layers: ")
    assert refusal({"layers": LAYERS}).startswith("layers: ")
    unknown = refusal({"model": "custom", "layers": [{"kind": "dropout"}]})
    assert unknown.startswith("layers.0: ")
    assert "dropout" in unknown


def test_the_method_is_made_with_its_options() -> None:
    config = load_config("quick", {"method": "fedprox", "options.mu": 0.5})
    assert make_method(config.method, config.options) == FedProx(mu=0.5)
    assert load_config("quick", {"method": "fedprox"}).options == {"mu": 0.01}


def test_a_configuration_cannot_be_changed_in_place() -> None:
    config = validate({})
    with pytest.raises(ValueError, match="frozen"):
        config.rounds = 3  # type: ignore[misc]
