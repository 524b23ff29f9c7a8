"""Settings as they are written: presets and TOML files, before anything is validated."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter, ValidationError

from prowd.config.tables import check_depth, explain, layered
from prowd.errors import ConfigError, near

__all__ = ["Suggestion", "presets", "read_pairs", "read_settings", "read_suggestion"]

EXTENDS, COMPARE = "extends", "compare"  # what a file may hold besides the settings of a run
DEEPEST = 10  # files that extend one another


@dataclass(frozen=True)
class Suggestion:
    """What a file suggests to compare when it is given to ``prowd compare``, in its table ``[compare]``."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    methods: tuple[str, ...] = ("fedavg", "prowd")
    seeds: tuple[int, ...] = (0, 1, 2)


def presets() -> dict[str, str]:
    """Names of the built-in configurations and what their first comment line says of them."""
    folder = resources.files("prowd.config") / "presets"
    files = {file.name.removesuffix(".toml"): file for file in folder.iterdir() if file.name.endswith(".toml")}
    names = sorted(files, key=lambda name: (name != "quick", name))
    return {name: files[name].read_text("utf-8").partition("\n")[0].lstrip("# ") for name in names}


def read_settings(source: str | Path) -> dict[str, Any]:
    """The settings that a preset or a file gives; those of what it ``extends`` come first."""
    values = {key: value for key, value in _read(source).items() if key != COMPARE}
    values.setdefault("name", re.sub(r"[^A-Za-z0-9_ .+-]", "_", Path(source).stem)[:100])
    return values


def read_pairs(pairs: Iterable[str]) -> dict[str, Any]:
    """Read KEY=VALUE: the value as TOML where it is TOML, as text where it is not."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{pair!r} is not a setting; accepted: KEY=VALUE, as in rounds=5")
        try:
            values = tomllib.loads(f"value = {text}")
        except (ValueError, RecursionError):
            values = {}
        settings[key.strip()] = values["value"] if len(values) == 1 else text.strip()
    return settings


def read_suggestion(source: str | Path) -> Suggestion:
    """What a preset or a file suggests to compare."""
    table = _read(source).get(COMPARE, {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"{COMPARE}: {table!r} is wrong; accepted: a table with methods and seeds")
    try:
        return TypeAdapter(Suggestion).validate_python(dict(table))
    except ValidationError as error:
        raise ConfigError(explain(error, f"{COMPARE}.", lambda _: ["methods", "seeds"])) from None


def _read(source: str | Path, depth: int = 0) -> dict[str, Any]:
    values = _parse(source)
    base = values.pop(EXTENDS, None)
    if base is None:
        return values
    if not isinstance(base, str) or depth == DEEPEST:
        what = f"{base!r} is wrong" if not isinstance(base, str) else f"{base!r} extends itself, or too many others"
        raise ConfigError(f"{EXTENDS}: {what}; accepted: the name of a preset or a .toml file")
    beside = Path(source).parent / base
    return layered(_read(beside if base.endswith(".toml") else base, depth + 1), values)


def _parse(source: str | Path) -> dict[str, Any]:
    if str(source) in presets():
        text = (resources.files("prowd.config") / "presets" / f"{source}.toml").read_text("utf-8")
    elif Path(source).suffix == ".toml" or _is_file(source):
        try:
            text = Path(source).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(f"configuration file {source} cannot be read: {error}") from error
    else:
        names = list(presets())
        accepted = f"{', '.join(names)}, or a .toml file{near(str(source), names)}"
        raise ConfigError(f"preset: {str(source)!r} is unknown; accepted: {accepted}")
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source} is not valid TOML: {error}") from error
    check_depth(values)
    return values


def _is_file(source: str | Path) -> bool:
    try:
        return Path(source).is_file()
    except (OSError, ValueError):  # no name that a file can have
        return False
