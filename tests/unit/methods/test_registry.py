"""Finding methods by name, and a user's own by where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from prowd.config.schema import load_config
from prowd.errors import ConfigError
from prowd.methods import METHODS, FedAvg, anchored, find_method, method_hash

OWN = """
from dataclasses import dataclass
from typing import ClassVar
from prowd.methods import FedAvg

@dataclass(frozen=True)
class Mine(FedAvg):
    power: int = 2
    name: ClassVar[str] = "mine"

@dataclass(frozen=True)
class Half:
    name: ClassVar[str] = "half"

@dataclass(frozen=True)
class Odd(FedAvg):
    name: ClassVar[str] = "../odd"

@dataclass(frozen=True)
class Forgot(FedAvg):
    pass

nothing = 3
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(OWN, "utf-8")
    return path


def test_a_built_in_method_is_found_by_its_name() -> None:
    assert all(find_method(name) is method for name, method in METHODS.items())


def test_an_own_method_is_found_by_its_file(own: Path) -> None:
    found = find_method(f"{own}:Mine")
    assert (found.name, issubclass(found, FedAvg)) == ("mine", True)
    assert find_method(f"{own}:Mine") is found, "loaded once: classes stay the same"


def test_an_own_method_is_found_by_its_module() -> None:
    assert find_method("prowd.methods.fedavg:FedAvg") is FedAvg


def test_an_own_method_has_its_options_in_the_configuration(own: Path) -> None:
    config = load_config("quick", {"method": f"{own}:Mine", "options": {"power": 3}})
    assert config.options == {"power": 3}
    with pytest.raises(ConfigError, match="mine has no such option; accepted: power"):
        load_config("quick", {"method": f"{own}:Mine", "options": {"pover": 3}})


def test_a_file_is_named_by_its_full_path(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own.parent)
    assert anchored("mine.py:Mine") == f"{own.resolve()}:Mine"
    assert anchored("fedavg") == "fedavg"
    assert anchored("package.module:Mine") == "package.module:Mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fedavgg", r"'fedavgg' is unknown; accepted: local, .*FILE.py:CLASS \(did you mean 'fedavg'\?\)"),
        ("nowhere.py:Mine", r"'nowhere.py' cannot be read: .*No such file"),
        ("nul\0.py:Mine", r"cannot be read: embedded null byte"),
        ("{own}:Forgot", r"has the name 'fedavg' of another method; accepted: a `name` of its own"),
        ("no.such.module:Mine", r"module 'no.such.module' cannot be imported: ModuleNotFoundError"),
        ("{own}:Yours", r"has no dataclass 'Yours'"),
        ("{own}:nothing", r"has no dataclass 'nothing'"),
        ("{own}:", r"has no dataclass ''"),
        ("{own}:Half", r"lacks summary, init, dispatch, train, expects, aggregate"),
        ("{own}:Odd", r"the name of .* is '../odd'; accepted: letters"),
    ],
)
def test_what_is_not_a_method_is_refused(own: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_method(name.format(own=own))


def test_a_file_that_fails_says_where(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("\n\n1 / 0\n", "utf-8")
    for _ in range(2):  # a failed module is not left behind
        with pytest.raises(ConfigError, match=r"ZeroDivisionError: division by zero \(.*broken.py, line 3\)"):
            find_method(f"{path}:Mine")


def test_a_file_that_exits_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "leaves.py"
    path.write_text("raise SystemExit(3)\n", "utf-8")
    with pytest.raises(ConfigError, match=r"SystemExit: 3 \(.*leaves.py, line 1\)"):
        find_method(f"{path}:Mine")


def test_a_file_that_has_changed_is_loaded_anew(own: Path) -> None:
    before, hash_before = find_method(f"{own}:Mine"), method_hash(f"{own}:Mine")
    own.write_text(OWN.replace("power: int = 2", "power: int = 5"), "utf-8")
    after = find_method(f"{own}:Mine")
    assert (before().power, after().power) == (2, 5)  # type: ignore[attr-defined]
    assert method_hash(f"{own}:Mine") != hash_before
    assert method_hash("fedavg") == ""
