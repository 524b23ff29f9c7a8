"""Tables of settings: what can be set, to what odd values, and TOML that has been changed by someone who knows."""

from __future__ import annotations

import dataclasses
import datetime
import math
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random
from typing import Any

import tomli_w
from pydantic import TypeAdapter

from fuzz.targets import Change
from prowd.config.files import presets
from prowd.config.options import option_names
from prowd.config.schema import RunConfig
from prowd.methods import METHODS

__all__ = ["LAYERS", "ODD", "choices", "mutate", "put", "settings"]

LAYERS = [{"kind": "flatten"}, {"kind": "linear", "name": "fc", "inputs": 64, "outputs": 10, "relu": False}]
ODD: tuple[Any, ...] = (
    -1, 0, 1, 2, 3, 2**31, 2**63 - 1, 2**63, 10**30, True, False, -0.0, 0.5, 1.0, 1e-320, 1e308, math.inf, math.nan,
    "", "x", "é\n\0", "inf", "nan", "1e999", "3", "x" * 300, "a.npz", "~/a.npz", "~nobody/a.npz", "a\0.npz",
    "cpu", "cuda:0", "int8:5, float32:5",
    "int2:1000000", "int8:1000001", "int2, float32", "crop, flip", "none", "base.toml", "mine.toml", "~nobody/x.py:X",
    "prowd.methods:FedProx", [], [1, "x"], [[]], {}, {"x": 1}, {"": {"": {}}}, datetime.date(1, 1, 1), datetime.time(1),
    LAYERS,
    [{"kind": "conv", "name": "c", "inputs": 1, "outputs": 2, "kernel": [3, 3]}, {"kind": "maxpool", "stride": [0, 1]}],
)  # fmt: skip
ENDLESS = ".a" * 1200  # more than Python can follow down
LINES = ("{} = 0x" + "f" * 4000, "{}" + ENDLESS + " = 1", '"{}' + ENDLESS + '" = 1', '"{}.a" = 1', "{} = " + "[" * 99)


@cache
def groups() -> tuple[Sequence[str], ...]:
    """The dotted names of everything that can be set, of settings and of options, of methods and besides."""
    tables = [f"{table}.{name}" for table in ("lowbit", "float32") for name in fields(table)]
    options = sorted({name for method in METHODS.values() for name in option_names(method)})
    own = [f"options.{name}" for name in (*options, "dequantizer.epochs", "dequantizer.lr", "dequantizer.form")]
    named = [f"options.{method}.{name}" for method in METHODS for name in option_names(METHODS[method])]
    whole = [
        *(f"options.{method}" for method in METHODS),
        "extends",
        "compare",
        "compare.methods",
        "compare.seeds",
        "x",
    ]
    return list(RunConfig.model_fields), tables, own, named, whole


def settings() -> list[str]:
    """All of them."""
    return [name for group in groups() for name in group]


def fields(table: str) -> list[str]:
    """Names of what a table of the configuration holds."""
    kind: Any = RunConfig.model_fields[table].annotation
    return [field.name for field in dataclasses.fields(kind)]


@cache
def choices() -> tuple[str, ...]:
    """Every word that a setting or option accepts, by the schema of its type."""
    schemas = [RunConfig.model_json_schema(), *(TypeAdapter(method).json_schema() for method in METHODS.values())]
    return (*sorted({word for schema in schemas for word in listed(schema)}), *METHODS, *presets())


def listed(schema: Any) -> Iterator[str]:
    """The words in the enumerations of a schema."""
    if isinstance(schema, dict):
        yield from (word for word in [*schema.get("enum", []), schema.get("const")] if isinstance(word, str))
    if isinstance(schema, dict | list):
        for part in schema.values() if isinstance(schema, dict) else schema:
            yield from listed(part)


def mutate(data: bytes, random: Random, change: Change) -> bytes:
    """Change the text blindly, or set some of what can be set and leave some out."""
    if random.random() < 0.2:
        return change(data)
    try:
        text = random.choice((data.decode(), data.decode(), "", "extends = 'quick'\n"))
        values = tomllib.loads(text)
        for _ in range(random.choice((1, 1, 2, 3))):
            put(values, random.choice(random.choice(groups())), any_value(random))
        if random.random() < 0.2:
            del values[random.choice(list(values))]
        return (odd_line(values, random) + tomli_w.dumps(values)).encode()
    except (ValueError, RecursionError):  # no TOML, or none that can be written
        return change(data)


def any_value(random: Random) -> object:
    """A value that is odd, or a word that is accepted somewhere, or a number."""
    numbers = random.randint(-1, 20), 10 ** random.uniform(-9, 9), random.random()
    return random.choice([random.choice(ODD), random.choice(choices()), random.choice(numbers)])


def put(values: dict[str, Any], setting: str, value: object) -> None:
    """Set a value, in nested tables if its name has dots."""
    *tables, last = setting.split(".")
    for key in tables:
        inner = values.get(key)
        values[key] = dict(inner) if isinstance(inner, dict) else {}
        values = values[key]
    values[last] = value


def odd_line(values: dict[str, Any], random: Random) -> str:
    """Seldom, a line that no writer of TOML would write, and the setting gone that it sets."""
    if random.random() > 0.15:
        return ""
    setting = random.choice(settings())
    values.pop(setting.partition(".")[0], None)
    return random.choice(LINES).format(setting) + "\n"
