"""Options of several methods in one configuration."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from prowd.config.options import make_method, own_options
from prowd.config.schema import load_config
from prowd.errors import ConfigError
from prowd.methods import FedProx, ProWD, ProWDDeq

TABLES: dict[str, Any] = {
    "prowd": {"tau": 0.5, "dequantizer": {"epochs": 5, "batch": 16}},
    "prowd-deq": {"dequantizer": {"epochs": 3}},
    "fedprox": {"mu": 0.1},
}


ODD = """
from dataclasses import dataclass
from typing import ClassVar
import torch
from prowd.methods import FedAvg

@dataclass(frozen=True)
class Odd(FedAvg):
    name: ClassVar[str] = "odd"
    t: torch.Tensor | None = None
"""


def test_a_method_takes_its_own_table() -> None:
    assert own_options("fedprox", TABLES) == {"mu": 0.1}
    assert own_options("fedavg", TABLES) == {}
    assert own_options("prowd", TABLES) == TABLES["prowd"]


def test_a_variant_takes_the_table_of_its_parent_and_then_its_own() -> None:
    assert own_options("prowd-swa", TABLES) == {"tau": 0.5}, "it has no dequantizer"
    assert own_options("prowd-deq", TABLES) == {"dequantizer": {"epochs": 3, "batch": 16}}, "it has no masks"


@pytest.mark.parametrize(
    "given",
    [
        {"options.dequantizer.steps": 7},
        {"options": {"dequantizer": {"steps": 7}}},
        {"options.dequantizer": {"steps": 7}},
    ],
)
def test_a_plain_option_of_a_later_layer_wins_over_the_table_of_an_earlier_one(given: dict[str, Any]) -> None:
    found = load_config("table1-50-50-cpu", {"method": "prowd", **given}).options["dequantizer"]
    assert found["steps"] == 7
    assert found["batch"] == 16, "what the preset's own table says beside it stays"
    own = load_config("table1-50-50-cpu", {"method": "prowd", **given, "options.prowd.dequantizer.steps": 8})
    assert own.options["dequantizer"]["steps"] == 8, "within a layer the method's own table wins"


def test_a_file_wins_with_a_plain_option_over_the_table_of_what_it_extends(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "table1-50-50-cpu"\nmethod = "prowd"\n[options.dequantizer]\nsteps = 7\n')
    assert load_config(file).options["dequantizer"]["steps"] == 7
    assert load_config(file, {"options.dequantizer.steps": 9}).options["dequantizer"]["steps"] == 9


@pytest.mark.parametrize(
    ("method", "unread", "accepted"),
    [
        ("prowd-deq", {"tau": 0.5}, "ladder, dequantizer, fit"),
        ("prowd-swa", {"ladder": "int2, float32"}, "tau"),
        ("prowd-swa", {"dequantizer": {"epochs": 1}}, "tau"),
        ("prowd-swa", {"fit": "inline"}, "tau"),
    ],
)
def test_an_option_that_an_ablation_does_not_read_is_refused(
    method: str, unread: dict[str, Any], accepted: str
) -> None:
    (name,) = unread
    with pytest.raises(ConfigError, match=f"^options.{name}: {method} has no such option; accepted: {accepted}$"):
        load_config("quick", {"method": method, "options": unread})
    with pytest.raises(ConfigError, match=f"^options.{method}.{name}: "):
        load_config("quick", {"method": method, "options": {method: unread}})


def test_what_is_given_for_a_method_wins() -> None:
    options = {**TABLES, "dequantizer": {"epochs": 9, "lam": 0.5}, "tau": 0.9}
    assert own_options("prowd-deq", options)["dequantizer"] == {"epochs": 3, "batch": 16, "lam": 0.5}
    assert own_options("prowd-swa", options)["tau"] == 0.5


def test_the_configuration_keeps_what_is_for_its_method() -> None:
    settings = {"options": TABLES}
    assert load_config("quick", settings).options == {}
    config = load_config("quick", {**settings, "method": "prowd-deq", "options.prowd.dequantizer.lam": 0.5})
    method = make_method(config.method, config.options)
    assert isinstance(method, ProWDDeq)
    assert (method.dequantizer.epochs, method.dequantizer.lam) == (3, 0.5)
    assert load_config("quick", {"method": "prowd-deq", "options": config.options}).options == config.options


@pytest.mark.parametrize(("key", "value"), [("options.prowd.taau", 1), ("options.prowd.tau", 2), ("options.prowd", 3)])
def test_a_table_of_a_method_that_is_not_run_is_checked(key: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: "):
        load_config("quick", {key: value})


def test_a_misspelt_key_in_a_table_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"options.dequantizer.epoch: as a key .*did you mean 'epochs'"):
        load_config("quick", {"method": "prowd", "options.dequantizer.epoch": 3})


def test_defaults() -> None:
    assert make_method("prowd", {}) == ProWD()
    assert make_method("fedprox", {"mu": 0.5}) == FedProx(mu=0.5)


def test_the_configuration_has_every_option_written_out(tmp_path: Path) -> None:
    config = load_config("quick", {"method": "prowd", "options.tau": 0.9})
    assert config.options == {**dataclasses.asdict(ProWD()), "tau": 0.9}
    path = tmp_path / "config.toml"
    path.write_text(config.toml(), "utf-8")
    assert load_config(path) == config


@pytest.mark.parametrize("key", ["gamma", "dequantizer.lr"])
def test_a_number_that_is_not_finite_is_refused(key: str) -> None:
    method = "fedcom" if key == "gamma" else "prowd"
    with pytest.raises(ConfigError, match=f"options.{key}: inf "):
        load_config("quick", {"method": method, f"options.{key}": float("inf")})


def test_an_option_of_no_plain_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD, "utf-8")
    with pytest.raises(ConfigError, match=r"^method: an option of odd "):
        load_config("quick", {"method": f"{path}:Odd"})
