"""Federated learning for devices of unequal precision.

>>> import prowd
>>> result = prowd.run("quick", rounds=3)
>>> result.summary["accuracy"]["trained"]

All that scripts and authors of methods need is here; ``prowd.common`` holds the parts that methods share. Names are
loaded when they are first used: torch takes seconds to import, and listing presets does not need it.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

__version__ = version("prowd")

if TYPE_CHECKING:
    from prowd.api import compare, run
    from prowd.comparison import Comparison
    from prowd.device.scene import ClientSpec, Scene
    from prowd.errors import ClientError, ConfigError, DataError, ProwdError, RunError, WireError
    from prowd.methods import (
        Device,
        FedAvg,
        FedCom,
        FedComGate,
        FedGroupedAvg,
        FedGroupedAvgAsymmetric,
        FedPaq,
        FedProx,
        Local,
        Method,
        ProWD,
        ProWDDeq,
        ProWDPlus,
        ProWDSwa,
        ServerState,
        Slot,
        common,
    )
    from prowd.numbers.bits import Bitwidth
    from prowd.numbers.quantize import QTensor, Weights
    from prowd.runs.run import RunResult
    from prowd.runs.trained import Trained, convert, load
    from prowd.wire import Task, Update

__all__ = [
    "Bitwidth",
    "ClientError",
    "ClientSpec",
    "Comparison",
    "ConfigError",
    "DataError",
    "Device",
    "FedAvg",
    "FedCom",
    "FedComGate",
    "FedGroupedAvg",
    "FedGroupedAvgAsymmetric",
    "FedPaq",
    "FedProx",
    "Local",
    "Method",
    "ProWD",
    "ProWDDeq",
    "ProWDPlus",
    "ProWDSwa",
    "ProwdError",
    "QTensor",
    "RunError",
    "RunResult",
    "Scene",
    "ServerState",
    "Slot",
    "Task",
    "Trained",
    "Update",
    "Weights",
    "WireError",
    "__version__",
    "common",
    "compare",
    "convert",
    "load",
    "run",
]

_HOMES = {
    "prowd.api": "compare run",
    "prowd.comparison": "Comparison",
    "prowd.device.scene": "ClientSpec Scene",
    "prowd.errors": "ClientError ConfigError DataError ProwdError RunError WireError",
    "prowd.methods": (
        "Device FedAvg FedCom FedComGate FedGroupedAvg FedGroupedAvgAsymmetric FedPaq FedProx Local Method "
        "ProWD ProWDDeq ProWDPlus ProWDSwa ServerState Slot common"
    ),
    "prowd.numbers.bits": "Bitwidth",
    "prowd.numbers.quantize": "QTensor Weights",
    "prowd.runs.run": "RunResult",
    "prowd.runs.trained": "Trained convert load",
    "prowd.wire": "Task Update",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it (PEP 562)."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
