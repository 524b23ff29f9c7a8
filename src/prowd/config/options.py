"""A method's options: from the tables of a configuration to the method itself, and what is wrong with them in words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from prowd.errors import ConfigError, near
from prowd.methods import METHODS, Method, find_method

__all__ = ["all_options", "check_depth", "explain", "flat", "make_method", "option_names", "override", "own_options"]

DEEPEST = 20  # layers of tables and lists
LONGEST = 1024  # bits of a number: Python neither writes nor shows those of thousands of digits
_BRANCHES = ("constrained-int", "literal['all']", "literal['native']")  # pydantic's names for the parts of a union


def make_method(name: str, options: Mapping[str, Any]) -> Method:
    """Build a method with its options."""
    chosen = find_method(name)
    known = option_names(chosen)
    unknown = [key for key in options if key not in known]
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
    return _without_none(dataclasses.asdict(method))


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables by dotted names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def option_names(method: type[Method]) -> list[str]:
    """What can be set, as in ``options.NAME=VALUE``."""
    return [field.name for field in dataclasses.fields(method)]


def own_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are for one method, of a table that may hold those of several.

    ``options.tau`` is for whichever method is run, ``options.prowd.tau`` for ``prowd`` and its variants (classes
    derived from it), and that wins. Tables of methods that are not run are checked all the same.
    """
    chosen = find_method(name)
    tables = {key: value for key, value in options.items() if key in METHODS or key == chosen.name}
    for key, table in tables.items():
        if not isinstance(table, Mapping):
            raise ConfigError(f"options.{key}: {table!r} is wrong; accepted: a table of the options of {key}")
        if key in METHODS:
            _check_table(key, table)
    own = {key: value for key, value in options.items() if key not in tables}
    for ancestor in reversed(chosen.__mro__):
        own = override(own, tables.get(vars(ancestor).get("name", ""), {}))
    return own


def _check_table(name: str, table: Mapping[str, Any]) -> None:
    try:
        make_method(name, table)
    except ConfigError as error:
        raise ConfigError(str(error).replace("options.", f"options.{name}.", 1)) from None


def check_depth(values: Mapping[str, Any]) -> None:
    """Refuse tables and lists within one another, and numbers, beyond all measure, before anything handles them."""
    for key, value in values.items():
        level: list[object] = [value]
        for _ in range(DEEPEST):
            if any(isinstance(item, int) and item.bit_length() > LONGEST for item in level):
                raise ConfigError(f"{key[:80]}: a whole number of over {LONGEST} bits; accepted: at most {LONGEST}")
            inner: list[object] = []
            for item in level:
                inner += item.values() if isinstance(item, Mapping) else item if isinstance(item, list | tuple) else ()
            level = inner
        if level:
            raise ConfigError(f"{key[:80]}: tables or lists in more than {DEEPEST} layers; accepted: at most {DEEPEST}")


def override(values: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The values with others in their place, tables entry by entry; dotted names reach into tables."""
    result = dict(values)
    for key, value in settings.items():
        head, _, rest = key.partition(".")
        if key.count(".") > DEEPEST:
            raise ConfigError(f"{key[:40]}...: {key.count('.')} dots; accepted: at most {DEEPEST}")
        if rest and not isinstance(result.get(head, {}), Mapping):
            raise ConfigError(f"{key}: {head} is not a table; accepted: {head}=VALUE")
        if rest:
            result[head] = override(result.get(head, {}), {rest: value})
        elif isinstance(value, Mapping) and isinstance(result.get(head), Mapping):
            result[head] = override(result[head], value)
        else:
            result[head] = value
    return result


def explain(error: ValidationError, prefix: str, beside: Callable[[Sequence[str]], Sequence[str]]) -> str:
    """One line for each field that is wrong: its name, its value, what is accepted."""
    lines: dict[tuple[str, str], list[str]] = {}
    for detail in error.errors():
        place = [str(part) for part in detail["loc"] if part not in _BRANCHES]
        name = prefix + ".".join(place)
        if detail["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            known = list(beside(place))
            lines[name, "as a key"] = [f"{', '.join(known)}{near(place[-1], known)}"]
        else:
            message = detail["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            lines.setdefault((name, _shown(detail["input"])), []).append(message)
    return "\n".join(f"{name}: {value} is wrong; accepted: {' or '.join(ok)}" for (name, value), ok in lines.items())


def _shown(value: object) -> str:
    """A value as it was written; Python does not print numbers of thousands of digits."""
    try:
        return repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} that is too large to be shown"


def _beside(chosen: type[Method], place: Sequence[str]) -> list[str]:
    """Names of the options that the last key of a path could have been."""
    inner: Any = chosen()
    for key in place[:-1]:
        inner = getattr(inner, key, None)
    return [field.name for field in dataclasses.fields(inner)] if dataclasses.is_dataclass(inner) else []
