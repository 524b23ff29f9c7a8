"""Options of several methods in one configuration."""

from __future__ import annotations

from typing import Any

import pytest

from prowd.config import load_config
from prowd.errors import ConfigError
from prowd.methods import FedProx, ProWD, ProWDDeq
from prowd.options import make_method, own_options

TABLES: dict[str, Any] = {
    "prowd": {"sparsity": 0.5, "dequantizer": {"epochs": 5, "batch": 16}},
    "prowd-deq": {"dequantizer": {"epochs": 3}},
    "fedprox": {"mu": 0.1},
}


def test_a_method_takes_its_own_table() -> None:
    assert own_options("fedprox", TABLES) == {"mu": 0.1}
    assert own_options("fedavg", TABLES) == {}
    assert own_options("prowd", TABLES) == TABLES["prowd"]


def test_a_variant_takes_the_table_of_its_parent_and_then_its_own() -> None:
    assert own_options("prowd-swa", TABLES) == TABLES["prowd"]
    assert own_options("prowd-deq", TABLES) == {"sparsity": 0.5, "dequantizer": {"epochs": 3, "batch": 16}}


def test_what_is_given_for_the_run_wins() -> None:
    options = {**TABLES, "dequantizer": {"epochs": 9}}
    assert own_options("prowd-deq", options)["dequantizer"] == {"epochs": 9, "batch": 16}


def test_the_configuration_keeps_what_is_for_its_method() -> None:
    settings = {"options": TABLES}
    assert load_config("quick", settings).options == {}
    config = load_config("quick", {**settings, "method": "prowd-deq", "options.prowd.dequantizer.lam": 0.5})
    method = make_method(config.method, config.options)
    assert isinstance(method, ProWDDeq)
    assert (method.sparsity, method.dequantizer.epochs, method.dequantizer.lam) == (0.5, 3, 0.5)
    assert load_config("quick", {"method": "prowd", "options": config.options}).options == config.options


def test_a_table_of_a_method_that_is_not_run_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"^options.prowd.taau: prowd has no such option; accepted: ladder"):
        load_config("quick", {"options.prowd.taau": 1})
    with pytest.raises(ConfigError, match=r"^options.prowd.tau: 2 is wrong; accepted: less than or equal to 1"):
        load_config("quick", {"options.prowd.tau": 2})
    with pytest.raises(ConfigError, match=r"^options.prowd: 3 is wrong; accepted: a table"):
        load_config("quick", {"options.prowd": 3})


def test_a_misspelt_key_in_a_table_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"options.dequantizer.epoch: as a key .*did you mean 'epochs'"):
        load_config("quick", {"method": "prowd", "options.dequantizer.epoch": 3})


def test_defaults() -> None:
    assert make_method("prowd", {}) == ProWD()
    assert make_method("fedprox", {"mu": 0.5}) == FedProx(mu=0.5)
