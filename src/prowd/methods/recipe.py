"""What a device must do in a run, as one number: by it a board and a gateway know that they mean the same training.

The network is not part of it, tasks carry a hash of their own of that. Nor are options of a method that only its server
uses, so that a board need not be compiled anew for them.
"""

from __future__ import annotations

import hashlib

from prowd.device.scene import LocalSettings, Uplink
from prowd.methods.base import Method
from prowd.methods.fedavg import FedAvg
from prowd.methods.fedpaq import FedCom, FedPaq
from prowd.methods.grouped import FedGroupedAvg, FedGroupedAvgAsymmetric
from prowd.methods.plus import ProWDPlus
from prowd.methods.prowd.method import ProWD, ProWDDeq, ProWDSwa
from prowd.numbers.bits import Bitwidth

__all__ = ["CODES", "LEVELS", "WEIGHTS", "client_half", "recipe"]

WEIGHTS, LEVELS, CODES = "weights", "movement in three levels", "movement in codes"
SIMPLE = {
    FedAvg: WEIGHTS,
    FedGroupedAvg: WEIGHTS,
    FedGroupedAvgAsymmetric: WEIGHTS,
    ProWD: WEIGHTS,
    ProWDDeq: WEIGHTS,
    ProWDSwa: WEIGHTS,
    ProWDPlus: LEVELS,
    FedPaq: CODES,
    FedCom: CODES,
}


def client_half(method: Method) -> str | None:
    """What the clients of a method send after plain local training; None where they do more, or remember something."""
    return SIMPLE.get(type(method))


def recipe(method: Method, uplink: Uplink, local: LocalSettings, width: Bitwidth) -> int:
    """64 bits of a hash of how a device of a width trains, and what it sends; steps, batch and rate are in the task."""
    half = client_half(method)
    settings = local.float32 if width.is_float else (local.lowbit.loss, local.lowbit.logit_scale)
    of_method = method if half is None else (half, method.bits if isinstance(method, FedPaq) else "")
    text = repr((of_method, uplink, tuple(local.augment), settings, width.bits))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
