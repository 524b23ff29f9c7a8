"""Configurations: TOML files as they are loaded, written and loaded again."""

from __future__ import annotations

import tempfile
import tomllib
import zlib
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import tomli_w
from pydantic import TypeAdapter

from fuzz.tables import LAYERS, choices, mutate, settings
from fuzz.targets import Target, bounded
from prowd.config.files import presets, read_settings, read_suggestion
from prowd.config.options import all_options, make_method
from prowd.config.schema import RunConfig, load_config, with_full_paths
from prowd.errors import ConfigError
from prowd.methods import METHODS

__all__ = ["CONFIG", "check_config", "check_written", "quicken"]

FIXED, EACH = 2**26, 2**10  # a million clients, which may be asked for in few words, are a list of 8 MB


def check_config(data: bytes) -> bool:
    """Load a file; ConfigError is the only error, and what loads can be written and loads to the same."""
    if not harmless(data):
        return False
    mine = folder() / "mine.toml"
    mine.write_bytes(data)
    if b"compare" in data:
        with suppress(ConfigError):
            read_suggestion(mine)
    watched = zlib.crc32(data) % 8 == 0  # watching memory takes as long as loading
    try:
        with bounded(FIXED, EACH, len(data)) if watched else nullcontext():
            config = load_config(mine)
    except ConfigError:
        return False
    check_written(config)
    with suppress(ConfigError):
        full = with_full_paths(config)
        assert with_full_paths(full) == full
    return True


def check_written(config: RunConfig) -> None:
    """Write a configuration out and load it again."""
    path = folder() / "config.toml"
    path.write_text(config.toml(), "utf-8")
    assert load_config(path) == config


def harmless(data: bytes) -> bool:
    """Whether a file asks for no code to be run but prowd's own: a method may be any module or file there is."""
    try:
        method = tomllib.loads(data.decode()).get("method", "")
        where = method.rpartition(":")[0] if isinstance(method, str) else ""
        return where in ("", "prowd.methods") or (where.endswith(".py") and not Path(where).expanduser().exists())
    except (ValueError, RecursionError, OSError, RuntimeError):
        return True


@cache
def folder() -> Path:
    """Where the file lies, with one beside it that it may extend; gone with the process."""
    made = tempfile.TemporaryDirectory(prefix="prowd-fuzz-")
    _KEPT.append(made)
    (Path(made.name) / "base.toml").write_text('extends = "quick"\n[float32]\nclip = 1.0\n', "utf-8")
    return Path(made.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def quicken() -> None:
    """Remember in this process what is the same for all inputs, which takes most of the time to load one."""
    for name in ("prowd.config.options.TypeAdapter", "prowd.config.files.TypeAdapter"):
        mock.patch(name, cache(TypeAdapter)).start()
    mock.patch("prowd.config.files.presets", cache(presets)).start()


def seeds() -> list[bytes]:
    """Every preset, every method with its options, own layers, files that extend, and one with all written out."""
    values: list[dict[str, Any]] = [read_settings(name) for name in presets()]
    values += [{"method": name, "options": all_options(make_method(name, {}))} for name in METHODS]
    values += [{"extends": "base.toml", "float32.lr": 0.5}, {"extends": "table2", "compare": {"seeds": [1]}}]
    texts = [*map(tomli_w.dumps, [*values, {"model": "custom", "layers": LAYERS}])]
    return [text.encode() for text in (*texts, load_config("quick", {"method": "prowd"}).toml())]


def words() -> list[str]:
    """Names of settings, the words they accept, and what TOML is made of."""
    syntax = ['"""', "'''", "[[layers]]", "[options]", "[compare]", " = ", "0x", "1e", "1979-05-27", "inf", "nan"]
    return [*settings(), *choices(), *syntax]


CONFIG = Target(check_config, seeds, words, mutate, longest=2**14)
