"""Tables of settings: merging them, and what is wrong with them in words. No torch here: listings are to start fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from prowd.errors import ConfigError, near

__all__ = ["check_depth", "explain", "flat", "layered", "override"]

DEEPEST = 20  # layers of tables and lists
LONGEST = 1024  # bits of a number: Python neither writes nor shows those of thousands of digits
_BRANCHES = (
    "constrained-int",
    "constrained-float",
    "literal['all']",
    "literal['auto']",
    "literal['native']",
    "literal['off']",
)  # pydantic's names for the parts of a union


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables by dotted names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


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


def layered(values: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of one layer over those of another: a file over what it extends, a command line over a preset.

    Within a layer a method's own table wins over a plain ``options.KEY``. A plain one of a later layer wins over the
    tables of earlier ones, or a preset would silently keep its value.
    """
    plain, under = override({}, settings).get("options", {}), values.get("options", {})
    if not isinstance(plain, Mapping) or not isinstance(under, Mapping):
        return override(values, settings)
    left = {key: _without(table, flat(plain)) if isinstance(table, Mapping) else table for key, table in under.items()}
    return override({**values, "options": left} if left else values, settings)


def _without(table: Mapping[str, Any], names: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A table without the entries of some dotted names."""
    return {
        key: _without(value, names, f"{prefix}{key}.") if isinstance(value, Mapping) else value
        for key, value in table.items()
        if f"{prefix}{key}" not in names
    }


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
