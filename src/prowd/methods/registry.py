"""Methods by name: the built-in ones, and a user's own by the file or module that holds them."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
import traceback
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

from prowd.errors import ConfigError, near
from prowd.methods.base import Method
from prowd.methods.fedavg import FedAvg
from prowd.methods.fedcomgate import FedComGate
from prowd.methods.fedpaq import FedCom, FedPaq
from prowd.methods.fedprox import FedProx
from prowd.methods.grouped import FedGroupedAvg, FedGroupedAvgAsymmetric
from prowd.methods.local import Local
from prowd.methods.plus import ProWDPlus
from prowd.methods.prowd.method import ProWD, ProWDDeq, ProWDSwa

__all__ = ["METHODS", "anchored", "find_method", "method_hash"]

_ALL = (
    Local,
    FedAvg,
    FedProx,
    FedPaq,
    FedCom,
    FedComGate,
    FedGroupedAvg,
    FedGroupedAvgAsymmetric,
    ProWD,
    ProWDDeq,
    ProWDSwa,
    ProWDPlus,
)
METHODS: dict[str, type[Method]] = {method.name: method for method in _ALL}

PARTS = ("name", "summary", "init", "dispatch", "train", "expects", "aggregate")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,49}")  # it becomes part of a folder's name


def find_method(name: str) -> type[Method]:
    """The class of a built-in method, or of a user's own, as in ``my/median.py:Median`` or ``mine.median:Median``."""
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        accepted = f"{', '.join(METHODS)}, or your own as FILE.py:CLASS{near(name, METHODS)}"
        raise ConfigError(f"method: {name!r} is unknown; accepted: {accepted}")
    where, _, attribute = name.rpartition(":")
    module = _file(Path(where)) if where.endswith(".py") else _module(where)
    found = getattr(module, attribute, None)
    if not isinstance(found, type) or not is_dataclass(found):
        raise ConfigError(f"method: {where} has no dataclass {attribute!r}; accepted: the class of a method")
    if found not in METHODS.values():
        _check(found, name)
    return cast(type[Method], found)


def anchored(name: str) -> str:
    """A method's name with the file it is in by its full path, so that a run can be resumed from another folder."""
    where, _, attribute = name.rpartition(":")
    return f"{_full(Path(where))}:{attribute}" if where.endswith(".py") else name


def _check(found: type, name: str) -> None:
    missing = [part for part in PARTS if not hasattr(found, part)]
    if missing:
        raise ConfigError(f"method: {name} lacks {', '.join(missing)}; accepted: all of {', '.join(PARTS)}")
    label = vars(found).get("name")
    if label is None or label in METHODS:
        theirs = repr(getattr(found, "name", None))
        raise ConfigError(f"method: {name} has the name {theirs} of another method; accepted: a `name` of its own")
    if not isinstance(label, str) or not NAME.fullmatch(label):
        raise ConfigError(f"method: the name of {name} is {label!r}; accepted: letters, digits and -, at most 50")


def method_hash(name: str) -> str:
    """Content hash of the file that holds a method; nothing for those that are installed."""
    where, _, _ = name.rpartition(":")
    if not where.endswith(".py"):
        return ""
    return hashlib.sha256(_read(Path(where))).hexdigest()


def _full(path: Path) -> Path:
    try:
        return path.expanduser().resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"method: {str(path)!r} is no file: {error}; accepted: FILE.py:CLASS") from None


def _read(path: Path) -> bytes:
    try:
        return path.expanduser().read_bytes()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"method: {str(path)!r} cannot be read: {error}; accepted: FILE.py:CLASS") from None


def _file(path: Path) -> ModuleType:
    """Load a Python file, once in a process as long as it is the same: its classes must stay the same ones."""
    source = _read(path)
    path = path.expanduser().resolve()
    key = f"prowd_method_{hashlib.sha256(str(path).encode() + source).hexdigest()[:16]}"
    if key in sys.modules:
        return sys.modules[key]
    spec = importlib.util.spec_from_file_location(key, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"method: {path} is not a Python file; accepted: FILE.py:CLASS")
    module = importlib.util.module_from_spec(spec)
    sys.modules[key] = module  # before it is run: dataclasses look their module up
    try:
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - the user's own file
    except (Exception, SystemExit) as error:
        del sys.modules[key]
        raise ConfigError(f"method: {path} cannot be loaded: {_where(error)}") from error
    return module


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"method: module {name!r} cannot be imported: {_where(error)}") from error


def _where(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
