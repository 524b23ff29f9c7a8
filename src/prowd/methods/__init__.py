"""Federated methods, one file each, both halves in it."""

from prowd.methods.base import (
    Device,
    LiftsInStages,
    Method,
    Notes,
    Sampler,
    ScalesRates,
    ServerState,
    Slot,
    WorksMeanwhile,
)
from prowd.methods.fedavg import FedAvg
from prowd.methods.fedcomgate import FedComGate
from prowd.methods.fedpaq import FedCom, FedPaq
from prowd.methods.fedprox import FedProx
from prowd.methods.grouped import FedGroupedAvg, FedGroupedAvgAsymmetric
from prowd.methods.local import Local
from prowd.methods.plus import ProWDPlus
from prowd.methods.prowd.method import ProWD, ProWDDeq, ProWDSwa
from prowd.methods.registry import METHODS, anchored, find_method, method_hash

__all__ = [
    "METHODS",
    "Device",
    "FedAvg",
    "FedCom",
    "FedComGate",
    "FedGroupedAvg",
    "FedGroupedAvgAsymmetric",
    "FedPaq",
    "FedProx",
    "LiftsInStages",
    "Local",
    "Method",
    "Notes",
    "ProWD",
    "ProWDDeq",
    "ProWDPlus",
    "ProWDSwa",
    "Sampler",
    "ScalesRates",
    "ServerState",
    "Slot",
    "WorksMeanwhile",
    "anchored",
    "find_method",
    "method_hash",
]
