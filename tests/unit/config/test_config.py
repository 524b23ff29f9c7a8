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
from prowd.methods import FedAvg
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


def test_the_paper_s_presets_say_what_the_paper_says() -> None:
    half, most = load_config("table1-50-50"), load_config("table1-80-20")
    assert (half.clients, most.clients) == ("int8:5, float32:5", "int8:8, float32:2")
    for config in (half, most):
        assert (config.data, config.model, config.width, config.steps) == ("cifar10", "vgg7", 1.0, 200)
        assert (config.augment, config.input_size) == (("crop", "flip", "rotate"), "native")
    for name in ("table1-50-50-cpu", "table1-80-20-cpu"):
        small = load_config(name)
        assert (small.data, small.model, small.steps) == ("cifar10", "vgg7", 200)
        assert small.width < 1
        assert small.per_client != "all"
        assert small.clients == load_config(name.removesuffix("-cpu")).clients


def test_presets_are_described() -> None:
    assert all(text and not text.startswith("#") for text in presets().values())


def test_a_file_without_a_name_takes_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("rounds = 7", "utf-8")
    assert (load_config(path).name, load_config(path).rounds) == ("mine", 7)
    assert load_config(path, {"name": "other"}).name == "other"


@pytest.mark.parametrize(
    ("setting", "value", "accepted"),
    [
        ("rounds", 0, "greater than or equal to 1"),
        ("rounds", "many", "integer"),
        ("rounds", 1.5, "integer"),
        ("seed", -1, "greater than or equal to 0"),
        ("seed", 2**63, "less than"),
        ("steps", 0, "greater than or equal to 1"),
        ("batch", [], "integer"),
        ("width", 0.0, "greater than 0"),
        ("width", float("nan"), "finite number"),
        ("alpha", -1.0, "greater than 0"),
        ("cohort", "some", "'all' or"),
        ("cohort", 0, "greater than or equal to 1"),
        ("per_client", 0, "'all' or greater than or equal to 1"),
        ("input_size", "big", "'native' or"),
        ("uplink", "binary", "'ternary' or 'native'"),
        ("rescale", "all", "'none', 'layer' or 'channel'"),
        ("partition", "sorted", "'iid' or 'dirichlet'"),
        ("clients", 5, "string"),
        ("method", 5, "string"),
        ("lowbit.rate", -8, "greater than 0"),
        ("lowbit.rate", "fast", "number"),
        ("lowbit.loss", "hinge", "'cross-entropy'"),
        ("float32.momentum", 1.0, "less than 1"),
        ("float32.momentum", float("nan"), "finite number"),
        ("options.weighting", "size", "'examples' or 'uniform'"),
    ],
)
def test_a_bad_value_is_named_with_what_is_accepted(setting: str, value: object, accepted: str) -> None:
    message = refusal({setting: value})
    assert message.startswith(f"{setting}: {value!r} ")
    assert accepted in message.partition("accepted: ")[2]
    assert "\n" not in message


@pytest.mark.parametrize(
    ("setting", "accepted"),
    [
        ("rundos", "did you mean 'rounds'?"),
        ("lowbit.rat", "rate, rate_scaling, loss, logit_scale (did you mean 'rate'?)"),
        ("float32.momentun", "did you mean 'momentum'?"),
        ("options.weight", "weighting"),
        ("nothing.like.it", "name, version, seed"),
    ],
)
def test_an_unknown_key_is_named_with_those_that_exist(setting: str, accepted: str) -> None:
    message = refusal({setting: 1})
    assert message.startswith((f"{setting}: ", f"{setting.partition('.')[0]}: "))
    assert accepted in message.partition("accepted: ")[2]


def test_an_unknown_key_in_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("rounds = 3\n[float32]\nrate = 1.0\n", "utf-8")
    assert refusal({}, path).startswith("float32.rate: ")


def test_a_method_without_options_accepts_none() -> None:
    assert refusal({"method": "local", "options.weighting": "uniform"}).endswith("accepted: none")


@pytest.mark.parametrize(
    ("mix", "parts"),
    [
        ("int9000:3", ("int9000", "int2 to int16, or float32")),
        ("int1:3", ("int1", "int2 to int16, or float32")),
        ("int17:3", ("int17", "int2 to int16, or float32")),
        ("float16:3", ("float16", "int2 to int16, or float32")),
        ("int8:0", ("int8:0", "1 or more")),
        ("int8:2, float32:0", ("float32:0", "1 or more")),
        ("int8:99999999999999999999", ("1,000,000",)),
        ("", ("''", "WIDTH:COUNT")),
        ("int8", ("int8", "WIDTH:COUNT")),
        ("int8:2,", ("''", "WIDTH:COUNT")),
        ("int8:-2", ("int8:-2", "WIDTH:COUNT")),
        ("int8=2", ("int8=2", "WIDTH:COUNT")),
    ],
)
def test_an_impossible_mix_is_refused(mix: str, parts: tuple[str, ...]) -> None:
    message = refusal({"clients": mix})
    assert message.startswith("clients: ")
    assert all(part in message for part in parts)


def test_a_cohort_has_no_more_clients_than_there_are() -> None:
    message = refusal({"clients": "int8:2, float32:1", "cohort": 4})
    assert message.startswith("cohort: 4 ")
    assert "1 to 3, or all" in message
    assert load_config("quick", {"clients": "int8:2, float32:1", "cohort": 3}).cohort == 3


@pytest.mark.parametrize(
    ("setting", "value", "near"),
    [("method", "fedvag", "fedavg"), ("model", "vgg77", "vgg7"), ("model", "digit", "digits")],
)
def test_an_unknown_name_suggests_the_nearest(setting: str, value: str, near: str) -> None:
    message = refusal({setting: value})
    assert message.startswith(f"{setting}: {value!r} is unknown; accepted: ")
    assert message.endswith(f"(did you mean {near!r}?)")


def test_an_unknown_preset_suggests_the_nearest() -> None:
    message = refusal({}, "table1-50-50-cpuu")
    assert message.startswith("preset: 'table1-50-50-cpuu' is unknown; accepted: ")
    assert all(name in message for name in presets())
    assert message.endswith("(did you mean 'table1-50-50-cpu'?)")
    assert "did you mean" not in refusal({}, "xyzzy")


@pytest.mark.parametrize("value", ["gpu", "cuda:999", "meta", ""])
def test_a_device_that_is_not_there_is_refused(value: str) -> None:
    message = refusal({"device": value})
    assert message.startswith(f"device: {value!r} ")
    assert "accepted: cpu" in message


def test_a_file_that_is_not_toml_says_where(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("rounds = 3\nsteps = \n", "utf-8")
    message = refusal({}, path)
    assert str(path) in message
    assert "line 2" in message


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    for name in ("missing.toml", "folder.toml"):
        assert str(tmp_path / name) in refusal({}, tmp_path / name)


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b'name = "\xff\xfe"\n')
    assert f"{path} cannot be read" in refusal({}, path)


def test_a_file_of_another_suffix_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.conf"
    path.write_text("rounds = 7", "utf-8")
    assert load_config(path).rounds == 7


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
    config = load_config("table1-50-50", {"float32": {"clip": 1.5}})
    assert (config.float32.lr, config.float32.clip) == (0.1, 1.5)


def test_override_does_not_reach_into_a_value() -> None:
    assert refusal({"rounds.first": 3}).startswith("rounds.first: rounds is not a table")


def test_a_later_setting_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("rounds = 7\n[lowbit]\nrate = 2.0\n", "utf-8")
    config = load_config(path, {"rounds": 8, "lowbit.rate": 4.0})
    assert (config.rounds, config.lowbit.rate) == (8, 4.0)


@pytest.mark.parametrize(
    ("written", "read"),
    [("crop, flip", ("crop", "flip")), ("none", ()), (["rotate"], ("rotate",)), ("rotate", ("rotate",))],
)
def test_augmentation_reads_as_people_write_it(written: object, read: tuple[str, ...]) -> None:
    assert load_config("quick", {"augment": written}).augment == read


def test_an_unknown_augmentation_is_refused() -> None:
    message = refusal({"augment": "crop, spin"})
    assert "'spin'" in message
    assert "'crop', 'flip' or 'rotate'" in message


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
    config = load_config("quick", {"options.weighting": "uniform"})
    assert make_method(config.method, config.options) == FedAvg(weighting="uniform")
    assert load_config("quick").options == {"weighting": "examples"}


def test_a_configuration_cannot_be_changed_in_place() -> None:
    config = validate({})
    with pytest.raises(ValueError, match="frozen"):
        config.rounds = 3  # type: ignore[misc]
