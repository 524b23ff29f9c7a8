"""Federated methods, one file each, both halves in it."""

from prowd.methods.base import Device, Method, ServerState, Slot
from prowd.methods.fedavg import FedAvg
from prowd.methods.local import Local

__all__ = ["METHODS", "Device", "FedAvg", "Local", "Method", "ServerState", "Slot"]

METHODS: dict[str, type[FedAvg] | type[Local]] = {"fedavg": FedAvg, "local": Local}
