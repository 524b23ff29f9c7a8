"""Federated learning for devices of unequal precision.

>>> import prowd
>>> result = prowd.run("quick", rounds=3)
>>> result.summary["accuracy"]["trained"]

Names are loaded when they are first used: torch takes seconds to import, and listing presets does not need it.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

__version__ = version("prowd")

if TYPE_CHECKING:
    from prowd.api import compare, convert, run
    from prowd.errors import ProwdError

_HOMES = {"prowd.api": ("compare", "convert", "run"), "prowd.errors": ("ProwdError",)}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["ProwdError", "__version__", "compare", "convert", "run"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
