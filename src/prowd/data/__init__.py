"""Data: sets of known content, their partition over clients, and augmentation."""

from prowd.data.augment import OPERATIONS, augment
from prowd.data.dataset import ARRAYS, CLIENT, Dataset, from_arrays
from prowd.data.partition import Partition, hold_out, partition
from prowd.data.people import set_apart
from prowd.data.registry import ACCEPTED, catalogue, fetch, lacking, load, mapped, verify
from prowd.data.sources import Progress
from prowd.data.watch import Windows

__all__ = [
    "ACCEPTED",
    "ARRAYS",
    "CLIENT",
    "OPERATIONS",
    "Dataset",
    "Partition",
    "Progress",
    "Windows",
    "augment",
    "catalogue",
    "fetch",
    "from_arrays",
    "hold_out",
    "lacking",
    "load",
    "mapped",
    "partition",
    "set_apart",
    "verify",
]
