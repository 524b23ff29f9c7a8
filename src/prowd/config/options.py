"""A method's options: from the tables of a configuration to the method itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from prowd.config.tables import explain, flat, override
from prowd.errors import ConfigError
from prowd.methods import METHODS, Method, find_method

__all__ = ["all_options", "make_method", "option_names", "own_options"]


def make_method(name: str, options: Mapping[str, Any]) -> Method:
    """Build a method with its options."""
    chosen = find_method(name)
    known = option_names(chosen)
    unknown = [key for key in options if key not in known]
    if "weighting" in unknown:
        raise ConfigError(f"options.weighting: {options['weighting']!r} is for every method now; accepted: weighting")
    if unknown:
        raise ConfigError(
            f"options.{unknown[0]}: {chosen.name} has no such option; accepted: {', '.join(known) or 'none'}"
        )
    try:
        method: Method = TypeAdapter(chosen).validate_python(dict(options))
    except ValidationError as error:
        raise ConfigError(explain(error, "options.", lambda place: _beside(chosen, place))) from None
    except PydanticUserError as error:
        raise ConfigError(f"method: an option of {chosen.name} has a type that is not plain data: {error}") from None
    made = flat(dataclasses.asdict(method))
    bad = [key for key, value in made.items() if isinstance(value, float) and not math.isfinite(value)]
    if bad:
        raise ConfigError(f"options.{bad[0]}: {made[bad[0]]} is wrong; accepted: a finite number")
    return method


def all_options(method: Method) -> dict[str, Any]:
    """Every option of a method with its value, defaults too; those that are None are left out."""
    values, names = dataclasses.asdict(method), option_names(type(method))
    return _without_none({name: values[name] for name in names})


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


def option_names(method: type[Method]) -> list[str]:
    """What can be set, as in ``options.NAME=VALUE``: the fields, but for those that a variant declares unused."""
    unused = getattr(method, "unused", ())
    return [field.name for field in dataclasses.fields(method) if field.name not in unused]


def own_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are for one method, of a table that may hold those of several.

    ``options.tau`` is for whichever method is run, ``options.prowd.tau`` for ``prowd`` and its variants (classes
    derived from it), and that wins; a variant skips what it does not use. Tables of methods that are not run are
    checked all the same.
    """
    chosen = find_method(name)
    unused = getattr(chosen, "unused", ())
    tables = {key: value for key, value in options.items() if key in METHODS or key == chosen.name}
    for key, table in tables.items():
        if not isinstance(table, Mapping):
            raise ConfigError(f"options.{key}: {table!r} is wrong; accepted: a table of the options of {key}")
        if key in METHODS:
            _check_table(key, table)
    own = {key: value for key, value in options.items() if key not in tables}
    for ancestor in reversed(chosen.__mro__):
        table = tables.get(vars(ancestor).get("name", ""), {})
        skipped = unused if ancestor is not chosen else ()
        own = override(own, {key: value for key, value in table.items() if key.partition(".")[0] not in skipped})
    return own


def _check_table(name: str, table: Mapping[str, Any]) -> None:
    try:
        make_method(name, table)
    except ConfigError as error:
        raise ConfigError(str(error).replace("options.", f"options.{name}.", 1)) from None


def _beside(chosen: type[Method], place: Sequence[str]) -> list[str]:
    """Names of the options that the last key of a path could have been."""
    inner: Any = chosen()
    for key in place[:-1]:
        inner = getattr(inner, key, None)
    return [field.name for field in dataclasses.fields(inner)] if dataclasses.is_dataclass(inner) else []
